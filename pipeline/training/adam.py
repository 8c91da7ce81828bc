"""Adam as training uses it, without loading torch's compiler."""

from inspect import unwrap

import torch


class Adam(torch.optim.Adam):
    """torch's Adam, without its import of torch's compiler.

    torch shields these methods from ``torch.compile``, and importing the compiler just for that takes longer
    than importing torch: it pulls in sympy, and scikit-learn with all of scipy. Nothing is compiled here, so
    the unshielded methods are used.
    """

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
    zero_grad = unwrap(torch.optim.Adam.zero_grad)

"""Adam as training uses it, without loading torch's compiler."""

from inspect import unwrap

import torch


class Adam(torch.optim.Adam):
    """torch's Adam, whose bookkeeping does not first import torch's compiler.

    torch shields these methods from ``torch.compile``, and importing the compiler for that alone takes longer
    than importing torch: it brings sympy, and scikit-learn with all of scipy. Nothing is compiled here, so
    the methods are taken from under the shield.
    """

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
    zero_grad = unwrap(torch.optim.Adam.zero_grad)

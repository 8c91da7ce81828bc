"""The paper's tables and figures, run anew: `studies` says what to train, `trained` trains it, the other
modules measure, `records` keeps every number, and `page` writes RESULTS.md from them."""

"""The commands of `cocn`, one module each; `jobs.cli` lists them."""

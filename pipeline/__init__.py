"""The stages from a raw graph to a compared result, in the order of the data."""

"""All settings, how they are loaded, and where things lie.

In: YAML files and flags. Out: one frozen `Config`.
"""

"""All models on one graph under one protocol: who wins, by how much, how surely and at what cost.

A name or a path comes in; a table, paired tests, a sentence and a report come out. May import from every room
up to `comparison`.
"""

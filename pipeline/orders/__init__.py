"""Positions → one order per head.

In: the graph and its positions. Out: sequences of nodes that bring the ends of edges close.
"""

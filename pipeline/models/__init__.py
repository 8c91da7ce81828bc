"""Settings → network; opponents; metrics.

In: a configuration and what a store holds. Out: a network, and scores of its answers.
"""

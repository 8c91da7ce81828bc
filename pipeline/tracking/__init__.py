"""MLflow and nothing but MLflow: journal, runs, server.

In: metrics, parameters and artifacts of a run. Out: MLflow runs, also after an outage.
"""

"""Runs → table, tests and report.

In: finished trainings in MLflow. Out: who wins, by how much, and a self-contained HTML report.
"""

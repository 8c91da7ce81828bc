"""Runs → table, tests and report.

In: finished trainings in MLflow. Out: who wins, by how much, and a self-contained HTML report.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments, models, training, prediction.

Public names, by module:
    history: CURVES, Curve, Selection, Training, metric_name, select_trainings
    model_figures: figures_for
    page: fill_template
    publication: publish_report
    report: LOCAL_ADDRESS, write_report
    statistics: Comparison, Contrast, MANY_PAIRS, Row, compare, comparison_table, decimals, format_quantity,
        format_score
"""

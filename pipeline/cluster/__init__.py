"""Submitting jobs to a Ray cluster and following them.

In: a command line. Out: a Ray job, its state and its log.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments, models, training, prediction, comparison, race, tuning.

Public names, by module:
    doctor: Report, examine
    job_api: JobList, connect
    submission: cluster_overrides, submit
    survey: examine_cluster, survey_cluster
"""

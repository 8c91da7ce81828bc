"""Search for good settings: trials on Ray Tune, the best as a configuration file, what mattered as a report.

In: a store, a configuration and a space of settings. Out: `best.yaml`, `report.html`, a run per trial.
"""

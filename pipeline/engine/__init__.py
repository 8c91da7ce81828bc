"""Ray: sessions and tasks.

In: functions and their arguments. Out: their results, whatever worker died on the way.
"""

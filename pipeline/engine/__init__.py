"""Ray: sessions and tasks.

In: functions and their arguments. Out: their results, whatever worker died on the way.

May import: runtime, config, storage.

Public names, by module:
    session: ADDRESS, local_cluster, ray_session
    tasks: Handle, Tasks, open_tasks
"""

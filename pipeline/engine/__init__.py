"""Ray: sessions and tasks.

In: functions and their arguments. Out: their results, even if a worker dies on the way.

May import: runtime, config, storage.

Public names, by module:
    session: ADDRESS, local_cluster, ray_session
    tasks: Handle, Tasks, open_tasks
"""

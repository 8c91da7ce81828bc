"""What everything uses: errors, progress, memory, secrets, and where a result comes from.

In: nothing. Out: messages, progress lines, measurements.

May import: no other package.

Public names, by module:
    allocator: allocator_environment, restart_with_allocator
    durations: format_duration, parse_duration
    errors: UserError, explain_system_error
    locks: hold_directory, try_lock
    memory: peak_memory, require_memory, reset_peak
    passwords: hide_passwords, without_password
    progress: Bar, progress
    provenance: RECORDS, SOURCE, device_name, library_versions, source_revision, user_name
    spelling: suggest
    threads: wait_passively
"""

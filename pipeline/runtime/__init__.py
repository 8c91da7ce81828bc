"""What everything uses: errors, progress, memory, secrets, and where a result comes from.

In: nothing. Out: messages, progress lines, measurements.
"""

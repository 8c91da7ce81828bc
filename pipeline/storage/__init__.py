"""Files that are written whole or not at all, object stores, and the verified cache of their files.

In: bytes and tables. Out: files with digests.
"""

"""Files that are written whole or not at all, object stores, and the verified cache of their files.

In: bytes and tables. Out: files with digests.

May import: runtime, config.

Public names, by module:
    files: CorruptFileError, TEMPORARY_SUFFIX, atomic_file, check_inside, column_array, explain_full_disk,
        file_sha256, list_column, parse_sealed_json, read_arrow, read_sealed_json, replace_text,
        require_directory, require_file_place, require_space, seal_json, sync_directory, text_sha256,
        verify_file, write_arrow, write_sealed_json
    object_store: Remote, local_file, resolve
"""

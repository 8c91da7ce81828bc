"""Errors that a user can fix, reported in one line."""

import errno

#: Errors caused by a path, or by the disk it is on; a different path helps.
_MENDABLE = {
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOENT,
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.ELOOP,
    errno.EINVAL,
}


class UserError(Exception):
    """Something the user can fix; its text is the one line that the command line prints."""


def explain_system_error(error: BaseException) -> str | None:
    """One line on what the system refused, if another path, or more space, would fix it."""
    if isinstance(error, MemoryError):
        return (
            f"Expected enough memory (got: {str(error) or 'none left'}): use a smaller graph, model or batch"
        )
    if not isinstance(error, OSError) or error.errno not in _MENDABLE or error.filename is None:
        return None
    name = str(error.filename)
    shown = name if len(name) <= 200 else f"{name[:200]}…"
    return f"Expected to be able to use '{shown}' (got: {error.strerror}): choose another path, or free space"

"""Errors that a user can mend, told in one line."""


class UserError(Exception):
    """Something the user can put right; its text is the one line the command line prints."""

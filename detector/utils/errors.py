"""Errors that the user can correct, apart from those that only a programmer can.

The commands in tools/ print one line for a :class:`UserError` or an `OSError`. Every other exception is a
bug and keeps its traceback.
"""


class UserError(ValueError):
    """The message names what was found, what was expected, and the file, key or argument to change."""


class ConfigError(UserError):
    """An unknown config key, or a value that is not allowed."""


class DataError(UserError):
    """A file or a data set that cannot be used as it is."""


class MissingPackage(UserError, ImportError):
    """An optional package is not installed; the message says how to install it."""

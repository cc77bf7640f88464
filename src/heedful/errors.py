"""Exceptions that a user can act on.

Every message is one sentence that says what happened, where, what was given and what to do. The command line prints it
without a traceback and exits with code 2; in Python it is an ordinary exception.
"""

import reprlib

QUOTE = reprlib.Repr()
QUOTE.maxstring = QUOTE.maxother = 120
QUOTE.maxlist = QUOTE.maxdict = QUOTE.maxtuple = 4
QUOTE.maxlevel = 2


def quote(value: object) -> str:
    """The repr of a value, shortened, without control characters that a terminal would interpret."""
    return QUOTE.repr(value)


class HeedfulError(Exception):
    """Base of all errors that the user can correct."""


class SettingError(HeedfulError):
    """A setting that does not exist, has the wrong type, is out of range or contradicts another."""


class DataError(HeedfulError):
    """A corpus that is missing, unreadable, misaligned, empty or not text."""


class FolderError(HeedfulError):
    """A model folder or checkpoint that is missing, damaged, hostile or cannot be written."""


class TrainingError(HeedfulError):
    """A run that cannot continue, for example because its loss is NaN."""

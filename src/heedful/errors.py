"""What a user can do wrong, as one small tree of exceptions.

Every message is one sentence that says what happened, where, what was given and what to do. The command line prints it
without a traceback and ends with exit code 2; in Python it is an ordinary exception.
"""

import reprlib

QUOTE = reprlib.Repr()
QUOTE.maxstring = QUOTE.maxother = 120
QUOTE.maxlist = QUOTE.maxdict = QUOTE.maxtuple = 4
QUOTE.maxlevel = 2


def quote(value: object) -> str:
    """What was given, quoted and cut, so that it can neither fill nor paint a terminal."""
    return QUOTE.repr(value)


class HeedfulError(Exception):
    """Something that the user can put right."""


class SettingError(HeedfulError):
    """A setting that does not exist, has the wrong type, is out of range or contradicts another."""


class DataError(HeedfulError):
    """A corpus that is missing, unreadable, misaligned, empty or not text."""


class FolderError(HeedfulError):
    """A model folder or checkpoint that is missing, damaged, hostile or cannot be written."""


class TrainingError(HeedfulError):
    """A run that cannot go on, such as one whose loss is no longer a number."""

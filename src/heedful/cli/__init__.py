"""The command line: one file a command, each importing what is slow only when it is called, so `--help` is instant."""

from __future__ import annotations

import errno
import gc
import os
import sys
from pathlib import Path

from heedful.config import renamed
from heedful.errors import HeedfulError, SettingError, quote

NEW_OBJECTS = 10_000  # before rubbish is looked for: importing torch makes many and keeps all, and is a tenth faster so


def main() -> None:
    """Run one command; what a user can put right is one sentence on stderr and exit code 2."""
    gc.set_threshold(NEW_OBJECTS)
    import typer

    from heedful.cli.commands import app
    from heedful.cli.streams import abandon_stdout
    from heedful.storage.atomic import remedy

    if sys.stdin is None:  # closed: what is opened next would be taken for it
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:  # it was closed by whoever started us
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    try:
        _refuse_old_names(sys.argv[1:])
        code = app(prog_name="heedful", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except HeedfulError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough
        abandon_stdout()
        sys.exit(0)
    except OSError as error:  # a place that cannot be reached, or a disk that is full
        if not error.filename and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = quote(str(error.filename)) if error.filename else "what was to be written"
        advice = remedy(Path(str(error.filename or "")), error)
        print(f"error: {where}: {error.strerror or error}; {advice}.", file=sys.stderr)
        if not error.filename:  # it may be standard output
            abandon_stdout()
        sys.exit(2)
    except Exception as error:  # wrong options, which typer can explain; anything else is a bug and keeps its traceback
        if not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(2)


def _refuse_old_names(words: list[str]) -> None:
    """An option or command under the name that it had before says its name now."""
    if words and (now := renamed.COMMANDS.get(words[0])):
        raise SettingError(f"`heedful {words[0]}` is called `heedful {now}` now.")
    for word in words:
        if now := renamed.OPTIONS.get(word.partition("=")[0]):
            raise SettingError(f"{word.partition('=')[0]} is called {now} now.")

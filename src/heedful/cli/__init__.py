"""The command line: one file per command; slow imports happen inside the commands, so `--help` is instant."""

from __future__ import annotations

import errno
import gc
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from heedful.cli import renamed
from heedful.errors import HeedfulError, SettingError, quote

GC_THRESHOLD = 10_000  # allocations between garbage collections: importing torch takes a tenth less time than with 700
OTHER_RANK_SECONDS = 5.0  # before a rank other than the main one reports an error


def main() -> None:
    """Run one command. Ctrl-C exits with 130 and without a traceback, also while modules are imported."""
    try:
        _run_command()
    except KeyboardInterrupt:
        sys.exit(130)


def _run_command() -> None:
    """An error that the user can correct is one sentence on stderr and exit code 2."""
    gc.set_threshold(GC_THRESHOLD)
    import typer

    from heedful.cli.commands import build_app
    from heedful.cli.streams import abandon, flush_stderr
    from heedful.packages import explain_missing
    from heedful.storage.atomic import remedy

    if sys.stdin is None:  # closed: the next file opened would get its descriptor
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:  # closed by the calling process
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    try:
        _refuse_old_names(sys.argv[1:])
        with explain_missing(" ".join(["heedful", *sys.argv[1:2]])):
            code = build_app(sys.argv[1:])(prog_name="heedful", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except HeedfulError as error:
        _wait_for_main_rank()
        _fail(partial(print, f"error: {error}", file=sys.stderr))
    except typer.Abort as error:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt from error
    except (BrokenPipeError, SystemExit) as error:
        # The reader of standard output has closed it (`| head`); typer and rich turn that into exit code 1.
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        abandon(sys.stdout)
        sys.exit(0)
    except OSError as error:  # a path that cannot be opened, or a full disk
        if not error.filename and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = quote(str(error.filename)) if error.filename else "the output"
        advice = remedy(Path(str(error.filename or "")), error)
        if not error.filename:  # the failing file may be standard output
            abandon(sys.stdout)
        _fail(partial(print, f"error: {where}: {error.strerror or error}; {advice}.", file=sys.stderr))
    except Exception as error:  # typer shows usage errors itself; anything else is a bug and keeps its traceback
        if not hasattr(error, "show"):
            raise
        _fail(error.show)
    finally:
        flush_stderr()


def _wait_for_main_rank() -> None:
    """Under torchrun: if the main rank has the same error it reports it, and torchrun ends the other ranks meanwhile.

    A rank that is still there after this time has an error of its own. A process group of one has no other rank.
    """
    if os.environ.get("RANK", "0") != "0" and os.environ.get("WORLD_SIZE", "1") != "1":
        time.sleep(OTHER_RANK_SECONDS)


def _fail(show: Callable[[], None]) -> NoReturn:
    """Show an error and exit with code 2, also if the reader of standard error has closed it (`2>&1 | head -1`)."""
    from heedful.cli.streams import abandon

    try:
        show()
    except BrokenPipeError:
        abandon(sys.stderr)
    sys.exit(2)


def _refuse_old_names(words: list[str]) -> None:
    """Refuse options and commands under their old names, with an error that gives the new name."""
    if words and (new_name := renamed.COMMANDS.get(words[0])):
        raise SettingError(f"`heedful {words[0]}` is now called `heedful {new_name}`.")
    for word in words:
        option = word.partition("=")[0]
        if new_name := renamed.OPTIONS.get(option):
            raise SettingError(f"{option} is now called {new_name}.")

"""The command line: one file a command, each importing what is slow only when it is called, so `--help` is instant."""

from __future__ import annotations

import sys

from heedful.errors import HeedfulError


def main() -> None:
    """Run one command; what a user can put right is one sentence on stderr and exit code 2."""
    import typer

    from heedful.cli.app import app
    from heedful.cli.streams import abandon_stdout

    try:
        sys.exit(app(prog_name="heedful", standalone_mode=False))
    except HeedfulError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough
        abandon_stdout()
        sys.exit(0)
    except Exception as error:  # wrong options, which typer can explain; anything else is a bug and keeps its traceback
        if not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(2)

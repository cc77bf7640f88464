"""Old name -> new name of options and commands that were renamed before the first release; see config.renamed."""

from __future__ import annotations

OPTIONS = {
    "--alpha": "--length-penalty",
    "--labelled": "--labeled",
    "--no-normalise": "--no-normalize",
    "--normalise": "--normalize",
    "--valid-labelled": "--valid-labeled",
}

COMMANDS = {"fill": "fill-mask"}

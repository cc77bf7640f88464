"""docs/glossary.md: every setting, command and file of the table exists."""

from __future__ import annotations

import re
from pathlib import Path

from heedful.config import settings_template

ROOT = Path(__file__).parent.parent
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]


def all_settings() -> set[str]:
    """Names as `section.key`, read from what `heedful settings` prints."""
    names, section = set(), ""
    for line in settings_template().splitlines():
        if opened := re.fullmatch(r"\[(\w+)\]", line):
            section = f"{opened[1]}."
        elif key := re.match(r"# (\w+) =", line):
            names.add(section + key[1])
    return names


def test_settings_and_commands_of_the_glossary_exist() -> None:
    settings = all_settings()
    commands = {path.stem.replace("_", "-") for path in (ROOT / "src/heedful/cli").glob("*.py")}
    assert len(ROWS) > 30
    for row in ROWS:
        for name in re.findall(r"`([^`]+)`", row[2]):
            known = name.removeprefix("heedful ") in commands if name.startswith("heedful ") else name in settings
            assert known, f"{row[0]} names {name}"


def test_files_of_the_glossary_exist() -> None:
    for row in ROWS:
        for name in re.findall(r"`([^`]+)`", row[3]):
            assert (ROOT / "src" / "heedful" / name).is_file(), f"{row[0]} names {name}"

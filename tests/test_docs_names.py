"""Names in the docs: every setting, command and file that a page mentions exists, and no page uses an old name."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from heedful.cli import renamed
from heedful.config import settings_template

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "benchmarks" / "results").glob("*.md"))
PACKAGES = sorted(path.name for path in (ROOT / "src" / "heedful").iterdir() if (path / "__init__.py").exists())
FILE_ENDINGS = {
    "en",
    "de",
    "tsv",
    "out",
    "safetensors",
    "npz",
    "txt",
    "h",
    "cpp",
    "bin",
    "conll",
}  # train.en is a file, not a setting
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_and_paths_that_a_page_names_exist(page: Path) -> None:
    text, settings = page.read_text(encoding="utf-8"), all_settings()
    for name in re.findall(r"(?<![\w./-])((?:data|text|model|train|search)\.\w+)(?![\w(])", text):
        assert name in settings or name.split(".")[1] in FILE_ENDINGS, f"{name} is no setting"
    for name in re.findall(r"(?:benchmarks|src|tests|tools|deploy|docs/images)/[\w/.-]+\.\w+", text):
        assert (ROOT / name).exists(), f"{name} does not exist"
    for name in re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w/]+\.py)`", text):
        assert (ROOT / "src" / "heedful" / name).exists(), f"{name} does not exist"
    for option in renamed.OPTIONS:
        assert not re.search(rf"{option}\b", text), f"{option} is an old name"


def test_pages_name_no_unknown_persons() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        result = re.findall(
            r"\b(?:whoever|somebody|nobody|everybody)\b", page.read_text(encoding="utf-8"), re.IGNORECASE
        )
        assert not result, f"{page.name}: {result}"


def test_names_of_the_api_page_exist() -> None:
    names = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) > 10
    for name in names:
        module, _, member = name.rpartition(".")
        assert not module or member in dir(import_module(module)) or import_module(name), name

"""The words of the README and the docs are true: commands run, links lead somewhere, generated pages are fresh."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.config import settings_template
from tests.cli.conftest import Call
from tests.conftest import TINY

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_of_settings_is_what_the_program_prints() -> None:
    assert blocks(ROOT / "docs" / "settings.md", "toml") == [settings_template()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_make_targets_of_the_readme_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"make ([a-z]+)", " ".join(blocks(ROOT / "README.md", "sh")))
    assert named
    assert set(named) <= set(targets)


@pytest.fixture(scope="module")
def workplace(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README speaks of."""
    folder = tmp_path_factory.mktemp("readme")
    for name, original in (("train", "train"), ("val", "valid"), ("test", "valid")):
        for language in ("en", "de"):
            (folder / f"{name}.{language}").write_bytes((corpus / f"{original}.{language}").read_bytes())
    (folder / "in.en").write_text("The dog sleeps.\nWhere is the station?\n", encoding="utf-8")
    return folder


def test_the_commands_of_the_readme_run(workplace: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as it stands, but for a size and a length that a test can afford."""
    monkeypatch.chdir(workplace)
    lines = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("heedful ")]
    assert len(commands) >= 8
    for command in commands:
        words = [word for word in shlex.split(command)[1:] if word not in ("30m", "--time")]
        if words[0] == "serve":  # it runs until it is told to end: tests/serve/test_process.py does both
            continue
        redirected = words.index("<") if "<" in words else len(words)
        if redirected < len(words):
            words = [*words[:redirected], "-i", words[redirected + 1]]
        if words[0] == "train" and "--resume" not in words:
            words += [word for word in (*TINY, "train.max_updates=2") if word.split("=")[0] not in command]
            words = [word if not word.startswith("train.max_updates") else "train.max_updates=2" for word in words]
        done = call(*words)
        assert done.code == 0, f"{command}: {done.err}"


def test_the_python_of_the_readme_runs(workplace: Path) -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=workplace, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[")


def test_every_command_named_in_the_docs_exists(call: Call) -> None:
    known = call("--help").out
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        inline, fenced = re.findall(r"`([^`\n]+)`", text), re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        code = "\n".join([*inline, *fenced, *re.findall(r"^ {4}(.*)", text, re.MULTILINE)])
        for name in re.findall(r"^(?:\$ )?heedful ([a-z-]+)", code, re.MULTILINE):
            assert re.search(rf"^  {name} ", known, re.MULTILINE), f"{page.name} names heedful {name}"

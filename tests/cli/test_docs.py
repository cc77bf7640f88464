"""The words of the README and the docs are true: commands run, links lead somewhere, generated pages are fresh."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.config import settings_template
from tests.cli.conftest import Call
from tests.conftest import TINY

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "benchmarks" / "results").glob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_of_settings_is_what_the_program_prints() -> None:
    assert blocks(ROOT / "docs" / "settings.md", "toml") == [settings_template()]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_make_targets_of_the_readme_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"make ([a-z]+)", " ".join(blocks(ROOT / "README.md", "sh")))
    assert named
    assert set(named) <= set(targets)


@pytest.fixture(scope="module")
def workplace(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README and the tutorials name."""
    folder = tmp_path_factory.mktemp("readme")
    for name, original in (("train", "train"), ("val", "valid"), ("valid", "valid"), ("test", "valid")):
        for language in ("en", "de"):
            (folder / f"{name}.{language}").write_bytes((corpus / f"{original}.{language}").read_bytes())
    (folder / "in.en").write_text("The dog sleeps.\nWhere is the station?\n", encoding="utf-8")
    (folder / "book.txt").write_bytes((corpus / "train.en").read_bytes())
    return folder


def run_commands(page: Path, call: Call) -> int:
    """Run the heedful commands of a page as they stand, with models of a size that a test can afford."""
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    commands = [line for line in lines if line.startswith("heedful ")]
    for command in commands:
        words = [word for word in shlex.split(command)[1:] if word not in ("30m", "10m", "--time")]
        if words[0] == "serve":  # runs until it is stopped: tests/serve/test_process.py starts and stops it
            continue
        for sign, option in (("<", "-i"), (">", "-o")):
            words = [option if word == sign else word for word in words]
        if words[0] == "train" and "--resume" not in words:
            small = [*TINY, "train.max_updates=2", "train.block_size=16", "train.sample=4"]
            words += [word for word in small if word.split("=")[0] not in command]
            words = [word if not word.startswith("train.max_updates") else "train.max_updates=2" for word in words]
        done = call(*words)
        assert done.code == 0, f"{command}: {done.err}"
    return len(commands)


def run_python(page: Path, folder: Path) -> str:
    """Run the only block of Python of a page in a process of its own."""
    (code,) = blocks(page, "python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_and_the_python_of_the_readme_run(
    workplace: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    assert run_commands(ROOT / "README.md", call) >= 8
    assert run_python(ROOT / "README.md", workplace).startswith("[")
    (code,) = blocks(ROOT / "docs" / "translating.md", "python")
    exec(compile(code, "translating.md", "exec"), {})


def test_the_methods_of_the_page_on_bert_exist() -> None:
    from heedful.inference.encoder import Encoder

    (code,) = blocks(ROOT / "docs" / "bert.md", "python")
    for name in re.findall(r"(?:bert|\))\.(\w+)\(", code):
        assert hasattr(Encoder, name), name


def test_the_tutorial_of_a_translator_runs(workplace: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    assert run_commands(ROOT / "docs" / "tutorial-translator.md", call) >= 7


def test_the_tutorial_of_a_gpt_runs(
    workplace: Path, call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "tutorial-gpt.md"
    monkeypatch.chdir(workplace)
    assert run_commands(page, call) >= 5
    for name in ("tutorial-gpt.md", "gpt.md"):
        (code,) = blocks(ROOT / "docs" / name, "python")
        exec(compile(code, name, "exec"), {})
        assert capsys.readouterr().out


def test_the_command_reference_is_fresh() -> None:
    script = runpy.run_path(str(ROOT / "tools" / "command_reference.py"))
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == script["command_reference"](), (
        "run: python tools/command_reference.py > docs/commands.md"
    )


def test_every_command_named_in_the_docs_exists(call: Call) -> None:
    known = call("--help").out
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        inline, fenced = re.findall(r"`([^`\n]+)`", text), re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        code = "\n".join([*inline, *fenced, *re.findall(r"^ {4}(.*)", text, re.MULTILINE)])
        for name in re.findall(r"^(?:\$ )?heedful ([a-z-]+)", code, re.MULTILINE):
            assert re.search(rf"^  {name} ", known, re.MULTILINE), f"{page.name} names heedful {name}"

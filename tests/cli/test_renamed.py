"""Names from before the first release: each is refused with its new name, which exists; the docs use new names only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from heedful.cli import renamed as renamed_options
from heedful.cli.commands import build_app
from heedful.config import RunConfig, load_config, renamed
from heedful.config.loading import SECTIONS
from heedful.errors import SettingError
from tests.cli.conftest import Call

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def settings() -> set[str]:
    sections = {name: getattr(RunConfig(), name) for name in SECTIONS}
    keys = {f"{name}.{key}" for name, section in sections.items() for key in type(section).model_fields}
    return keys | set(RunConfig.model_fields) - set(SECTIONS)


def command_options() -> dict[str, set[str]]:
    """The options of every command."""
    root = typer.main.get_command(build_app())
    assert hasattr(root, "commands")
    return {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in root.commands.items()
    }


@pytest.mark.parametrize(("old", "new"), renamed.SETTINGS.items())
def test_an_old_setting_is_refused_with_its_new_name(old: str, new: str) -> None:
    assert new in settings() and old not in settings()
    with pytest.raises(SettingError) as error:
        load_config(None, [f"{old}=1"])
    assert f"{old} is now called {new}" in str(error.value)


@pytest.mark.parametrize(("setting", "old", "new"), [(*key, new) for key, new in renamed.VALUES.items()])
def test_an_old_value_is_refused_with_its_new_name(setting: str, old: str, new: str) -> None:
    load_config(None, [f"{setting}={new}"])
    with pytest.raises(SettingError) as error:
        load_config(None, [f"{setting}={old}"])
    assert f"{setting}={old} is now called {setting}={new}" in str(error.value)


@pytest.mark.parametrize(("old", "new"), renamed_options.OPTIONS.items())
def test_an_old_option_is_refused_with_its_new_name(call: Call, old: str, new: str) -> None:
    options = command_options()
    assert not any(old in known for known in options.values())
    command = next(name for name, known in options.items() if new in known)
    for argument in (old, f"{old}=1"):
        done = call(command, argument)
        assert (done.code, done.err) == (2, f"error: {old} is now called {new}.\n")


@pytest.mark.parametrize(("old", "new"), renamed_options.COMMANDS.items())
def test_an_old_command_is_refused_with_its_new_name(call: Call, old: str, new: str) -> None:
    assert new in command_options() and old not in command_options()
    done = call(old, "model")
    assert (done.code, done.err) == (2, f"error: `heedful {old}` is now called `heedful {new}`.\n")


def test_the_docs_use_new_names_only() -> None:
    old = [rf"(?<![\w.-]){re.escape(name)}(?![\w-])" for name in (*renamed.SETTINGS, *renamed_options.OPTIONS)]
    old += [rf"{re.escape(setting)}\s*=\s*\"?{value}\b" for setting, value in renamed.VALUES]
    old += [rf"\bheedful {command}(?![\w-])" for command in renamed_options.COMMANDS]
    pattern = re.compile("|".join(old))
    result = [
        f"{page.relative_to(ROOT)}:{number}: {match.group()}"
        for page in PAGES
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        for match in pattern.finditer(line)
    ]
    assert not result


def test_the_settings_page_lists_every_setting_once() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/settings.md").read_text(encoding="utf-8"), re.S)
    names, section = [], ""
    for line in block.splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = f"{header[1]}."
        elif setting := re.fullmatch(r"# (\w+) =.*", line):
            names.append(section + setting[1])
    assert sorted(names) == sorted(settings())

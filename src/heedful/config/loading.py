"""TOML file, command-line overrides and preset -> one validated `RunConfig`.

`data_settings`, `model_config`, `train_settings` and `search_settings` define the settings; here they are put together,
checked, and printed as a template. Presets fill in what the user did not set. Knows no files of a corpus and no torch.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from heedful.config import renamed
from heedful.config.data_settings import DataSettings, TextSettings
from heedful.config.model_config import ModelConfig
from heedful.config.presets import Family, Preset, preset
from heedful.config.requirements import WORDS, requirement
from heedful.config.search_settings import SearchSettings
from heedful.config.section import Section
from heedful.config.train_settings import TrainSettings
from heedful.errors import SettingError, quote

TaskName = Literal[
    "translation",
    "summarization",
    "language-model",
    "masked-lm",
    "denoising",
    "speech",
    "classification",
    "regression",
    "tagging",
    "question-answering",
    "similarity",
]
S = TypeVar("S", bound=Section)
MIN_SIMILARITY = 0.6  # of a misspelled key to the one that is suggested


class RunConfig(Section):
    """One training run."""

    preset: Preset | None = Field(
        None, description="tiny, small, base or big; chosen by the size of the corpus and train.time if not set."
    )
    task: TaskName | None = Field(
        None,
        description="translation, summarization, speech, language-model (a GPT), masked-lm (a BERT), denoising (an"
        " encoder-decoder to start from), classification, regression, tagging, question-answering or similarity;"
        " without it, sentence pairs train a translator and labeled text a classifier, and plain text requires it.",
    )
    data: DataSettings = Field(default_factory=DataSettings)
    text: TextSettings = Field(default_factory=TextSettings)
    model: ModelConfig = Field(default_factory=ModelConfig)
    train: TrainSettings = Field(default_factory=TrainSettings)
    search: SearchSettings = Field(default_factory=SearchSettings)

    def with_preset(self, name: Preset, family: Family = "encoder-decoder") -> RunConfig:
        """Fill in from the preset every setting that the user did not set."""
        return self.with_defaults(preset(family, name, self.model.architecture), preset=name)

    def with_defaults(self, sections: Mapping[str, Mapping[str, Any]], **filled: Any) -> RunConfig:
        """Fill in every setting that the user did not set."""
        for section in SECTIONS:
            current = getattr(self, section)
            filled[section] = dict(sections.get(section, {})) | current.model_dump(include=current.model_fields_set)
        if self.task is not None:
            filled["task"] = self.task
        return validate_section(RunConfig, filled)

    def replace(self, **sections: Mapping[str, Any]) -> RunConfig:
        """The same run with some settings changed."""
        current = self.model_dump(exclude_unset=True)
        changed = {name: current.get(name, {}) | dict(new) for name, new in sections.items()}
        return validate_section(RunConfig, current | changed)


SECTIONS = [name for name in RunConfig.model_fields if name not in ("preset", "task")]


def load_config(path: Path | None, overrides: Iterable[str] = (), **sections: Mapping[str, Any]) -> RunConfig:
    """Load a TOML file, update it with `sections`, then with `section.key=value` overrides, and validate the result."""
    tree = _read_toml(path) if path else {}
    for name, values in sections.items():
        if not isinstance(tree.setdefault(name, {}), dict):
            raise SettingError(f"{path}: {name} is a section, not a value; write [{name}] above its settings.")
        tree[name].update(values)
    for override in overrides:
        _override(tree, override)
    return validate_section(RunConfig, tree, draft=True)


def validate_section(section: type[S], values: Mapping[str, Any], where: str = "", draft: bool = False) -> S:
    """Validate the values of one section; those of a draft one by one, without the checks across settings."""
    try:
        return section.model_validate(values, context="draft" if draft else "")
    except ValidationError as error:
        raise SettingError(" ".join(_sentence(section, problem, where) for problem in error.errors()[:3])) from None


def settings_template() -> str:
    """A TOML file with every setting, commented out, at its default."""
    lines = ["# Settings of a heedful run. Uncomment what you want to change.", ""]
    lines += _template_lines(RunConfig, skip=set(SECTIONS))
    for name in SECTIONS:
        section = RunConfig.model_fields[name].annotation
        assert isinstance(section, type) and issubclass(section, Section)
        lines += ["", f"[{name}]", f"# {(section.__doc__ or '').splitlines()[0]}"]
        lines += _template_lines(section, skip=set())
    return "\n".join(lines) + "\n"


def _template_lines(section: type[Section], skip: set[str]) -> list[str]:
    lines = []
    for name, field in section.model_fields.items():
        if name in skip:
            continue
        default = "" if field.default is None else _toml(field.default)
        lines += ["", f"# {field.description}", f"# {name} = {default}".rstrip()]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SettingError(
            f"{path} does not exist; give the TOML file of a run, or a setting as section.key=value."
        ) from None
    except IsADirectoryError:
        raise SettingError(f"{path} cannot be read: it is a folder; give the TOML file of a run.") from None
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SettingError(f"{path} is not UTF-8 text; a run is described by a TOML file.") from None
    except ValueError as error:
        raise SettingError(f"{path} is not valid TOML: {error}.") from None


def _override(tree: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name.strip():
        raise SettingError(f"{quote(override)} is not a setting; write section.key=value, such as train.seed=7.")
    value = _value(text)
    section, dot, key = name.strip().partition(".")
    if not isinstance(value, str | list) and "Path" in str(_settings(RunConfig).get(f"{section}.{key}")):
        value = text  # a file may be called 2024
    if not dot and section in SECTIONS:
        raise SettingError(f"{quote(override)} sets a whole section; write {section}.key=value.")
    if dot:
        settings = tree.setdefault(section, {})
        if not isinstance(settings, dict):
            raise SettingError(
                f"{quote(override)}: {section} is a section, not a value, and the file sets it to {quote(settings)}."
            )
        settings[key] = value
    else:
        tree[section] = value


def _value(text: str) -> Any:
    """A TOML value, or the text itself if it is not valid TOML."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # not TOML, or a number of thousands of digits
        return text


def _sentence(kind: type[Section], problem: Any, where: str) -> str:
    loc = [str(part) for part in problem["loc"] if not str(part).startswith("function-")]
    name = quote(".".join(([where] if where else []) + loc[:2]))[1:-1]
    if problem["type"] == "extra_forbidden":
        if now := renamed.SETTINGS.get(".".join(loc[:2])):
            return f"{name} is now called {now}; `heedful settings` describes it."
        near = _near(kind, loc[:2])
        hint = f"did you mean {near}?" if near else "`heedful settings` lists them all."
        return f"unknown key {name}; {hint}"
    if now := renamed.VALUES.get((".".join(loc[:2]), str(problem["input"]))):
        return f"{name}={problem['input']} is now called {name}={now}."
    if problem["type"] == "value_error" and not isinstance(problem["input"], str):
        message = str(problem["msg"]).removeprefix("Value error, ")
        return f"{name + ': ' if name else ''}{message}."
    separator = ";" if problem["type"] in WORDS else ":"
    return f"{name} is {quote(problem['input'])}{separator} {requirement(problem)}."


def _near(kind: type[Section], loc: list[str]) -> str | None:
    """The most similar setting: the same key in another section, or else a close match of the name."""
    names = list(_settings(kind))
    same = [name for name in names if name.rpartition(".")[2] == loc[-1]]
    matcher = difflib.SequenceMatcher(b=loc[-1])

    def is_alike(name: str) -> bool:
        matcher.set_seq1(name.rpartition(".")[2])
        return name.count(".") == len(loc) - 1 and matcher.ratio() >= MIN_SIMILARITY

    return next(iter(same or difflib.get_close_matches(".".join(loc), filter(is_alike, names), 1, cutoff=0)), None)


def _settings(kind: type[Section]) -> dict[str, Any]:
    """The type of every setting and section, by its full name."""
    types: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        types[name] = inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            types |= {f"{name}.{key}": inner_field.annotation for key, inner_field in inner.model_fields.items()}
    return types

"""Reads the config.json of a foreign folder; every value is checked.

Foreign text in error messages is quoted and shortened by `quote`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heedful.errors import FolderError, quote


class ForeignConfig:
    """The config.json of another toolkit, with checked access to its values."""

    def __init__(self, values: dict[str, Any], where: Path) -> None:
        self.values, self.where = values, where

    def has(self, name: str) -> bool:
        """Whether a setting has a value; null is none."""
        return self.values.get(name) is not None

    def integer(self, name: str, default: int | None = None, least: int = 1, most: int = 10_000_000) -> int:
        value = self._get(name, default)
        if isinstance(value, list) and len(value) == 1:  # ids of eos may be a list of one
            value = value[0]
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"a whole number from {least:,} to {most:,}")
        return value

    def number(self, name: str, default: float, least: float = 0.0, below: float = 1.0) -> float:
        value = self._get(name, default)
        if type(value) not in (int, float) or not least <= value < below:
            raise self.wrong(name, f"a number from {least:g} to below {below:g}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def choice(self, name: str, default: str, choices: dict[str, str]) -> str:
        """Map a foreign value to heedful's value."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, f"one of {', '.join(choices)}")
        return choices[value]

    def only(self, **values: object) -> None:
        """Refuse settings with other values: heedful cannot compute them."""
        for name, value in values.items():
            if self._get(name, value) != value:
                raise FolderError(
                    f"{self.where}: {name} is {quote(self.values[name])}, but heedful only supports {value!r}."
                )

    def same(self, first: str, second: str, default: int | None = None) -> None:
        """Refuse a model with different values for two settings that are one in heedful."""
        one, other = self._get(first, default), self._get(second, default)
        if one is not None and other is not None and one != other:
            raise FolderError(
                f"{self.where}: {second} ({quote(other)}) differs from {first} ({quote(one)}), but heedful has one "
                "setting for both."
            )

    def with_aliases(self, aliases: dict[str, str]) -> ForeignConfig:
        """The same settings, with aliases resolved."""
        for alias, name in aliases.items():
            self.same(name, alias)
        known = {name: self.values[alias] for alias, name in aliases.items() if alias in self.values}
        return ForeignConfig(known | self.values, self.where)

    def wrong(self, name: str, expected: str) -> FolderError:
        return FolderError(f"{self.where}: {name} is {quote(self.values.get(name))}; it must be {expected}.")

    def _get(self, name: str, default: object) -> Any:
        value = self.values.get(name)
        return default if value is None else value

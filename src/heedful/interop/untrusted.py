"""The config.json of a foreign folder: only values that make sense.

Everything foreign that ends up in a message is quoted and cut by `shown`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heedful.errors import FolderError, quote


class ForeignConfig:
    """Somebody's config.json, asked for one value at a time."""

    def __init__(self, values: dict[str, Any], where: Path) -> None:
        self.values, self.where = values, where

    def integer(self, name: str, default: int | None = None, least: int = 1, most: int = 10_000_000) -> int:
        value = self._get(name, default)
        if isinstance(value, list) and len(value) == 1:  # several ids of eos are a list, even if there is one
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
        """The value that stands for somebody's name of it."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, f"one of {', '.join(choices)}")
        return choices[value]

    def only(self, **values: object) -> None:
        """Refuse settings that change what the model computes in a way that heedful has no counterpart for."""
        for name, value in values.items():
            if self._get(name, value) != value:
                raise FolderError(
                    f"{self.where}: {name} is {quote(self.values[name])}, and heedful can only open models where it "
                    f"is {value!r}."
                )

    def same(self, first: str, second: str, default: int | None = None) -> None:
        """Refuse a model that has two values where heedful has one."""
        one, other = self._get(first, default), self._get(second, default)
        if one is not None and other is not None and one != other:
            raise FolderError(
                f"{self.where}: {second} ({quote(other)}) is not {first} ({quote(one)}), and heedful has one number "
                "for both."
            )

    def with_aliases(self, aliases: dict[str, str]) -> ForeignConfig:
        """The same settings where some may go by another name."""
        for alias, name in aliases.items():
            self.same(name, alias)
        known = {name: self.values[alias] for alias, name in aliases.items() if alias in self.values}
        return ForeignConfig(known | self.values, self.where)

    def wrong(self, name: str, wanted: str) -> FolderError:
        return FolderError(f"{self.where}: {name} is {quote(self.values.get(name))}, and it must be {wanted}.")

    def _get(self, name: str, default: object) -> Any:
        value = self.values.get(name)
        return default if value is None else value

"""What an operator decides: where to listen, whom to let in, how much of it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from heedful.errors import SettingError
from heedful.serve.languages import LanguagePair, pair_of

KEYS_VARIABLE = "HEEDFUL_API_KEYS"


@dataclass(frozen=True)
class Limits:
    """What one request, one client and all of them together may take."""

    body: int = 1 << 20  # bytes
    headers: int = 16 << 10  # bytes
    characters: int = 20_000  # of all texts of a request
    texts: int = 128  # of a request
    seconds: float = 60.0  # from the last byte of a request to its answer
    receiving: float = 20.0  # seconds for the body to come in
    connections: int = 128  # of one address with a request in progress; 0 for any number
    queue: int = 512  # sentences of one model that are accepted and not done


@dataclass(frozen=True)
class ServedFolder:
    """A model to serve: its name, its folder, and what it translates, if it does."""

    name: str
    folder: Path
    pair: LanguagePair | None

    @classmethod
    def parse(cls, text: str) -> ServedFolder:
        """`runs/x`, or with a name `en-de=runs/x`; the name or the folder says which languages it translates."""
        name, equals, path = text.rpartition("=")
        if equals and not re.fullmatch(r"[\w.+-]{1,64}", name):
            raise SettingError(
                f"{name!r} is no name for a model; use letters, digits, -, _, + and . as in en-de={path}."
            )
        folder = Path(path)
        return cls(name or folder.resolve().name, folder, pair_of(name, folder))


@dataclass(frozen=True)
class ServerSettings:
    """How to serve."""

    models: tuple[ServedFolder, ...]
    host: str = "127.0.0.1"
    port: int = 5000
    limits: Limits = field(default_factory=Limits)
    keys: frozenset[str] = frozenset()
    cors: tuple[str, ...] = ()
    drain: float = 30.0  # seconds from SIGTERM to the end
    threads: int = 1
    precision: str = "float32"
    shortlist: bool = False  # of every translator

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                raise SettingError(f"two models are called {name}; give them names, as in one=runs/x two=runs/y.")
        for origin in self.cors:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise SettingError(f"--cors is {origin!r}; give an origin such as https://example.org, or *.")


def read_keys(path: Path | None) -> frozenset[str]:
    """API keys from a file, one a line, and from the environment, between commas."""
    lines = os.environ.get(KEYS_VARIABLE, "").split(",")
    if path is not None:
        try:
            lines += path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingError(f"the keys in {path} cannot be read: {reason}.") from None
    keys = frozenset(line.strip() for line in lines if line.strip() and not line.strip().startswith("#"))
    if path is not None and not keys:
        raise SettingError(f"{path} holds no key; write one a line, or leave out --keys to let everybody in.")
    if short := [key for key in keys if len(key) < 8]:
        raise SettingError(
            f"a key has {len(short[0])} characters; use 8 or more, such as `openssl rand -hex 16` gives."
        )
    return keys

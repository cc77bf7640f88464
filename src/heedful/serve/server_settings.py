"""Settings of the server: models, address, API keys, CORS, limits."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from heedful.errors import SettingError
from heedful.formats.termbase import Term
from heedful.serve.languages import LanguagePair, guess_language_pair

KEYS_VARIABLE = "HEEDFUL_API_KEYS"


@dataclass(frozen=True)
class Limits:
    """Limits of a request, of a client address, of a model's queue and of the shutdown."""

    queue: int = 512  # sentences of one model that are accepted and not finished
    max_characters: int = 20_000  # of all texts of a request
    max_texts: int = 128  # of a request
    max_body: int = 1 << 20  # bytes
    max_headers: int = 16 << 10  # bytes
    max_time: float = 60.0  # seconds from the last byte of a request to its answer
    max_receive: float = 20.0  # seconds to receive the body
    max_connections: int = 128  # concurrent requests of one client address; 0 for no limit
    max_audio: int = 25 << 20  # bytes of a request with a recording
    max_seconds: float = 600.0  # of a recording
    drain: float = 30.0  # maximum seconds from SIGTERM to the end


@dataclass(frozen=True)
class ServedFolder:
    """A model to serve: its name, its folder, and its language pair if it is a translator."""

    name: str
    folder: Path
    pair: LanguagePair | None

    @classmethod
    def parse(cls, text: str) -> ServedFolder:
        """Parse `runs/x`, or `en-de=runs/x` with a name; the name or the folder tells the language pair."""
        name, equals, path = text.rpartition("=")
        if equals and not re.fullmatch(r"[\w.+-]{1,64}", name):
            raise SettingError(
                f"{name!r} is not a valid model name; use letters, digits, -, _, + and . as in en-de={path}."
            )
        folder = Path(path)
        return cls(name or folder.resolve().name, folder, guess_language_pair(name, folder))


@dataclass(frozen=True)
class ServerSettings:
    """All settings of the server."""

    models: tuple[ServedFolder, ...]
    host: str = "127.0.0.1"
    port: int = 5000
    limits: Limits = field(default_factory=Limits)
    keys: frozenset[str] = frozenset()
    cors: tuple[str, ...] = ()
    threads: int = 1  # of each model
    precision: str = "float32"
    shortlist: bool = False  # for every translator
    glossary: tuple[Term, ...] = ()  # for every translation; terms of a request come first

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                raise SettingError(f"two models are named {name}; set other names, as in one=runs/x two=runs/y.")
        for origin in self.cors:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise SettingError(f"--cors is {origin!r}; give an origin such as https://example.org, or *.")


def read_keys(path: Path | None) -> frozenset[str]:
    """API keys from a file (one per line) and from the environment variable (separated by commas)."""
    lines = os.environ.get(KEYS_VARIABLE, "").split(",")
    if path is not None:
        try:
            lines += path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingError(f"the API keys in {path} cannot be read: {reason}.") from None
    keys = frozenset(line.strip() for line in lines if line.strip() and not line.strip().startswith("#"))
    if path is not None and not keys:
        raise SettingError(f"{path} contains no API key; write one per line, or leave out --keys to need none.")
    if short := [key for key in keys if len(key) < 8]:
        raise SettingError(
            f"an API key has {len(short[0])} characters; use 8 or more, for example from `openssl rand -hex 16`."
        )
    return keys

"""Translated files that wait for their download: in memory, for some minutes, and not more than some megabytes."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

KEPT_SECONDS = 600.0
KEPT_BYTES = 64 << 20


@dataclass
class FileStore:
    """Files by a name that cannot be guessed; the oldest go first."""

    clock: Callable[[], float] = time.monotonic
    files: dict[str, tuple[float, bytes]] = field(default_factory=dict)

    def add(self, name: str, data: bytes) -> str:
        """Keep a file; its new name ends with the old one, without characters that a URL or a header has to quote."""
        stored = f"{secrets.token_urlsafe(24)}.{re.sub(r'[^A-Za-z0-9._-]+', '_', name)[-80:]}"
        self._forget_old()
        self.files[stored] = self.clock() + KEPT_SECONDS, data
        while len(self.files) > 1 and sum(len(content) for _, content in self.files.values()) > KEPT_BYTES:
            del self.files[next(iter(self.files))]
        return stored

    def get(self, stored: str) -> bytes | None:
        self._forget_old()
        return self.files[stored][1] if stored in self.files else None

    def _forget_old(self) -> None:
        now = self.clock()
        self.files = {name: file for name, file in self.files.items() if file[0] > now}

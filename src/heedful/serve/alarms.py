"""What is to happen after some time, unless it is called off first, as almost all of it is."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable

PAUSE = 0.05  # seconds between two looks at all of them


class Alarms:
    """Many alarms on one timer: to set one and to call it off costs next to nothing, however many there are."""

    def __init__(self) -> None:
        self.due: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.next = math.inf  # when it rings

    def set(self, key: Hashable, seconds: float, action: Callable[[], object]) -> None:
        """Do this after so many seconds, in place of what was to be done for this key."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        self.due[key] = when, action
        if when < self.next:
            self._wind(when)

    def off(self, key: Hashable) -> bool:
        """Whether it had not rung yet."""
        return self.due.pop(key, None) is not None

    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        now, self.next = loop.time(), math.inf
        for key in [key for key, (when, _) in self.due.items() if when <= now]:
            if key in self.due:  # and was not called off by another one
                self.due.pop(key)[1]()
        if self.due:
            self._wind(max(now + PAUSE, min(when for when, _ in self.due.values())))

    def _wind(self, when: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.next, self.timer = when, asyncio.get_running_loop().call_at(when, self._ring)

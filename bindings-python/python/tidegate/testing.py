"""For tests of what uses a limiter: limiters in memory, whatever TIDEGATE_URL says, on a clock that the test moves.

    >>> from tidegate.testing import FakeClock, MemoryLimiter
    >>> clock = FakeClock()
    >>> limiter = MemoryLimiter({"login": "1/m"}, clock=clock)
    >>> bool(limiter.check("login", "alice")), bool(limiter.check("login", "alice"))
    (True, False)
    >>> clock.advance(60)
    >>> bool(limiter.check("login", "alice"))
    True

With pytest, the fixture ``tidegate_clock`` is such a clock, and ``tidegate_limiter`` makes limiters on it.
"""

from __future__ import annotations

import math
from typing import Any, Optional, Type, TypeVar

from . import _document
from ._asyncio import AsyncLimiter
from ._limiter import Limiter
from ._policy import Policy
from ._tidegate import Clock, Decision

__all__ = ["AsyncMemoryLimiter", "FakeClock", "MemoryLimiter", "MemoryPolicy"]

M = TypeVar("M", bound="MemoryLimiter")
F = TypeVar("F", bound="FakeClock")
P = TypeVar("P", bound="MemoryPolicy")

#: A minute, an hour, a day of no importance: the first of January 2030, UTC.
START = 1_893_456_000


class FakeClock(Clock):
    """A clock that stands still until it is moved."""

    def __new__(cls: Type[F], start: float = START) -> F:
        return super().__new__(cls, _micros(start))

    @property
    def now(self) -> float:
        """The time in seconds since 1970."""
        return self.micros / 1_000_000

    def advance(self, seconds: float) -> None:
        """Lets time pass: to wait ``decision.retry_after`` is enough. A negative time steps back, as clocks may."""
        self.micros += _micros(seconds)


class MemoryLimiter(Limiter):
    """A limiter in memory on a fake clock, of rules or of an application's own document. ``acquire`` moves the clock
    instead of waiting."""

    clock: FakeClock

    def __new__(
        cls: Type[M],
        rules: Optional[_document.Rules] = None,
        *,
        document: Optional[_document.Document] = None,
        clock: Optional[FakeClock] = None,
    ) -> M:
        clock = FakeClock() if clock is None else clock
        made = cls._made(*_document.source(rules, None, document, None, None), clock)
        made.clock = clock
        return made

    def acquire(self, rule: str, key: Any, *, timeout: float = 10.0, **options: Any) -> Decision:
        left = math.floor(timeout * 1000)
        while True:
            decision = self.check(rule, key, **options)
            if decision.retry_after_ms is None or decision.retry_after_ms > left:
                return decision
            left -= decision.retry_after_ms
            self.clock.micros += decision.retry_after_ms * 1000


class AsyncMemoryLimiter(AsyncLimiter):
    """The same for asyncio."""

    def __init__(
        self,
        rules: Optional[_document.Rules] = None,
        *,
        document: Optional[_document.Document] = None,
        clock: Optional[FakeClock] = None,
    ) -> None:
        self._limiter: MemoryLimiter = MemoryLimiter(rules, document=document, clock=clock)
        self.clock = self._limiter.clock

    async def acquire(self, rule: str, key: Any, **options: Any) -> Decision:
        return self._limiter.acquire(rule, key, **options)


class MemoryPolicy(Policy):
    """A policy in memory on a fake clock, of an application's own document: its URL is left alone."""

    clock: FakeClock

    def __new__(
        cls: Type[P], document: _document.Document, format: Optional[str] = None, *, clock: Optional[FakeClock] = None
    ) -> P:
        clock = FakeClock() if clock is None else clock
        made = cls._made(*_document.of_document(document, format), clock)
        made.clock = clock
        return made


def _micros(seconds: float) -> int:
    return math.ceil(round(seconds * 1_000_000, 3))

"""Storages for the package `limits` (5 or later), and so for flask-limiter and slowapi.

Importing this registers their URLs: `tidegate+memory://`, and each that a document takes behind `tidegate+`, such as
`tidegate+redis://127.0.0.1:6379`; with `async+` before it for `limits.aio`.

    >>> import tidegate.limits
    >>> from limits import parse, storage, strategies
    >>> limiter = strategies.MovingWindowRateLimiter(storage.storage_from_string("tidegate+memory://"))
    >>> [limiter.hit(parse("2/minute"), "alice") for _ in range(3)]
    [True, True, False]
"""

from __future__ import annotations

import math
import os
import time
from typing import Any, Dict, Optional, Tuple, Type

from limits.aio import storage as aio
from limits.errors import ConfigurationError
from limits.limits import GRANULARITIES
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage

from ._asyncio import AsyncLimiter
from ._limiter import Limiter
from ._tidegate import (
    CorruptState,
    Decision,
    InvalidDocument,
    InvalidRule,
    StoreRefused,
    StoreUnavailable,
    Timeout,
    UnsupportedServer,
)

__all__ = ["AsyncTidegateStorage", "TidegateStorage"]

# The rule whose name stands in the stored keys. Its own limit is never asked: each call brings one.
_RULE = "limits"
# The most that a limit can be: with it nothing is refused, and what is used shows.
_MOST = 10_000_000
_MOVING = "sliding_window"
_COUNTER = "sliding_window_counter"
_FORMS = (
    "memory",
    "redis",
    "rediss",
    "redis+unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)
_FAILURES: Tuple[Type[Exception], ...] = (
    StoreUnavailable,
    Timeout,
    StoreRefused,
    UnsupportedServer,
    CorruptState,
)


class TidegateStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport):
    """For `limits.strategies`. The options are fields of a document's `[store]`; its `deadline` is 1 s unless said.

    A store that fails raises, whatever the strategy: `limits` and what stands on it have their own ways to go on.
    """

    STORAGE_SCHEME = [f"tidegate+{form}" for form in _FORMS]  # noqa: RUF012 (as the base class has it)

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._document = _document(uri, options)
        self._limiter = _made(self._document)

    @property
    def base_exceptions(self) -> Tuple[Type[Exception], ...]:
        return _FAILURES

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        _same(key, expiry)
        return self._limiter.count(_RULE, key, expiry, amount).total

    def get(self, key: str) -> int:
        return self._limiter.count(_RULE, key, _window(key)).total

    def get_expiry(self, key: str) -> float:
        left = self._limiter.count(_RULE, key, _window(key)).left
        return time.time() + left

    def check(self) -> bool:
        """Whether the store answers within the deadline."""
        return self._limiter.peek(_RULE, "check", limits=_limits(1, 1, _MOVING)).failure is None

    def reset(self) -> Optional[int]:
        """In memory only: a server's keys are not searched for. There it raises `NotImplementedError`."""
        _refuse_reset(self._document)
        self._limiter = _made(self._document)
        return None

    def clear(self, key: str) -> None:
        self._limiter.reset(_RULE, key, limits=_all(_window(key)))

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return self._take(key, limit, expiry, amount, _MOVING)

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Tuple[float, int]:
        used, free_after = self._used(key, limit, expiry, _MOVING)
        return _start(free_after, expiry), used

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return self._take(key, limit, expiry, amount, _COUNTER)

    def get_sliding_window(self, key: str, expiry: int) -> Tuple[int, float, int, float]:
        used, free_after = self._used(key, _MOST, expiry, _COUNTER)
        return 0, 0.0, used, _below(free_after, expiry)

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        self._limiter.reset(_RULE, key, limits=_all(expiry))

    def _take(self, key: str, limit: int, expiry: int, amount: int, algorithm: str) -> bool:
        if _is_known(limit, amount):
            return amount <= limit
        limits = _limits(limit, expiry, algorithm)
        return _judged(self._limiter.check(_RULE, key, cost=amount, limits=limits)).allowed

    def _used(self, key: str, limit: int, expiry: int, algorithm: str) -> Tuple[int, Optional[float]]:
        """The units in the window, and the seconds until one of them is free; none where there are none."""
        seen = _judged(self._limiter.peek(_RULE, key, limits=_limits(limit, expiry, algorithm)))
        used = limit - seen.remaining
        if used == 0 or not seen.allowed:
            return used, seen.retry_after
        # A limit that is used up tells when the next unit fits. It fits already if one left in the meantime.
        seen = _judged(self._limiter.peek(_RULE, key, limits=_limits(used, expiry, algorithm)))
        return used, seen.retry_after or 0.0


class AsyncTidegateStorage(aio.Storage, aio.MovingWindowSupport, aio.SlidingWindowCounterSupport):
    """For `limits.aio.strategies`: as `TidegateStorage`."""

    STORAGE_SCHEME = [f"async+tidegate+{form}" for form in _FORMS]  # noqa: RUF012 (as the base class has it)

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._document = _document(uri, options)
        self._limiter = AsyncLimiter.of(_made(self._document))

    @property
    def base_exceptions(self) -> Tuple[Type[Exception], ...]:
        return _FAILURES

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        _same(key, expiry)
        return (await self._limiter.count(_RULE, key, expiry, amount)).total

    async def get(self, key: str) -> int:
        return (await self._limiter.count(_RULE, key, _window(key))).total

    async def get_expiry(self, key: str) -> float:
        left = (await self._limiter.count(_RULE, key, _window(key))).left
        return time.time() + left

    async def check(self) -> bool:
        """Whether the store answers within the deadline."""
        return (await self._limiter.peek(_RULE, "check", limits=_limits(1, 1, _MOVING))).failure is None

    async def reset(self) -> Optional[int]:
        """In memory only: a server's keys are not searched for. There it raises `NotImplementedError`."""
        _refuse_reset(self._document)
        self._limiter = AsyncLimiter.of(_made(self._document))
        return None

    async def clear(self, key: str) -> None:
        await self._limiter.reset(_RULE, key, limits=_all(_window(key)))

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await self._take(key, limit, expiry, amount, _MOVING)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> Tuple[float, int]:
        used, free_after = await self._used(key, limit, expiry, _MOVING)
        return _start(free_after, expiry), used

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await self._take(key, limit, expiry, amount, _COUNTER)

    async def get_sliding_window(self, key: str, expiry: int) -> Tuple[int, float, int, float]:
        used, free_after = await self._used(key, _MOST, expiry, _COUNTER)
        return 0, 0.0, used, _below(free_after, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        await self._limiter.reset(_RULE, key, limits=_all(expiry))

    async def _take(self, key: str, limit: int, expiry: int, amount: int, algorithm: str) -> bool:
        if _is_known(limit, amount):
            return amount <= limit
        limits = _limits(limit, expiry, algorithm)
        return _judged(await self._limiter.check(_RULE, key, cost=amount, limits=limits)).allowed

    async def _used(self, key: str, limit: int, expiry: int, algorithm: str) -> Tuple[int, Optional[float]]:
        seen = _judged(await self._limiter.peek(_RULE, key, limits=_limits(limit, expiry, algorithm)))
        used = limit - seen.remaining
        if used == 0 or not seen.allowed:
            return used, seen.retry_after
        # A limit that is used up tells when the next unit fits. It fits already if one left in the meantime.
        seen = _judged(await self._limiter.peek(_RULE, key, limits=_limits(used, expiry, algorithm)))
        return used, seen.retry_after or 0.0


def _document(uri: str, options: Dict[str, Any]) -> Dict[str, Any]:
    url = uri.partition("tidegate+")[2]
    store = {"deadline": "1s", **options}
    if not url.startswith("memory:"):
        store["url"] = url
    return {"version": 1, "store": store, "rules": {_RULE: {"limits": "0/s", "on_error": "deny"}}}


def _made(document: Dict[str, Any]) -> Limiter:
    try:
        return Limiter(document=document)
    except (InvalidDocument, InvalidRule) as error:
        raise ConfigurationError(f"tidegate.limits: {error}; the options are fields of a document's [store]") from error


def _refuse_reset(document: Dict[str, Any]) -> None:
    if "url" in document["store"] or os.environ.get("TIDEGATE_URL"):
        raise NotImplementedError(
            "to find all keys would scan the server; write clear(...) for each limit, or another prefix"
        )


def _window(key: str) -> int:
    """The seconds of an item's window, which stand at the end of its key: `.../10/5/minute` is 10 per 5 minutes."""
    try:
        _, multiples, unit = key.rsplit("/", 2)
        return GRANULARITIES[unit].GRANULARITY.seconds * int(multiples)
    except (KeyError, ValueError):
        raise ValueError(
            "the key does not tell its window; write item.key_for(...), as limits' strategies do"
        ) from None


def _same(key: str, expiry: int) -> None:
    """Whoever counts and whoever looks must mean one window, which is a part of the stored key."""
    if _window(key) != expiry:
        raise ValueError(f"the key's window is {_window(key)} s, and not {expiry}; write item.get_expiry()")


def _limits(limit: int, expiry: int, algorithm: str) -> str:
    return f"{limit}/{expiry}s {algorithm}"


def _all(expiry: int) -> str:
    """What a reset forgets: each state of such a window, and its count with it."""
    return "; ".join(_limits(0, expiry, algorithm) for algorithm in (_MOVING, _COUNTER))


def _is_known(limit: int, amount: int) -> bool:
    """Whether nobody need be asked: nothing always passes, and more than the limit never does."""
    return amount == 0 or amount > limit


def _judged(decision: Decision) -> Decision:
    """A decision of the store's, not of a failure policy."""
    if decision.failure is not None:
        raise decision.failure
    return decision


def _start(free_after: Optional[float], expiry: int) -> float:
    """When the oldest entry came, by this process's clock; now where there is none."""
    now = time.time()
    return now if free_after is None else now + free_after - expiry


def _below(free_after: Optional[float], expiry: int) -> float:
    """A wait as limits can tell it, which keeps the remainder by the window."""
    return min(free_after or 0.0, math.nextafter(expiry, 0.0))

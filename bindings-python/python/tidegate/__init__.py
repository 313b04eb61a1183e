"""Exact, atomic rate limiting: in memory, on Redis and Valkey, and on Redis Cluster.

    >>> from tidegate import Limiter
    >>> limiter = Limiter({"login": "2/m"})
    >>> [bool(limiter.check("login", "alice")) for _ in range(3)]
    [True, True, False]

A decision is true if the request may pass. `AsyncLimiter` is the same for asyncio, `tidegate.testing` has limiters on a
clock that tests set.
"""

from ._asyncio import AsyncLimiter
from ._limiter import Limiter
from ._tidegate import (
    CorruptState,
    Decision,
    InvalidDocument,
    InvalidReceipt,
    InvalidRequest,
    InvalidRule,
    LimitDecision,
    Receipt,
    StoreRefused,
    StoreUnavailable,
    TidegateError,
    Timeout,
    UnknownRule,
    UnsupportedServer,
    __version__,
)

__all__ = [
    "AsyncLimiter",
    "CorruptState",
    "Decision",
    "InvalidDocument",
    "InvalidReceipt",
    "InvalidRequest",
    "InvalidRule",
    "LimitDecision",
    "Limiter",
    "Receipt",
    "StoreRefused",
    "StoreUnavailable",
    "TidegateError",
    "Timeout",
    "UnknownRule",
    "UnsupportedServer",
    "__version__",
]

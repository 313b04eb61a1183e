"""Exact, atomic rate limiting: in memory, on Redis and Valkey, and on Redis Cluster.

    >>> from tidegate import Limiter
    >>> limiter = Limiter({"login": "2/m"})
    >>> [bool(limiter.check("login", "alice")) for _ in range(3)]
    [True, True, False]

A decision is true if the request may pass. `AsyncLimiter` is the same for asyncio, `Policy` has the routes of a server,
`tidegate.testing` has limiters on a clock that tests set.
"""

from ._asyncio import AsyncLimiter
from ._limiter import Limiter
from ._policy import Policy
from ._tidegate import (
    Admission,
    CorruptState,
    Counted,
    Decision,
    InvalidDocument,
    InvalidReceipt,
    InvalidRequest,
    InvalidRule,
    LimitDecision,
    Receipt,
    Request,
    StoreRefused,
    StoreUnavailable,
    TidegateError,
    Timeout,
    UnknownRule,
    UnsupportedServer,
    __version__,
)

__all__ = [
    "Admission",
    "AsyncLimiter",
    "CorruptState",
    "Counted",
    "Decision",
    "InvalidDocument",
    "InvalidReceipt",
    "InvalidRequest",
    "InvalidRule",
    "LimitDecision",
    "Limiter",
    "Policy",
    "Receipt",
    "Request",
    "StoreRefused",
    "StoreUnavailable",
    "TidegateError",
    "Timeout",
    "UnknownRule",
    "UnsupportedServer",
    "__version__",
]

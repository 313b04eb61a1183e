"""Tidegate for Django: a middleware, a decorator, signals, system checks and a management command."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decorators import ratelimit
    from .middleware import RateLimitMiddleware
    from .signals import rate_limited, store_degraded

__all__ = ["RateLimitMiddleware", "rate_limited", "ratelimit", "store_degraded"]

# INSTALLED_APPS imports this package before there are settings to be read.
_WHERE = {
    "RateLimitMiddleware": "middleware",
    "rate_limited": "signals",
    "ratelimit": "decorators",
    "store_degraded": "signals",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)

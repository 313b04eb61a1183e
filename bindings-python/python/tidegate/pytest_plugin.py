"""Fixtures for pytest, which finds them by itself."""

from typing import Any, Callable, Mapping, Optional

import pytest

from .testing import FakeClock, MemoryLimiter


@pytest.fixture
def tidegate_clock() -> FakeClock:
    """A clock that stands still until the test moves it."""
    return FakeClock()


@pytest.fixture
def tidegate_limiter(tidegate_clock: FakeClock) -> Callable[..., MemoryLimiter]:
    """Makes limiters in memory on ``tidegate_clock``, of rules or of a document."""

    def make(rules: Optional[Mapping[str, Any]] = None, *, document: Any = None) -> MemoryLimiter:
        return MemoryLimiter(rules, document=document, clock=tidegate_clock)

    return make

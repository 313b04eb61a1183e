"""Fixtures for pytest, which finds them by itself."""

from typing import Callable, Optional

import pytest

from . import _document
from .testing import FakeClock, MemoryLimiter


@pytest.fixture
def tidegate_clock() -> FakeClock:
    """A clock that stands still until the test moves it."""
    return FakeClock()


@pytest.fixture
def tidegate_limiter(tidegate_clock: FakeClock) -> Callable[..., MemoryLimiter]:
    """Makes limiters in memory on ``tidegate_clock``, of rules or of a document."""

    def make(
        rules: Optional[_document.Rules] = None, *, document: Optional[_document.Document] = None
    ) -> MemoryLimiter:
        return MemoryLimiter(rules, document=document, clock=tidegate_clock)

    return make

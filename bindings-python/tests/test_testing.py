"""What users test their own code with."""

import asyncio

from tidegate.testing import AsyncMemoryLimiter, FakeClock, MemoryLimiter


def test_time_stands_still_until_it_is_moved():
    clock = FakeClock(start=1_900_000_000.5)
    limiter = MemoryLimiter({"login": "1/m"}, clock=clock)
    assert limiter.check("login", "alice")
    refused = limiter.check("login", "alice")
    assert refused.retry_after == 60
    clock.advance(59.999)
    assert not limiter.check("login", "alice")
    clock.advance(0.001)
    assert limiter.check("login", "alice")
    assert clock.now == 1_900_000_060.5
    clock.advance(-1)
    assert clock.now == 1_900_000_059.5


def test_a_wait_as_long_as_told_is_always_enough():
    for rule in ["3/s token_bucket", "7/10s", "1/7ms", "9/11m sliding_window_counter", "3/13s fixed_window"]:
        limiter = MemoryLimiter({"a": rule})
        for _ in range(50):
            decision = limiter.check("a", "x")
            if not decision:
                limiter.clock.advance(decision.retry_after)
                assert limiter.check("a", "x"), rule


def test_an_acquire_moves_the_clock_instead_of_waiting():
    limiter = MemoryLimiter({"a": "1/h"})
    start = limiter.clock.now
    assert limiter.acquire("a", "x")
    assert not limiter.acquire("a", "x", timeout=10)
    assert limiter.clock.now == start
    assert limiter.acquire("a", "x", timeout=3600)
    assert limiter.clock.now == start + 3600


def test_the_same_for_asyncio():
    async def check():
        limiter = AsyncMemoryLimiter({"a": "1/h"})
        assert await limiter.check("a", "x")
        assert await limiter.acquire("a", "x", timeout=3600)
        limiter.clock.advance(3600)
        assert await limiter.check("a", "x")

    asyncio.run(check())


def test_fixtures(tidegate_clock, tidegate_limiter):
    limiter = tidegate_limiter({"login": "1/m"})
    assert limiter.check("login", "alice")
    assert not limiter.check("login", "alice")
    tidegate_clock.advance(60)
    assert limiter.check("login", "alice")
    assert tidegate_limiter(document={"version": 1, "rules": {"a": "1/m"}}).clock is tidegate_clock

"""A Python process and a Rust process on one key: together they admit exactly the limit."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from tidegate import AsyncLimiter, Limiter

LIMIT, CALLS, THREADS = 3_000, 2_000, 4


def check(limiter: Limiter) -> int:
    return sum(bool(limiter.check("hammer", "alice")) for _ in range(CALLS // THREADS))


async def check_all(limiter: AsyncLimiter) -> int:
    decisions = await asyncio.gather(*(limiter.check("hammer", "alice") for _ in range(CALLS)))
    return sum(map(bool, decisions))


@pytest.mark.parametrize("algorithm", ["sliding_window", "token_bucket", "fixed_window"])
@pytest.mark.parametrize("store", ["redis", "cluster"])
@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_together_they_admit_exactly_the_limit(kind, store, algorithm, prefix, request):
    url, limits = request.getfixturevalue(store).url, f"{LIMIT}/366d {algorithm}"
    hammer = pathlib.Path(os.environ["TIDEGATE_TEST_SERVERS"]).with_name("hammer")
    order = [hammer, "check", url, prefix, limits, "alice", str(THREADS), str(CALLS // THREADS)]
    with (
        Limiter({"hammer": limits}, url=url, prefix=prefix, deadline=20) as limiter,
        subprocess.Popen(order, stdout=subprocess.PIPE, text=True) as rust,
    ):
        if kind == "threads":
            with ThreadPoolExecutor(THREADS) as pool:
                ours = sum(pool.map(check, [limiter] * THREADS))
        else:
            ours = asyncio.run(check_all(AsyncLimiter.of(limiter)))
        theirs = int(rust.communicate(timeout=120)[0].split()[0])
        assert rust.returncode == 0
    # A bucket of 3,000 in 366 days has its next unit after hours; a fixed window of 366 days ends in some year.
    assert ours + theirs == LIMIT
    assert min(ours, theirs) >= LIMIT - CALLS

"""Checks through the wheel on a real server, beside the peers: they take turns, and the round in the middle counts.

The client runs on one core and the server on the other, so that neither waits for the other's turn. `CASES` names the
cases to run, `ROUNDS` how many rounds, `CALLS` how many requests of `django-cpu`.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from typing import Any, Callable, Coroutine, Dict

import django_cases
import peers
import server
from report import Report
from rounds import OURS, compare

KEYS = [f"user-{number:07}" for number in range(10_000)]


def main() -> int:
    server.pin_client()
    report = Report()
    cases: Dict[str, Callable[[Report, str], None]] = {
        "sync-1": sync_1,
        "sync-16": sync_16,
        "asyncio-256": asyncio_256,
        "denied-hot": denied_hot,
        "django-cpu": django_cases.cpu,
        "django-cpu-16": django_cases.cpu_threads,
        "django-cpu-async": django_cases.cpu_async,
        "gunicorn": django_cases.gunicorn,
    }
    wanted = os.environ.get("CASES", "").split() or list(cases)
    for name in wanted:
        if name not in cases:
            raise SystemExit(f"there is no case {name!r}; write some of {' '.join(cases)}")
    with server.started() as url:
        for name in wanted:
            cases[name](report, url)
    return report.finish()


def sync_1(report: Report, url: str) -> None:
    """One thread, one call after the other."""
    everyone = {name: _rate(check, 2_000) for name, check in peers.sync(url).items()}
    judged = {name: everyone.pop(name) for name in (OURS, "limits fixed window")}
    compare(report, "sync-1", 1.2, judged, shown=everyone)


def sync_16(report: Report, url: str) -> None:
    everyone = {name: _threads(check, 16, 250) for name, check in peers.sync(url).items()}
    compare(report, "sync-16", 1.5, everyone, shown={})


def asyncio_256(report: Report, url: str) -> None:
    loop = asyncio.new_event_loop()

    def rate(check: peers.AsyncCheck) -> Callable[[], float]:
        return lambda: loop.run_until_complete(_in_flight(check, 256, 12))

    everyone = {name: rate(check) for name, check in peers.asynchronous(url).items()}
    compare(report, "asyncio-256", 6.0, everyone, shown={})
    loop.close()


def denied_hot(report: Report, url: str) -> None:
    """One key that has had its unit, asked for again and again."""

    def rate(check: peers.Check, checks: int) -> Callable[[], float]:
        # The first takes the one unit, and the second is refused by the server.
        check("hot"), check("hot")

        def refused(_: str) -> bool:
            return not check("hot")

        return _rate(refused, checks)

    judged = {OURS: rate(peers.hot_ours(url), 50_000), "limits fixed window": rate(peers.limits_fixed(url, 1), 2_000)}
    shown = {"limits moving window": rate(peers.limits_moving(url, 1), 2_000)}
    compare(report, "denied-hot", 100.0, judged, shown=shown)


def _rate(check: peers.Check, checks: int) -> Callable[[], float]:
    """Calls per second of one thread. Every call must say yes."""

    def play() -> float:
        keys = random.choices(KEYS, k=checks)
        begun = time.perf_counter()
        for key in keys:
            if not check(key):
                raise AssertionError("a check that should pass is refused")
        return checks / (time.perf_counter() - begun)

    return play


def _threads(check: peers.Check, threads: int, each: int) -> Callable[[], float]:
    """Calls per second of so many threads together."""

    def play() -> float:
        start, done = threading.Barrier(threads + 1), []
        keys = [random.choices(KEYS, k=each) for _ in range(threads)]

        def work(mine: "list[str]") -> None:
            start.wait()
            if all(check(key) for key in mine):
                done.append(time.perf_counter())

        workers = [threading.Thread(target=work, args=(mine,)) for mine in keys]
        for worker in workers:
            worker.start()
        begun = time.perf_counter()
        start.wait()
        for worker in workers:
            worker.join()
        if len(done) < threads:
            raise AssertionError("a check that should pass is refused")
        return threads * each / (max(done) - begun)

    return play


async def _in_flight(check: peers.AsyncCheck, flight: int, each: int) -> float:
    """Calls per second with so many at a time."""

    async def work(mine: "list[str]") -> None:
        for key in mine:
            if not await check(key):
                raise AssertionError("a check that should pass is refused")

    keys = [random.choices(KEYS, k=each) for _ in range(flight)]
    begun = time.perf_counter()
    works: "list[Coroutine[Any, Any, None]]" = [work(mine) for mine in keys]
    await asyncio.gather(*works)
    return flight * each / (time.perf_counter() - begun)


if __name__ == "__main__":
    raise SystemExit(main())

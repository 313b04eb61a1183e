"""Django: what a middleware adds to the processor time of a request, and what gunicorn serves with it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import io
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator

import django_app
import server
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.test import RequestFactory
from report import Line, Report
from rounds import OURS, play

BARE, PEER, SOCKET = "bare", "redis-py middleware", "bare socket"
CALLS = int(os.environ.get("CALLS", "20000"))
CALLS_A_ROUND = 500
THREADS = 16
HERE = os.path.dirname(os.path.abspath(__file__))


def cpu(report: Report, url: str) -> None:
    """Processor time of this process, all its threads, per request, less that of the bare handler."""
    django_app.configure(url)
    environ = RequestFactory().post("/upload").environ
    everyone = {who: _nanoseconds(django_app.handler(who), environ) for who in django_app.MIDDLEWARE}
    everyone[SOCKET] = _nanoseconds(django_app.floor(), environ)
    played = play(everyone, max(CALLS // CALLS_A_ROUND, 1))
    # A round is short, and now and then something else falls into it: single differences may be nothing at all.
    medians = {who: statistics.median(figures) for who, figures in played.items()}
    added, peer_added = (medians[who] - medians[BARE] for who in (OURS, PEER))
    report.show("django-cpu", {who: round(figure) for who, figure in medians.items()}, "ns")
    ratio = round(added / peer_added, 3)
    report.add(Line("django-cpu", round(added), round(peer_added), PEER, "ns", ratio, 0.5, at_most=True))


def cpu_threads(report: Report, url: str) -> None:
    """The same with 16 requests at once, each on a thread as a threaded worker serves them. Shown, not judged."""
    django_app.configure(url)
    environ = RequestFactory().post("/upload").environ
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        handlers = {who: django_app.handler(who) for who in django_app.MIDDLEWARE}
        everyone = {who: _nanoseconds_threads(handler, environ, pool) for who, handler in handlers.items()}
        played = play(everyone, max(CALLS // CALLS_A_ROUND, 1))
    report.show("django-cpu-16", {who: round(statistics.median(played[who])) for who in played}, "ns")


def _nanoseconds_threads(
    handler: WSGIHandler, environ: Dict[str, Any], pool: concurrent.futures.Executor
) -> Callable[[], float]:
    each = CALLS_A_ROUND // THREADS

    def serve() -> None:
        for _ in range(each):
            response = handler.get_response(WSGIRequest({**environ, "REMOTE_ADDR": _address()}))
            if response.status_code != 200:
                raise AssertionError(f"a request that should pass has status {response.status_code}")
            response.close()

    def round_() -> float:
        begun = time.process_time_ns()
        for done in [pool.submit(serve) for _ in range(THREADS)]:
            done.result()
        return (time.process_time_ns() - begun) / (each * THREADS)

    return round_


def _nanoseconds(handler: WSGIHandler, environ: Dict[str, Any]) -> Callable[[], float]:
    def round_() -> float:
        addresses = [_address() for _ in range(CALLS_A_ROUND)]
        begun = time.process_time_ns()
        for address in addresses:
            response = handler.get_response(WSGIRequest({**environ, "REMOTE_ADDR": address}))
            if response.status_code != 200:
                raise AssertionError(f"a request that should pass has status {response.status_code}")
            response.close()
        return (time.process_time_ns() - begun) / CALLS_A_ROUND

    return round_


def cpu_async(report: Report, url: str) -> None:
    """The same under ASGI with 64 requests in flight, beside redis.asyncio. Shown, not judged."""
    django_app.configure(url)
    loop = asyncio.new_event_loop()

    def round_of(handler: ASGIHandler) -> Callable[[], float]:
        return lambda: loop.run_until_complete(_async_nanoseconds(handler))

    everyone = {who: round_of(django_app.async_handler(who)) for who in django_app.ASYNC_MIDDLEWARE}
    played = play(everyone, max(CALLS // CALLS_A_ROUND, 1))
    loop.close()
    report.show("django-cpu-async", {who: round(statistics.median(played[who])) for who in played}, "ns")


async def _async_nanoseconds(handler: ASGIHandler) -> float:
    flight, each = 64, 8

    async def work() -> None:
        for _ in range(each):
            scope = {"type": "http", "method": "POST", "path": "/upload/async", "headers": []}
            request = ASGIRequest({**scope, "client": [_address(), 1]}, io.BytesIO())
            response = await handler.get_response_async(request)
            if response.status_code != 200:
                raise AssertionError(f"a request that should pass has status {response.status_code}")
            response.close()

    begun = time.process_time_ns()
    await asyncio.gather(*(work() for _ in range(flight)))
    return (time.process_time_ns() - begun) / (flight * each)


def _address() -> str:
    return f"10.0.{random.randrange(40)}.{random.randrange(250)}"


def gunicorn(report: Report, url: str) -> None:
    """Requests a second of a worker with four threads on the client's core, wrk on the server's. Shown, not judged."""
    if shutil.which("wrk") is None:
        print("wrk is not here, so Django under gunicorn is not shown", file=sys.stderr)
        return
    with contextlib.ExitStack() as stack:
        addresses = {who: stack.enter_context(_served(url, who)) for who in django_app.MIDDLEWARE}
        everyone = {who: _requests(address) for who, address in addresses.items()}
        medians = {who: round(statistics.median(figures)) for who, figures in play(everyone, 3).items()}
        report.show("gunicorn", medians, "requests/s")


@contextlib.contextmanager
def _served(url: str, who: str) -> Iterator[str]:
    port = server.free_port()
    command = [sys.executable, "-m", "gunicorn", "--chdir", HERE, "--bind", f"127.0.0.1:{port}", "--threads", "4"]
    command += ["--keep-alive", "60", "--log-level", "error", "--no-control-socket", "django_app:application()"]
    environment = {**os.environ, "TIDEGATE_BENCH_URL": url, "TIDEGATE_BENCH_WHO": who}
    process = subprocess.Popen(command, env=environment)
    try:
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit("gunicorn does not answer") from None
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/upload"
    finally:
        process.terminate()
        process.wait(60)


def _requests(address: str) -> Callable[[], float]:
    command = ["taskset", "--cpu-list", str(server.SERVER_CORE), "wrk", "-t1", "-c16", "-d2s", address]

    def round_() -> float:
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        rate = re.search(r"Requests/sec:\s+([\d.]+)", told)
        if rate is None or "Non-2xx" in told:
            raise AssertionError(f"not all that wrk asked for was answered:\n{told}")
        return float(rate[1])

    return round_

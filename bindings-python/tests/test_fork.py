"""A limiter that was used in the parent works in its children, and goes on in the parent."""

import asyncio
import itertools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from tidegate import AsyncLimiter, Limiter


def in_child(work):
    """Runs `work` in a forked child, and fails if it fails or takes too long."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            os.write(writer, repr(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as told:
        answer = told.read()
    assert os.waitpid(child, 0)[1] == 0, answer
    return answer


def test_p1_used_forked_four_times_and_used(redis, prefix):
    limiter = Limiter({"a": "100/h"}, url=redis.url, prefix=prefix, deadline=20)

    def check():
        return [limiter.check("a", "x").origin for _ in range(10)]

    assert check() == ["store"] * 10
    for child in range(4):
        assert in_child(check) == repr(["store"] * 10)
        assert check() == ["store"] * 10
        assert limiter.peek("a", "x").remaining == 100 - 10 - 20 * (child + 1)


def test_a_child_of_a_child(redis, prefix):
    limiter = Limiter({"a": "100/h"}, url=redis.url, prefix=prefix, deadline=20)
    limiter.check("a", "x")

    def check():
        limiter.check("a", "x")
        return in_child(lambda: limiter.check("a", "x").remaining)

    assert in_child(check) == repr("97")
    assert limiter.check("a", "x").remaining == 96


def test_forks_while_other_threads_check(redis, prefix):
    limiter = Limiter({"a": "1000000/h"}, url=redis.url, prefix=prefix, deadline=20)
    stop = threading.Event()

    def load():
        while not stop.is_set():
            limiter.check("a", "x")

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert in_child(lambda: limiter.check("a", "x").origin) == "'store'"
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_event_loops_of_parent_and_child(redis, prefix):
    limiter = AsyncLimiter({"a": "100/h"}, url=redis.url, prefix=prefix, deadline=20)

    async def check():
        decisions = await asyncio.gather(*(limiter.check("a", "x") for _ in range(5)))
        return min(decision.remaining for decision in decisions)

    assert asyncio.run(check()) == 95
    assert in_child(lambda: asyncio.run(check())) == "90"
    assert asyncio.run(check()) == 85


def test_a_fork_inside_of_a_loop(redis, prefix):
    limiter = AsyncLimiter({"a": "100/h"}, url=redis.url, prefix=prefix, deadline=20)

    async def check():
        await limiter.check("a", "x")
        child = await asyncio.to_thread(in_child, lambda: asyncio.run(limiter.check("a", "x")).remaining)
        return child, (await limiter.check("a", "x")).remaining

    assert asyncio.run(check()) == ("98", 97)


LIMITER = None


def work(count):
    return sum(LIMITER.check("a", "x").allowed for _ in range(count))


def test_multiprocessing_that_forks(redis, prefix):
    global LIMITER
    LIMITER = Limiter({"a": "100/h"}, url=redis.url, prefix=prefix, deadline=20)
    LIMITER.check("a", "x")
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert sum(pool.map(work, [50] * 8, chunksize=1)) == 99
    assert not LIMITER.check("a", "x")


APPLICATION = """
import os, tidegate
limiter = tidegate.Limiter({"a": "100/h"}, url=os.environ["URL"], prefix=os.environ["PREFIX"], deadline=20)
limiter.check("a", "x")  # in the parent, which preloads

def application(environ, start_response):
    decision = limiter.check("a", "x")
    start_response("200 OK" if decision else "429 Too Many Requests", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {decision.origin}".encode()]
"""

GUNICORN = [sys.executable, "-m", "gunicorn", "--preload", "--bind=127.0.0.1:0"]

# A worker that is told to end before it listens to signals does not hear it.
READY = """
def post_worker_init(worker):
    worker.log.info("ready for requests")
"""


@pytest.mark.parametrize(("workers", "options"), [(3, []), (2, ["--threads=4"]), (2, ["--worker-class=gevent"])])
def test_gunicorn_that_preloads(workers, options, redis, prefix, tmp_path):
    (tmp_path / "application.py").write_text(APPLICATION)
    (tmp_path / "gunicorn.conf.py").write_text(READY)
    server = subprocess.Popen(
        [*GUNICORN, f"--workers={workers}", *options, "application"],
        cwd=tmp_path,
        env={**os.environ, "URL": redis.url, "PREFIX": prefix},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = iter(server.stderr.readline, "")
        address = next(found[1] for line in lines if (found := re.search(r"Listening at: (http://\S+)", line)))
        ready = (line for line in lines if "ready for requests" in line)
        assert len(list(itertools.islice(ready, workers))) == workers
        threading.Thread(target=lambda: list(lines), daemon=True).start()
        answers, lock = [], threading.Lock()

        def ask():
            for _ in range(20):
                try:
                    with urllib.request.urlopen(address, timeout=60) as response:
                        answer = (response.status, *response.read().decode().split())
                except urllib.error.HTTPError as refused:
                    answer = (refused.code, *refused.read().decode().split())
                    refused.close()
                with lock:
                    answers.append(answer)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 160
        assert sum(status == 200 for status, *_ in answers) == 99
        assert {origin for *_, origin in answers} <= {"store", "deny_cache"}
        assert server.pid not in {int(process) for _, process, _ in answers}
    finally:
        server.terminate()
        assert server.wait(60) == 0
        server.stderr.close()

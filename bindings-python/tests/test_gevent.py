"""In a process that gevent has patched nothing deadlocks, and a call holds the other greenlets up by its deadline at
most: in gevent's thread pool, not at all."""

import json
import subprocess
import sys
import textwrap

import pytest

START = """
    from gevent import monkey
    monkey.patch_all()
    import json, sys, threading, time
    import gevent, tidegate
    url, prefix = sys.argv[1:]
"""


def run(text, *arguments, paused=None):
    """What a patched process prints. Servers that are given pause once it has said that it is ready."""
    source = textwrap.dedent(START) + textwrap.dedent(text)
    process = subprocess.Popen(
        [sys.executable, "-c", source, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        if paused:
            assert process.stdout.readline() == "ready\n"
            paused.do("pause")
        told, _ = process.communicate("go\n", timeout=60)
        assert process.returncode == 0
        return json.loads(told)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        if paused:
            paused.do("resume")


def test_greenlets_and_patched_threads_admit_exactly_the_limit(redis, prefix):
    text = """
        limiter = tidegate.Limiter({"a": "100/h"}, url=url, prefix=prefix, deadline=20)
        def check():
            allowed = 0
            for _ in range(10):
                allowed += limiter.check("a", "x").allowed
                gevent.sleep(0)
            return allowed
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(check())) for _ in range(10)]
        for thread in threads:
            thread.start()
        greenlets = [gevent.spawn(check) for _ in range(10)]
        pool = gevent.get_hub().threadpool
        pooled = [pool.spawn(lambda: sum(limiter.check("a", "x").allowed for _ in range(10))) for _ in range(10)]
        for thread in threads:
            thread.join()
        print(json.dumps(sum(answers) + sum(one.get() for one in greenlets + pooled)))
    """
    assert run(text, redis.url, prefix) == 100


TICKS = """
    limiter = tidegate.Limiter({"a": "100/h"}, url=url, prefix=prefix)
    limiter.ready()
    print("ready", flush=True)
    sys.stdin.readline()
    gaps, at = [], time.monotonic()
    def tick():
        global at
        while True:
            gevent.sleep(0.005)
            now = time.monotonic()
            gaps.append(now - at)
            at = now
    gevent.spawn(tick)
    gevent.sleep(0.05)
    gaps.clear()
    decision = CALL
    ticks = len(gaps)
    gevent.sleep(0.05)
    print(json.dumps([decision.origin, ticks, max(gaps)]))
"""


@pytest.mark.parametrize("call", ["check", "acquire"])
def test_a_call_holds_other_greenlets_up_by_its_deadline_at_most(call, own_redis, prefix):
    options = {"check": "deadline=0.5", "acquire": "deadline=0.5, timeout=0.5"}[call]
    text = TICKS.replace("CALL", f"limiter.{call}('a', 'x', {options})")
    origin, _, longest = run(text, own_redis.url, prefix, paused=own_redis)
    assert origin == "open"
    assert longest < 5, "s"


def test_a_call_in_the_thread_pool_holds_no_greenlet_up(own_redis, prefix):
    call = "gevent.get_hub().threadpool.apply(limiter.check, ('a', 'x'), {'deadline': 1.0})"
    text = TICKS.replace("CALL", call)
    origin, ticks, _ = run(text, own_redis.url, prefix, paused=own_redis)
    assert origin == "open"
    assert ticks > 20


def test_asyncio_in_a_patched_process(redis, prefix):
    text = """
        import asyncio
        async def check():
            limiter = tidegate.AsyncLimiter({"a": "30/h"}, url=url, prefix=prefix, deadline=20)
            return sum(map(bool, await asyncio.gather(*(limiter.check("a", "x") for _ in range(50)))))
        print(json.dumps(asyncio.run(check())))
    """
    assert run(text, redis.url, prefix) == 30

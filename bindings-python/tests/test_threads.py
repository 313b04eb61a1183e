"""Threads that wait: for signals, for each other, for the end of the process."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from tidegate import AsyncLimiter, Limiter, Policy
from tidegate.testing import MemoryLimiter

# 1000000 for the long run.
# The limits of these runs are token buckets, whose state does not grow until a window is full.
CHECKS = int(os.environ.get("TIDEGATE_TEST_CHECKS", "100000"))


def script(text, *arguments):
    return [sys.executable, "-c", textwrap.dedent(text), *arguments]


@pytest.mark.parametrize("call", ["check('a', 'x', deadline=30)", "acquire('a', 'x', deadline=30, timeout=30)"])
def test_ctrl_c_ends_a_wait(call, own_redis):
    text = f"""
        import sys, time, tidegate
        limiter = tidegate.Limiter({{"a": "1/h"}}, url=sys.argv[1])
        limiter.ready()
        print("ready", flush=True)
        sys.stdin.readline()
        print("waiting", flush=True)
        try:
            limiter.{call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = subprocess.Popen(
        script(text, own_redis.url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n"
    own_redis.do("pause")
    try:
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - started < 10, "long before the deadline"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        own_redis.do("resume")


def test_other_threads_run_while_one_waits(own_redis):
    limiter = Limiter({"a": "1/h"}, url=own_redis.url)
    limiter.ready()
    own_redis.do("pause")
    waiting = threading.Thread(target=limiter.check, args=("a", "x"), kwargs={"deadline": 1.0})
    waiting.start()
    turns = 0
    while waiting.is_alive():
        time.sleep(0.001)
        turns += 1
    own_redis.do("resume")
    assert turns > 20


@pytest.mark.parametrize("how", ["thread", "asyncio"])
def test_the_process_ends_with_calls_in_flight(how, own_redis):
    text = """
        import asyncio, sys, threading, tidegate
        how, url = sys.argv[1:]
        rules = {"a": {"limits": "1000/h", "on_error": "deny"}}
        limiter = tidegate.Limiter(rules, url=url, deadline=30)
        limiter.ready()
        other = tidegate.AsyncLimiter.of(limiter)
        print("ready", flush=True)
        sys.stdin.readline()
        def check():
            limiter.check("a", "x")
        async def checks():
            for _ in range(50):
                asyncio.ensure_future(other.check("a", "x"))
            await asyncio.sleep(0.05)
        if how == "asyncio":
            asyncio.run(checks())
        else:
            for _ in range(5):
                threading.Thread(target=check, daemon=True).start()
    """
    for _ in range(5):
        process = subprocess.Popen(
            script(text, how, own_redis.url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout.readline() == b"ready\n"
        own_redis.do("pause")
        process.stdin.write(b"go\n")
        _out, told = process.communicate(timeout=60)
        own_redis.do("resume")
        assert (process.returncode, told) == (0, b"")


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_checks_leave_no_memory_and_no_threads(store, redis, prefix):
    url = None if store == "memory" else redis.url
    limiter = Limiter({"a": "1000000/s token_bucket"}, url=url, prefix=prefix, deadline=20)
    checks = CHECKS if store == "memory" else CHECKS // 10

    def check(count):
        for number in range(count):
            decision = limiter.check("a", f"user {number % 100}")
            assert decision.limits[0].allowed
            assert decision.receipt

    check(checks // 5)
    before, threads = resident(), count_threads()
    check(checks)
    assert count_threads() == threads
    assert resident() - before < 8 * 1024, "KiB"


def test_checks_of_an_event_loop_leave_no_memory_and_no_threads(redis, prefix):
    limiter = AsyncLimiter({"a": "1000000/s token_bucket"}, url=redis.url, prefix=prefix, deadline=20)

    async def check(count):
        for _ in range(count // 100):
            for decision in await asyncio.gather(*(limiter.check("a", f"user {number}") for number in range(100))):
                assert decision.allowed

    asyncio.run(check(CHECKS // 5))
    before, threads = resident(), count_threads()
    asyncio.run(check(CHECKS))
    assert count_threads() == threads
    assert resident() - before < 8 * 1024, "KiB"


DOCUMENT = {
    "version": 1,
    "rules": {"a": "1000000/s token_bucket"},
    "routes": [{"path": "/items/{id}", "rules": "a", "key": "ip", "refund_status": "5xx"}],
}


def request_of(policy, number):
    """A request, and what its route is told of it."""
    told = {"peer": f"203.0.113.{number % 100}", "headers": [("accept", "text/plain")]}
    return policy.request("GET", f"/items/{number}"), told


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_policies_leave_no_memory_and_no_threads(store, redis, prefix):
    policy = Policy(
        {**DOCUMENT, "store": {"url": redis.url if store == "redis" else None, "prefix": prefix, "deadline": "20s"}}
    )
    checks = CHECKS if store == "memory" else CHECKS // 10

    def admit(count):
        for number in range(count):
            request, told = request_of(policy, number)
            admission = policy.admit(request, **told)
            assert admission.headers
            admission.settle(200)

    admit(checks // 5)
    before, threads = resident(), count_threads()
    admit(checks)
    assert count_threads() == threads
    assert resident() - before < 8 * 1024, "KiB"


def test_policies_of_an_event_loop_leave_no_memory_and_no_threads(redis, prefix):
    policy = Policy({**DOCUMENT, "store": {"url": redis.url, "prefix": prefix, "deadline": "20s"}})

    async def admit(number):
        request, told = request_of(policy, number)
        admission = await policy.admit_async(request, **told)
        assert admission.headers
        admission.settle(500 if number % 10 == 0 else 200)

    async def admit_all(count):
        for _ in range(count // 100):
            await asyncio.gather(*map(admit, range(100)))

    asyncio.run(admit_all(CHECKS // 5))
    before, threads = resident(), count_threads()
    asyncio.run(admit_all(CHECKS))
    assert count_threads() == threads
    assert resident() - before < 8 * 1024, "KiB"


def test_errors_and_pickles_leave_no_references():
    limiter = MemoryLimiter({"a": "1/h"})
    decision = limiter.check("a", "x")
    kept = [decision, decision.binding, limiter]
    before = [sys.getrefcount(one) for one in kept]
    for _ in range(1_000):
        with pytest.raises(Exception, match="empty"):
            limiter.check("a", "")
        repr(decision), decision.__reduce__(), decision == decision, limiter.check("a", "y")
    assert [sys.getrefcount(one) for one in kept] == before


def resident():
    """KiB of memory as they are now: a peak would hide what leaks below that of another test."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


def count_threads():
    return len(os.listdir("/proc/self/task"))

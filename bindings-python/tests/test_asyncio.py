"""Event loops: one queue each, nothing that blocks them, and nothing lost."""

import asyncio
import gc
import os
import threading
import time

import pytest
import tidegate
import uvloop
from tidegate import AsyncLimiter, Limiter

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine on a loop of its own, as asyncio.run does."""

    def run(coroutine):
        loop = request.param()
        try:
            return loop.run_until_complete(coroutine)
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    return run


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Pauses(threading.Thread):
    """The longest time that the machine, which others use too, kept a thread waiting that wanted to run."""

    def __init__(self):
        super().__init__()
        self.longest, self.ended = 0.0, False

    def run(self):
        last = time.perf_counter()
        while not self.ended:
            time.sleep(0.001)
            last, before = time.perf_counter(), last
            self.longest = max(self.longest, last - before)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.join()


async def eventually(condition, limit=20.0):
    end = time.monotonic() + limit
    while not await condition():
        assert time.monotonic() < end, "still not so"
        await asyncio.sleep(0.01)


def test_every_call_answers_in_memory_and_on_redis(run, redis, prefix):
    async def calls(limiter):
        async with limiter:
            await limiter.ready()
            assert (await limiter.check("login", "alice")).remaining == 4
            assert (await limiter.check_all(["login", "log"], "alice", cost=2)).remaining == 2
            assert (await limiter.peek("login", "alice")).remaining == 2
            assert (await limiter.peek_all(["login"], "alice")).remaining == 2
            decision = await limiter.acquire("login", "alice", cost=2)
            assert decision.remaining == 0
            assert not await limiter.check("login", "alice")
            assert await limiter.refund(decision)
            assert (await limiter.peek("login", "alice")).remaining == 2
            await limiter.reset("login", "alice")
            assert (await limiter.peek("login", "alice")).remaining == 5
            assert (await limiter.check("log", "alice", request_id="1")).allowed
            assert (await limiter.check("log", "alice", request_id=b"1", deadline=20.0)).repeat
            for bad in [limiter.check("nope", "a"), limiter.peek("login", ""), limiter.reset("nope", "a")]:
                with pytest.raises(tidegate.TidegateError):
                    await bad
            with pytest.raises(tidegate.InvalidReceipt):
                await limiter.refund(decision)
            assert limiter.metrics()["decisions"]
        with pytest.raises(RuntimeError, match="make another"):
            await limiter.check("login", "alice")

    rules = {"login": "5/h", "log": "9/h sliding_window_log"}
    run(calls(AsyncLimiter(rules)))
    run(calls(AsyncLimiter(rules, url=redis.url, prefix=prefix, deadline=20)))


def test_what_is_known_at_once_needs_no_turn_of_the_loop(run, redis, prefix):
    async def check():
        loop = asyncio.get_running_loop()
        turns = []
        refused = AsyncLimiter({"a": "1/h"}, url=redis.url, prefix=prefix, deadline=20)
        await refused.check("a", "x")
        assert not await refused.check("a", "x")
        loop.call_soon(turns.append, 1)
        assert await AsyncLimiter({"a": "5/m"}).check("a", "x")
        assert (await refused.check("a", "x")).origin == "deny_cache"
        assert not turns

    run(check())


def test_many_in_flight_admit_exactly_the_limit(run, redis, prefix):
    async def check():
        limiter = AsyncLimiter({"a": "700/h"}, url=redis.url, prefix=prefix, deadline=20)
        decisions = await asyncio.gather(*(limiter.check("a", "x") for _ in range(1_000)))
        assert sum(decision.allowed for decision in decisions) == 700
        assert {decision.origin for decision in decisions} <= {"store", "deny_cache"}

    run(check())


@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])
def test_p2_a_hung_server_does_not_stop_the_loop(new_loop, own_redis):
    async def check():
        limiter = AsyncLimiter({"a": "1000/s"}, url=own_redis.url, deadline=0.5)
        await limiter.ready()
        gaps, stop = [], False

        async def tick():
            last = time.perf_counter()
            while not stop:
                await asyncio.sleep(0.001)
                last, before = time.perf_counter(), last
                gaps.append(last - before)

        async def load():
            while not stop:
                assert (await limiter.check("a", "x")).allowed
                await asyncio.sleep(0.002)

        tasks = [asyncio.create_task(tick()), *(asyncio.create_task(load()) for _ in range(8))]
        await asyncio.sleep(0.1)
        gaps.clear()
        with Pauses() as machine:
            await asyncio.get_running_loop().run_in_executor(None, own_redis.do, "pause")
            await asyncio.sleep(1)
            largest = max(gaps)
        await asyncio.get_running_loop().run_in_executor(None, own_redis.do, "resume")
        stop = True
        await asyncio.gather(*tasks)
        assert len(gaps) > 20
        assert largest < 0.02 + machine.longest

    loop = new_loop()
    loop.run_until_complete(check())
    loop.close()


def test_several_loops_at_once_use_one_limiter(redis, prefix):
    limiter = AsyncLimiter({"a": "100/h"}, url=redis.url, prefix=prefix, deadline=20)
    admitted, threads = [], []

    async def check():
        decisions = await asyncio.gather(*(limiter.check("a", "x") for _ in range(100)))
        admitted.extend(decision.allowed for decision in decisions)

    for new_loop in LOOPS * 2:

        def run(new_loop=new_loop):
            loop = new_loop()
            loop.run_until_complete(check())
            loop.close()

        threads.append(threading.Thread(target=run))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert (len(admitted), sum(admitted)) == (400, 100)


def test_successive_loops_leave_nothing_behind(run, redis, prefix):
    limiter = AsyncLimiter({"a": "1000000/h"}, url=redis.url, prefix=prefix, deadline=20)

    async def check():
        await limiter.check("a", "x")
        # In flight when the loop ends.
        asyncio.create_task(limiter.check("a", "x"))  # noqa: RUF006
        await asyncio.sleep(0)

    run(check())
    gc.collect()
    before, threads = descriptors(), threading.active_count()
    for _ in range(200):
        run(check())
    gc.collect()
    assert descriptors() <= before + 2
    assert threading.active_count() == threads


def test_a_cancelled_check_leaves_the_connection_sound_and_is_given_back(run, redis, prefix):
    async def check():
        limiter = AsyncLimiter({"a": "1000/h"}, url=redis.url, prefix=prefix, deadline=20)
        await limiter.ready()
        tasks = [asyncio.create_task(limiter.check("a", "x")) for _ in range(500)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        taken = sum(isinstance(one, tidegate.Decision) for one in done)
        assert sum(isinstance(one, asyncio.CancelledError) for one in done) == 500 - taken
        assert taken < 500

        async def is_given_back():
            return (await limiter.peek("a", "x")).remaining == 1000 - taken

        await eventually(is_given_back)

    run(check())


def test_a_cancelled_acquire_leaves_the_line_and_gives_back(run, redis, prefix):
    async def check(limiter):
        assert await limiter.acquire("a", "x")
        first = asyncio.create_task(limiter.acquire("a", "x", timeout=30))
        second = asyncio.create_task(limiter.acquire("a", "x", timeout=30))
        await asyncio.sleep(0.05)
        first.cancel()
        started = time.monotonic()
        assert await second
        # 1 a second: had the first stayed in line, two would have passed.
        assert time.monotonic() - started < 1.9
        with pytest.raises(asyncio.CancelledError):
            await first

    run(check(AsyncLimiter({"a": "1/s"})))
    run(check(AsyncLimiter({"a": "1/s"}, url=redis.url, prefix=prefix, deadline=20)))


def test_a_wait_known_to_be_too_long_is_refused_at_once(run):
    async def check():
        limiter = AsyncLimiter({"a": "1/h"})
        await limiter.check("a", "x")
        refused = await limiter.acquire("a", "x", timeout=0.05)
        assert not refused
        assert refused.retry_after > 3000

    run(check())


def test_calls_are_coroutines(run):
    async def check():
        limiter = AsyncLimiter({"a": "5/m"})
        assert await asyncio.create_task(limiter.check("a", "x"))
        unused = limiter.check("a", "x")
        unused.close()
        assert (await limiter.peek("a", "x")).remaining == 4, "what is not awaited is not charged"

    run(check())


def test_both_faces_of_a_limiter_share_its_state(run):
    limiter = Limiter({"a": "5/m"})
    limiter.check("a", "x")
    assert run(AsyncLimiter.of(limiter).check("a", "x")).remaining == 3


def test_a_debugging_loop_finds_no_fault(redis, prefix):
    async def check():
        limiter = AsyncLimiter({"a": "5/h"}, url=redis.url, prefix=prefix, deadline=20)
        assert await limiter.check("a", "x")

    asyncio.run(check(), debug=True)

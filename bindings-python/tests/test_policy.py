"""The policy through the wheel: the shared vectors of whole requests, loops, what is cancelled, what is closed."""

import asyncio
import gc
import json

import pytest
import tidegate
from tidegate import InvalidDocument, InvalidRequest, Policy
from tidegate.testing import FakeClock, MemoryPolicy

LOGIN = {"path": "/login", "rules": "login", "key": "ip", "refund_status": ["5xx"]}
ONCE = {"version": 1, "rules": {"login": "1/m"}, "routes": [LOGIN]}


def test_a_request_passes_and_the_next_is_told_when_to_come():
    policy = MemoryPolicy(ONCE)
    request = policy.request("POST", "/login")
    assert (request.route, request.needs_user, request.needs_headers) == ("/login", False, ("accept",))
    first = policy.admit(request, peer="203.0.113.7")
    assert first
    assert first.status is None
    assert first.outcome == "allowed"
    assert first.decisions[0].remaining == 0
    again = policy.admit(request, peer="203.0.113.7:80", headers=[("Accept", "application/json")])
    assert not again
    assert again.status == 429
    assert dict(again.headers)["Retry-After"] == "60"
    assert dict(again.headers)["Content-Type"] == "application/json"
    assert json.loads(again.body)
    assert policy.admit(request, peer="203.0.113.8")
    policy.clock.advance(60)
    assert policy.admit(request, peer="203.0.113.7")


def test_what_a_status_gives_back_is_there_again():
    policy = MemoryPolicy(ONCE)
    request = policy.request("POST", "/login")
    policy.admit(request, peer="203.0.113.7").settle(503)
    admission = policy.admit(request, peer="203.0.113.7")
    assert admission
    admission.settle(200)
    assert not policy.admit(request, peer="203.0.113.7")
    admission.undo()
    assert policy.admit(request, peer="203.0.113.7")
    admission.undo()  # it has been given back
    assert not policy.admit(request, peer="203.0.113.7")


def test_what_is_needed_is_told_and_parts_are_judged_by_the_core():
    route = {
        "path": "/items/{id}",
        "rules": "item",
        "key": ["app:tenant", "user"],
        "without_identity": "refuse",
        "cost": "app:units",
        "exempt": {"app": ["is_staff"]},
    }
    policy = MemoryPolicy({"version": 1, "rules": {"item": "10/m"}, "routes": [route]})
    request = policy.request("GET", "/items/1")
    assert request.needs_user
    assert (set(request.needs_values), request.needs_answers) == ({"tenant", "units"}, ("is_staff",))
    told = {"user": "alice", "values": {"tenant": b"\xff", "units": 7}}
    assert policy.admit(request, **told).decisions[0].remaining == 3
    assert policy.admit(request, **told).status == 429
    assert policy.admit(request, **told, answers=["is_staff"]).outcome == "exempt"
    assert policy.admit(request, user="", values=told["values"]).status == 403
    with pytest.raises(InvalidRequest, match="was not supplied"):
        policy.admit(request, user="alice", values={"tenant": "a"})
    with pytest.raises(InvalidRequest, match="lone surrogate"):
        policy.admit(request, user="\ud800", values=told["values"])


def test_stacked_requests_are_charged_once_and_neighbours_share_the_store():
    policy = MemoryPolicy(ONCE)
    beside = policy.beside({**ONCE, "routes": [{**LOGIN, "path": "/other"}]})
    first = policy.admit(policy.request("GET", "/login"), peer="203.0.113.7")
    second = beside.admit(beside.request("GET", "/other"), peer="203.0.113.7", after=first)
    assert second
    assert len(second.decisions) == 1
    assert not beside.admit(beside.request("GET", "/other"), peer="203.0.113.7")
    with pytest.raises(InvalidDocument, match="another store"):
        policy.beside({**ONCE, "store": {"prefix": "elsewhere"}})


def test_the_address_is_what_trusted_proxies_say():
    policy = MemoryPolicy({**ONCE, "http": {"trusted_proxies": ["10.0.0.0/8"]}})
    request = policy.request("POST", "/login")
    assert "x-forwarded-for" in request.needs_headers
    forged = [(b"X-Forwarded-For", b"9.9.9.9"), ("x-forwarded-for", "203.0.113.7")]
    assert request.client_address("10.0.0.1", forged) == "203.0.113.7"
    assert request.client_address("192.0.2.1", forged) == "192.0.2.1"
    assert request.client_address(None, forged) is None


def test_documents_are_exchanged_and_refused_whole(tmp_path):
    policy = MemoryPolicy(ONCE)
    policy.reload({**ONCE, "rules": {"login": "3/m"}})
    assert policy.admit(policy.request("GET", "/login"), peer="203.0.113.7").decisions[0].limit == 3
    with pytest.raises(InvalidDocument, match="no routes"):
        policy.reload({"version": 1, "rules": {"login": "1/m"}})
    assert policy.routes == ["/login"]
    assert policy.metrics()["reloads"] == 1
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(ONCE))
    with Policy.watch(path) as watched:
        assert watched.named("GET", "/login").route == "/login"
        with pytest.raises(InvalidRequest, match="the routes are: /login"):
            watched.named("GET", "nowhere")
    with pytest.raises(RuntimeError, match="is closed"):
        watched.request("GET", "/")


def test_a_loop_is_answered_and_what_is_cancelled_is_given_back(redis, prefix):
    rule = {"rules": "login", "key": "constant:all"}
    document = {
        "version": 1,
        "store": {"url": redis.url, "prefix": prefix},
        "rules": {"login": "9/h"},
        "http": {"default": rule},
    }

    everybody = ("constant", "all")

    async def admitted(policy, count):
        request = policy.request("GET", "/")
        return [bool(one) for one in await asyncio.gather(*(policy.admit_async(request) for _ in range(count)))]

    async def cancelled(policy):
        tasks = [asyncio.ensure_future(policy.admit_async(policy.request("GET", "/"))) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*tasks, return_exceptions=True)
        )
        for _ in range(500):
            if (await asyncio.to_thread(policy.limiter.peek, "login", everybody)).remaining == 9:
                return
            await asyncio.sleep(0.01)
        pytest.fail("what was charged was not given back")

    with Policy(document) as policy:
        policy.ready()
        asyncio.run(cancelled(policy))
        assert sum(asyncio.run(admitted(policy, 20))) == 9
        assert policy.admit(policy.request("GET", "/")).status == 429
    gc.collect()


def test_text_of_headers_is_latin_1_and_nothing_raises():
    policy = MemoryPolicy(
        {**ONCE, "routes": [{"prefix": "/", "rules": "login", "key": "header:x-key", "without_identity": "share"}]}
    )
    request = policy.request("GET", "/\udcff")
    assert policy.admit(request, headers=[("X-Key", "k\xe9y")])
    assert not policy.admit(request, headers=[(b"x-key", b"k\xe9y")])
    assert policy.admit(request, headers=[("X-Key", "\udcff\u4e2d"), ("na\xefve", "x")])


def test_a_count_is_of_a_window_and_taken_back_from_it_alone():
    clock = FakeClock()
    limiter = MemoryPolicy(ONCE, clock=clock).limiter
    counted = limiter.count("login", "a", 10, 3)
    assert (counted.total, counted.left) == (3, 10.0)
    assert limiter.take_back("login", "a", 10, 1, counted.start).total == 2
    clock.advance(10)
    assert limiter.take_back("login", "a", 10, 1, counted.start).total == 0
    assert limiter.count("login", "a", 10).total == 0

    async def asynchronous():
        of = tidegate.AsyncLimiter.of(limiter)
        counted = await of.count("login", "a", 10, 2)
        return (await of.take_back("login", "a", 10, 5, counted.start)).total

    assert asyncio.run(asynchronous()) == 0
    assert limiter.check("login", "log", limits="2/m sliding_window_log")
    assert [units for _, units in limiter.log("login", "log", limits="2/m sliding_window_log")] == [1]

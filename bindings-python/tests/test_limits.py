"""Storages for `limits`, and what stands on it: each strategy, threads, failures, flask-limiter and slowapi."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import flask
import flask_limiter
import pytest
import slowapi
import slowapi.errors
import slowapi.util
import tidegate.limits
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from limits import RateLimitItemPerMinute, RateLimitItemPerSecond, parse
from limits.aio.strategies import STRATEGIES as ASYNC_STRATEGIES
from limits.errors import ConfigurationError, StorageError
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
from tidegate import InvalidRequest, InvalidRule, StoreUnavailable, Timeout

NAMES = ["fixed-window", "moving-window", "sliding-window-counter"]
# So long that none of its windows ends during a test.
LIMIT = parse("5 per 6 months")


class Sync:
    """The asynchronous strategies, called as the others are."""

    def __init__(self, strategy, loop):
        self.strategy, self.loop = strategy, loop

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.loop.run_until_complete(getattr(self.strategy, name)(*args, **kwargs))


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(params=["memory", "redis", "cluster"])
def url(request):
    if request.param == "memory":
        return "tidegate+memory://"
    return f"tidegate+{request.getfixturevalue(request.param).url}"


@pytest.fixture(params=["sync", "async"])
def make(request, url, prefix, loop):
    """Makes a strategy, of its name."""

    def make(name):
        if request.param == "sync":
            return STRATEGIES[name](storage_from_string(url, prefix=prefix))
        return Sync(ASYNC_STRATEGIES[name](storage_from_string(f"async+{url}", prefix=prefix)), loop)

    return make


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_admits_its_limit(make, name):
    limiter = make(name)
    before = time.time()
    assert limiter.get_window_stats(LIMIT, "alice").remaining == 5
    assert limiter.test(LIMIT, "alice", cost=5)
    assert limiter.hit(LIMIT, "alice", cost=3)
    assert limiter.hit(LIMIT, "alice")
    assert limiter.get_window_stats(LIMIT, "alice").remaining == 1
    assert limiter.test(LIMIT, "alice")
    assert not limiter.test(LIMIT, "alice", cost=2)
    assert limiter.hit(LIMIT, "alice")
    assert not limiter.hit(LIMIT, "alice")
    assert not limiter.test(LIMIT, "alice")
    assert limiter.hit(LIMIT, "bob", cost=5), "each key has its own"
    stats = limiter.get_window_stats(LIMIT, "alice")
    assert stats.remaining == 0
    assert before < stats.reset_time <= time.time() + LIMIT.get_expiry()
    limiter.clear(LIMIT, "alice")
    assert limiter.get_window_stats(LIMIT, "alice").remaining == 5
    assert not limiter.test(LIMIT, "bob")
    assert limiter.hit(LIMIT, "alice", cost=5)


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_refusal_charges_nothing(make, name):
    limiter = make(name)
    assert limiter.hit(LIMIT, "alice", cost=3)
    assert not limiter.hit(LIMIT, "alice", cost=3)
    assert not limiter.hit(LIMIT, "alice", cost=6)
    assert not limiter.hit(LIMIT, "alice", cost=20_000_000)
    assert limiter.get_window_stats(LIMIT, "alice").remaining == 2
    assert limiter.hit(LIMIT, "alice", cost=0)
    assert limiter.hit(LIMIT, "alice", cost=2)
    assert limiter.hit(LIMIT, "alice", cost=0)
    assert not limiter.hit(parse("0 per 6 months"), "alice")


def test_a_fixed_window_counts_refusals_as_limits_does(make):
    limiter = make("fixed-window")
    assert limiter.hit(LIMIT, "alice", cost=3)
    assert not limiter.hit(LIMIT, "alice", cost=3)
    assert not limiter.test(LIMIT, "alice")


def test_a_fixed_window_begins_with_its_first_hit(make):
    limiter = make("fixed-window")
    limit = RateLimitItemPerMinute(5)
    before = time.time()
    assert limiter.get_window_stats(limit, "alice").reset_time == pytest.approx(before, abs=5)
    assert limiter.hit(limit, "alice")
    reset = limiter.get_window_stats(limit, "alice").reset_time
    assert before + 60 <= reset + 0.01
    assert reset <= time.time() + 60
    time.sleep(2)
    assert limiter.hit(limit, "alice")
    assert limiter.get_window_stats(limit, "alice").reset_time == pytest.approx(reset, abs=1), "it never moves"


def test_a_moving_window_tells_when_its_oldest_leaves(make):
    limiter = make("moving-window")
    limit = RateLimitItemPerMinute(3)
    before = time.time()
    assert limiter.hit(limit, "alice")
    after = time.time()
    time.sleep(2)
    for remaining in (1, 0):
        assert limiter.hit(limit, "alice")
        stats = limiter.get_window_stats(limit, "alice")
        assert stats.remaining == remaining
        # The store's answer takes a while.
        assert before + 60 - 0.01 <= stats.reset_time <= after + 60 + 1.5


def test_a_moving_window_moves(make):
    limiter = make("moving-window")
    limit = RateLimitItemPerSecond(2)
    assert limiter.hit(limit, "alice", cost=2)
    while not limiter.hit(limit, "alice", cost=2):
        wait = limiter.get_window_stats(limit, "alice").reset_time - time.time()
        assert wait <= 1
        time.sleep(max(wait, 0) + 0.01)


def test_a_sliding_window_counter_tells_a_time_within_its_window(make):
    limiter = make("sliding-window-counter")
    limit = RateLimitItemPerSecond(1)
    assert limiter.hit(limit, "alice")
    tries = 0
    while not limiter.hit(limit, "alice"):
        wait = limiter.get_window_stats(limit, "alice").reset_time - time.time()
        assert wait <= 1
        time.sleep(max(wait, 0) + 0.01)
        tries += 1
    assert tries <= 3, "a full window weighs until the end of the next"


@pytest.mark.parametrize("name", NAMES)
def test_threads_admit_exactly_the_limit(url, prefix, name):
    limiters = [STRATEGIES[name](storage_from_string(url, prefix=prefix)) for _ in range(2)]
    if "memory" in url:
        limiters[1] = limiters[0]
    limit = parse("100 per 6 months")
    with ThreadPoolExecutor(16) as threads:
        admitted = list(threads.map(lambda turn: limiters[turn % 2].hit(limit, "alice"), range(400)))
    assert sum(admitted) == 100
    assert limiters[0].get_window_stats(limit, "alice").remaining == 0


@pytest.mark.parametrize("name", NAMES)
def test_tasks_admit_exactly_the_limit(url, prefix, name):
    limiter = ASYNC_STRATEGIES[name](storage_from_string(f"async+{url}", prefix=prefix))
    limit = parse("100 per 6 months")

    async def hits():
        return await asyncio.gather(*[limiter.hit(limit, "alice") for _ in range(400)])

    assert sum(asyncio.run(hits())) == 100


def test_both_kinds_share_a_server(redis, prefix, loop):
    url = f"tidegate+{redis.url}"
    for name in NAMES:
        one = STRATEGIES[name](storage_from_string(url, prefix=prefix))
        other = Sync(ASYNC_STRATEGIES[name](storage_from_string(f"async+{url}", prefix=prefix)), loop)
        assert [one.hit(LIMIT, "a"), other.hit(LIMIT, "a", cost=4), one.hit(LIMIT, "a")] == [True, True, False]


@pytest.mark.parametrize("kind", ["", "async+"])
def test_reset_is_for_memory(kind, redis, prefix, loop, monkeypatch):
    strategies = ASYNC_STRATEGIES if kind else STRATEGIES

    def limiter(url):
        made = strategies["moving-window"](storage_from_string(kind + url, prefix=prefix))
        return Sync(made, loop) if kind else made

    def reset(storage):
        outcome = storage.reset()
        return loop.run_until_complete(outcome) if kind else outcome

    memory = limiter("tidegate+memory://")
    assert memory.hit(LIMIT, cost=5)
    reset((memory.strategy if kind else memory).storage)
    assert memory.hit(LIMIT, cost=5)
    shared = storage_from_string(f"{kind}tidegate+{redis.url}")
    with pytest.raises(NotImplementedError, match="prefix"):
        reset(shared)
    monkeypatch.setenv("TIDEGATE_URL", redis.url)
    with pytest.raises(NotImplementedError, match="prefix"):
        reset(storage_from_string(f"{kind}tidegate+memory://"))


@pytest.mark.parametrize("kind", ["", "async+"])
def test_what_cannot_be_meant_is_refused(kind):
    with pytest.raises(ConfigurationError, match="socket_timeout"):
        storage_from_string(f"{kind}tidegate+memory://", socket_timeout=1)
    with pytest.raises(ConfigurationError) as refused:
        storage_from_string(f"{kind}tidegate+redis://:hunter2@host:port")
    assert "hunter2" not in str(refused.value)


def test_windows_that_do_not_fit_are_refused(loop):
    storage = storage_from_string("tidegate+memory://", wrap_exceptions=True)
    with pytest.raises(InvalidRule):
        STRATEGIES["moving-window"](storage).hit(parse("1 per 2 years"))
    with pytest.raises(InvalidRule):
        STRATEGIES["moving-window"](storage).hit(parse("20000000 per minute"))
    with pytest.raises(InvalidRequest):
        STRATEGIES["fixed-window"](storage).hit(parse("1 per 2 years"))
    for call in (lambda: storage.incr("alice", 60), lambda: storage.get("a/b"), lambda: storage.get("1/x/minute")):
        with pytest.raises(ValueError, match="key_for") as refused:
            call()
        assert "alice" not in str(refused.value)
    with pytest.raises(ValueError, match="get_expiry"):
        storage.incr(LIMIT.key_for("alice"), 60)
    other = storage_from_string("async+tidegate+memory://")
    with pytest.raises(ValueError, match="key_for"):
        loop.run_until_complete(other.incr("alice", 60))


@pytest.mark.parametrize("kind", ["", "async+"])
@pytest.mark.parametrize("name", NAMES)
def test_a_store_that_fails_raises(kind, name, own_redis, prefix, loop):
    def limiter(**options):
        storage = storage_from_string(f"{kind}tidegate+{own_redis.url}", prefix=prefix, **options)
        return Sync(ASYNC_STRATEGIES[name](storage), loop) if kind else STRATEGIES[name](storage)

    plain, wrapped = limiter(), limiter(wrap_exceptions=True)
    storage = Sync(plain.strategy.storage, loop) if kind else plain.storage
    assert plain.hit(LIMIT)
    assert storage.check()
    own_redis.do("kill")
    for call in ("hit", "test", "get_window_stats", "clear"):
        with pytest.raises((StoreUnavailable, Timeout)):
            getattr(plain, call)(LIMIT)
        with pytest.raises(StorageError) as failed:
            getattr(wrapped, call)(LIMIT)
        assert isinstance(failed.value.storage_error, (StoreUnavailable, Timeout))
    assert not storage.check()
    own_redis.do("restart")
    until = time.monotonic() + 20
    while not storage.check():
        assert time.monotonic() < until
    assert plain.hit(LIMIT)


def flask_app(url, **options):
    app = flask.Flask("shop")
    limiter = flask_limiter.Limiter(
        flask_limiter.util.get_remote_address, app=app, storage_uri=url, headers_enabled=True, **options
    )

    @app.get("/search")
    @limiter.limit("3 per 6 months")
    def search():
        return "found"

    return app.test_client(), limiter


@pytest.mark.parametrize("name", NAMES)
def test_flask_limiter(url, prefix, name):
    client, limiter = flask_app(url, strategy=name, storage_options={"prefix": prefix})
    with client.application.app_context():
        responses = [client.get("/search") for _ in range(4)]
    assert [response.status_code for response in responses] == [200, 200, 200, 429]
    assert [response.headers["X-RateLimit-Remaining"] for response in responses] == ["2", "1", "0", "0"]
    assert 0 < int(responses[3].headers["Retry-After"]) <= LIMIT.get_expiry()
    assert client.get("/search", environ_base={"REMOTE_ADDR": "192.0.2.7"}).status_code == 200
    limiter.reset()
    assert client.get("/search").status_code == (200 if "memory" in url else 429)


def test_flask_limiter_falls_back_and_returns(own_redis, prefix):
    options = {"strategy": "moving-window", "storage_options": {"prefix": prefix}}
    client, _ = flask_app(f"tidegate+{own_redis.url}", in_memory_fallback=["1 per 6 months"], **options)
    raising, _ = flask_app(f"tidegate+{own_redis.url}", **options)
    swallowing, _ = flask_app(f"tidegate+{own_redis.url}", swallow_errors=True, **options)
    assert [client.get("/search").status_code for _ in range(4)] == [200, 200, 200, 429]
    own_redis.do("kill")
    # Of another client: the refusal of the first is remembered for a moment.
    other = {"environ_base": {"REMOTE_ADDR": "192.0.2.7"}}
    assert [client.get("/search", **other).status_code for _ in range(2)] == [200, 429], "the fallback's, in memory"
    assert raising.get("/search", **other).status_code == 500
    assert [swallowing.get("/search", **other).status_code for _ in range(4)] == [200] * 4
    own_redis.do("restart")
    until = time.monotonic() + 60
    while client.get("/search", **other).status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize("name", NAMES)
def test_slowapi(url, prefix, name):
    limiter = slowapi.Limiter(
        slowapi.util.get_remote_address, storage_uri=url, strategy=name, storage_options={"prefix": prefix}
    )
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(slowapi.errors.RateLimitExceeded, slowapi._rate_limit_exceeded_handler)

    @app.get("/search")
    @limiter.limit("3 per 6 months")
    async def search(request: Request):
        return "found"

    client = TestClient(app)
    assert [client.get("/search").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_each_form_of_a_document_has_a_url():
    for form in ("redis", "rediss", "redis+cluster", "rediss+cluster"):
        assert isinstance(storage_from_string(f"tidegate+{form}://127.0.0.1:1"), tidegate.limits.TidegateStorage)
        other = storage_from_string(f"async+tidegate+{form}://127.0.0.1:1")
        assert isinstance(other, tidegate.limits.AsyncTidegateStorage)
    for form in ("redis+sentinel", "rediss+sentinel"):
        assert storage_from_string(f"tidegate+{form}://127.0.0.1:1/main")
    assert storage_from_string("tidegate+redis+unix:///run/no.socket")

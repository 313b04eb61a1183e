"""Who is compared: each limiter as one function of a key that is true if the request may pass.

All of them have a rule that refuses none of a run, or for a hot key one that refuses all of it.
"""

from __future__ import annotations

import pathlib
from typing import Any, Awaitable, Callable, Dict

import limits
import limits.aio
import limits.aio.strategies
import limits.strategies
import redis
import redis.asyncio
import redis.connection
import throttled
import throttled.asyncio
import tidegate
from redis._parsers import _AsyncHiredisParser, _AsyncRESP2Parser, _HiredisParser, _RESP2Parser
from rounds import OURS

UNITS, WINDOW = 100_000, 60
# As many connections as there may be calls in flight, and some.
POOL = 300
BUCKET = pathlib.Path(__file__).resolve().parents[2].joinpath("benches/textbook/one_value_bucket.lua").read_text()

Check = Callable[[str], bool]
AsyncCheck = Callable[[str], Awaitable[bool]]


def ours(url: str) -> Check:
    check = limiter(url).check
    return lambda key: check("login", key).allowed


def limiter(url: str) -> tidegate.Limiter:
    # A store that fails is no answer here.
    limit = {"login": f"{UNITS}/{WINDOW}s token_bucket", "hot": "1/h"}
    rules = {name: {"limits": limits, "on_error": "deny"} for name, limits in limit.items()}
    made = tidegate.Limiter(rules, url=url, deadline=10)
    made.ready()
    return made


def hot_ours(url: str) -> Check:
    check = limiter(url).check
    return lambda key: check("hot", key).allowed


def limits_fixed(url: str, units: int = UNITS) -> Check:
    return _limits(limits.strategies.FixedWindowRateLimiter, url, units)


def limits_moving(url: str, units: int = UNITS) -> Check:
    return _limits(limits.strategies.MovingWindowRateLimiter, url, units)


def _limits(strategy: Any, url: str, units: int) -> Check:
    # The strategies would read each other's keys.
    hit = strategy(limits.storage.storage_from_string(url, key_prefix=strategy.__name__)).hit
    item = limits.RateLimitItemPerHour(units)
    return lambda key: bool(hit(item, key))


def throttled_py(url: str) -> Check:
    limit = throttled.Throttled(
        using=throttled.RateLimiterType.GCRA.value,
        quota=throttled.per_min(UNITS, burst=UNITS),
        store=throttled.store.RedisStore(server=url, options={"CONNECTION_POOL_KWARGS": {"max_connections": POOL}}),
    ).limit
    return lambda key: not limit(key).limited


def redis_py(url: str, *, hiredis: bool) -> Check:
    """The textbook's bucket by EVALSHA."""
    pool = redis.ConnectionPool.from_url(url, parser_class=_HiredisParser if hiredis else _RESP2Parser, protocol=2)
    client = redis.Redis(connection_pool=pool)
    sha, evalsha = client.script_load(BUCKET), client.evalsha
    return lambda key: evalsha(sha, 1, "bucket:{" + key + "}", UNITS, WINDOW, UNITS)[0] == 1


def sync(url: str) -> Dict[str, Check]:
    return {
        OURS: ours(url),
        "limits fixed window": limits_fixed(url),
        "limits moving window": limits_moving(url),
        "throttled-py": throttled_py(url),
        "redis-py": redis_py(url, hiredis=False),
        "redis-py with hiredis": redis_py(url, hiredis=True),
    }


def async_ours(url: str) -> AsyncCheck:
    check = tidegate.AsyncLimiter.of(limiter(url)).check

    async def allowed(key: str) -> bool:
        return (await check("login", key)).allowed

    return allowed


def async_limits(url: str, strategy: Any, implementation: str) -> AsyncCheck:
    options: Dict[str, Any] = {"implementation": implementation, "max_connections": POOL}
    storage = limits.aio.storage.RedisStorage("async+" + url, key_prefix=strategy.__name__, **options)
    hit, item = strategy(storage).hit, limits.RateLimitItemPerHour(UNITS)

    async def allowed(key: str) -> bool:
        return bool(await hit(item, key))

    return allowed


def async_throttled_py(url: str) -> AsyncCheck:
    options = {"CONNECTION_POOL_KWARGS": {"max_connections": POOL}}
    limit = throttled.asyncio.Throttled(
        using=throttled.RateLimiterType.GCRA.value,
        quota=throttled.per_min(UNITS, burst=UNITS),
        store=throttled.asyncio.RedisStore(server=url, options=options),
    ).limit

    async def allowed(key: str) -> bool:
        return not (await limit(key)).limited

    return allowed


def async_redis_py(url: str, *, hiredis: bool) -> AsyncCheck:
    parser = _AsyncHiredisParser if hiredis else _AsyncRESP2Parser
    pool = redis.asyncio.ConnectionPool.from_url(url, max_connections=POOL, parser_class=parser, protocol=2)
    client = redis.asyncio.Redis(connection_pool=pool)
    with redis.Redis.from_url(url) as loader:
        sha = loader.script_load(BUCKET)
    evalsha = client.evalsha

    async def allowed(key: str) -> bool:
        return bool((await evalsha(sha, 1, "bucket:{" + key + "}", UNITS, WINDOW, UNITS))[0] == 1)

    return allowed


def asynchronous(url: str) -> Dict[str, AsyncCheck]:
    fixed, moving = limits.aio.strategies.FixedWindowRateLimiter, limits.aio.strategies.MovingWindowRateLimiter
    return {
        OURS: async_ours(url),
        "redis.asyncio": async_redis_py(url, hiredis=False),
        "redis.asyncio with hiredis": async_redis_py(url, hiredis=True),
        "throttled-py async": async_throttled_py(url),
        "limits async fixed window": async_limits(url, fixed, "redispy"),
        "limits async moving window": async_limits(url, moving, "redispy"),
        "limits async fixed window on coredis": async_limits(url, fixed, "coredis"),
    }

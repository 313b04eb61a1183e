"""One view of Django's, behind no middleware, behind ours, or behind one that a team writes on redis-py.

`TIDEGATE_BENCH_URL` is the server, `TIDEGATE_BENCH_WHO` whose middleware gunicorn serves.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Callable

import django
import redis
import redis.asyncio
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import path
from django.utils.decorators import async_only_middleware
from peers import BUCKET, POOL, UNITS, WINDOW

MIDDLEWARE = {
    "bare": [],
    "tidegate": ["tidegate.django.RateLimitMiddleware"],
    "redis-py middleware": [f"{__name__}.RedisPyMiddleware"],
}
ASYNC_MIDDLEWARE = {**MIDDLEWARE, "redis-py middleware": [f"{__name__}.redis_asyncio"]}


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


async def async_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


urlpatterns = [path("upload", view), path("upload/async", async_view)]


class RedisPyMiddleware:
    """The least that limits by address: one EVALSHA, no field in any response but Retry-After, nothing if it fails."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        client = redis.Redis.from_url(os.environ["TIDEGATE_BENCH_URL"])
        self.sha, self.evalsha = client.script_load(BUCKET), client.evalsha

    def __call__(self, request: HttpRequest) -> HttpResponse:
        key = "bucket:{" + request.META["REMOTE_ADDR"] + "}"
        allowed, _, retry_after, _ = self.evalsha(self.sha, 1, key, UNITS, WINDOW, UNITS)
        if not allowed:
            return HttpResponse(status=429, headers={"Retry-After": str(int(float(retry_after)) + 1)})
        return self.get_response(request)


class SocketMiddleware:
    """The least that any client could do: the same command on a bare socket, and a reply that nobody reads."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        with redis.Redis.from_url(os.environ["TIDEGATE_BENCH_URL"]) as client:
            sha = client.script_load(BUCKET)
            options = client.connection_pool.connection_kwargs
        self.socket = socket.create_connection((options["host"], options["port"]))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.before, self.after = _bulk("EVALSHA", sha, "1"), _bulk(str(UNITS), str(WINDOW), str(UNITS))

    def __call__(self, request: HttpRequest) -> HttpResponse:
        key = _bulk("bucket:{" + request.META["REMOTE_ADDR"] + "}")
        self.socket.sendall(b"*7\r\n" + self.before + key + self.after)
        self.socket.recv(4096)
        return self.get_response(request)


def _bulk(*words: str) -> bytes:
    return "".join(f"${len(word)}\r\n{word}\r\n" for word in words).encode()


@async_only_middleware
def redis_asyncio(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """`RedisPyMiddleware` on redis.asyncio, with a pool that is large enough."""
    client = redis.asyncio.Redis.from_url(os.environ["TIDEGATE_BENCH_URL"], max_connections=POOL)
    with redis.Redis.from_url(os.environ["TIDEGATE_BENCH_URL"]) as loader:
        sha = loader.script_load(BUCKET)

    async def middleware(request: HttpRequest) -> HttpResponse:
        key = "bucket:{" + request.META["REMOTE_ADDR"] + "}"
        allowed, _, retry_after, _ = await client.evalsha(sha, 1, key, UNITS, WINDOW, UNITS)
        if not allowed:
            return HttpResponse(status=429, headers={"Retry-After": str(int(float(retry_after)) + 1)})
        response: HttpResponse = await get_response(request)
        return response

    return middleware


def configure(url: str) -> None:
    """Django's settings, for this process: they are the same for all its cases."""
    if settings.configured:
        return
    os.environ["TIDEGATE_BENCH_URL"] = url
    rule = {"limits": f"{UNITS}/{WINDOW}s token_bucket", "on_error": "deny"}
    route = {"prefix": "/upload", "rules": "upload", "key": "ip"}
    store = {"deadline": "10s"}
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="of no use",
        TIDEGATE={"URL": url, "STORE": store, "RULES": {"upload": rule}, "ROUTES": [route]},
    )
    django.setup()


def handler(who: str) -> WSGIHandler:
    """Django's own handler, with the middleware chain of one of them."""
    with override_settings(MIDDLEWARE=MIDDLEWARE[who]):
        return WSGIHandler()


def floor() -> WSGIHandler:
    """With a middleware that only sends and receives."""
    with override_settings(MIDDLEWARE=[f"{__name__}.SocketMiddleware"]):
        return WSGIHandler()


def async_handler(who: str) -> ASGIHandler:
    """The same for ASGI."""
    with override_settings(MIDDLEWARE=ASYNC_MIDDLEWARE[who]):
        return ASGIHandler()


def application() -> WSGIHandler:
    """What gunicorn serves."""
    configure(os.environ["TIDEGATE_BENCH_URL"])
    return handler(os.environ["TIDEGATE_BENCH_WHO"])

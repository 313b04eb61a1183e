"""One view of Django's, behind no middleware, behind ours, or behind one that a team writes on redis-py.

`TIDEGATE_BENCH_URL` is the server, `TIDEGATE_BENCH_WHO` whose middleware gunicorn serves.
"""

from __future__ import annotations

import os
from typing import Callable

import django
import redis
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import path
from peers import BUCKET, UNITS, WINDOW

MIDDLEWARE = {
    "bare": [],
    "tidegate": ["tidegate.django.RateLimitMiddleware"],
    "redis-py middleware": [f"{__name__}.RedisPyMiddleware"],
}


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


urlpatterns = [path("upload", view)]


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


def configure(url: str) -> None:
    """Django's settings, for this process."""
    os.environ["TIDEGATE_BENCH_URL"] = url
    rule = {"limits": f"{UNITS}/{WINDOW}s token_bucket", "on_error": "deny"}
    route = {"path": "/upload", "rules": "upload", "key": "ip"}
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


def application() -> WSGIHandler:
    """What gunicorn serves."""
    configure(os.environ["TIDEGATE_BENCH_URL"])
    return handler(os.environ["TIDEGATE_BENCH_WHO"])

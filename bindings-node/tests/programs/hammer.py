"""Checks one key as often as it is told, and tells how many were admitted: a plain process, or Django's.

    python hammer.py limiter '{"url": ..., "prefix": ..., "rules": {"hammer": ...}}' CALLS
    python hammer.py django PATH_OF_A_DOCUMENT CALLS

It begins at a line of input."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

THREADS = 4


def limiter(told):
    from tidegate import Limiter

    made = Limiter(**json.loads(told))
    return lambda: bool(made.check("hammer", "alice"))


def login(_request):
    from django.http import HttpResponse

    return HttpResponse("you are in")


urlpatterns = []


def django(path):
    import django as framework
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.test import Client
    from django.urls import path as route

    urlpatterns.append(route("login", login))
    settings.configure(
        SECRET_KEY="of tests",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=["tidegate.django"],
        MIDDLEWARE=["tidegate.django.RateLimitMiddleware"],
        TIDEGATE={"DOCUMENT": path},
    )
    framework.setup()
    get_wsgi_application()
    client = Client()
    return lambda: {200: True, 429: False}[client.post("/login", REMOTE_ADDR="203.0.113.7").status_code]


call = {"limiter": limiter, "django": django}[sys.argv[1]](sys.argv[2])
calls = int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(THREADS) as pool:
    print(sum(pool.map(lambda _: call(), range(calls))))

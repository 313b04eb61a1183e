"""A whole project under gunicorn, which preloads it and forks, and under uvicorn: they admit exactly the limit."""

import collections
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

SETTINGS = """
import os

SECRET_KEY = "of tests"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "project"
INSTALLED_APPS = ["tidegate.django"]
MIDDLEWARE = ["tidegate.django.RateLimitMiddleware"]
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": os.environ["URL"],
        "KEY_PREFIX": os.environ["PREFIX"],
    }
}
TIDEGATE = {
    "USE_CACHE": "default",
    "STORE": {"deadline": "20s"},
    "RULES": {"login": "100/h"},
    "ROUTES": [{"path": "/login", "rules": "login", "key": "ip"}],
}
"""
PROJECT = """
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from tidegate.django import conf

application, asgi = get_wsgi_application(), get_asgi_application()


def login(request):
    return JsonResponse({"process": os.getpid(), "origins": [one.origin for one in request.ratelimit.decisions]})


async def login_async(request):
    return login(request)


urlpatterns = [path("login", login_async if os.environ["ASGI"] else login)]
"""
PRELOAD = """
# In the parent, before it forks.
policy = conf.current().policy
assert policy.admit(policy.request("POST", "/login"), peer="127.0.0.1")
"""
GUNICORN = ["gunicorn", "--preload", "--bind=127.0.0.1:0", "project"]
UVICORN = ["uvicorn", "--port=0", "--no-proxy-headers", "project:asgi"]


@pytest.mark.parametrize(
    ("server", "options"),
    [
        (GUNICORN, ["--workers=2", "--threads=4"]),
        (GUNICORN, ["--workers=3"]),
        (UVICORN, ["--workers=2"]),
        (UVICORN, ["--loop=uvloop"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_project_admits_exactly_the_limit(server, options, redis, prefix, tmp_path):
    forks = server is GUNICORN
    (tmp_path / "settings.py").write_text(SETTINGS)
    (tmp_path / "project.py").write_text(PROJECT + (PRELOAD if forks else ""))
    (tmp_path / "gunicorn.conf.py").touch()
    running = subprocess.Popen(
        [sys.executable, "-m", *server, *options],
        cwd=tmp_path,
        env={**os.environ, "URL": redis.url, "PREFIX": prefix, "ASGI": "" if forks else "yes"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = iter(running.stderr.readline, "")
        pattern = r"(?:Listening at:|running on) (http://[\d.:]+)"
        address = next(found[1] for line in lines if (found := re.search(pattern, line)))
        threading.Thread(target=lambda: list(lines), daemon=True).start()
        await_listener(address)
        answers = load(address + "/login", threads=8, each=25)
    finally:
        running.terminate()
        running.wait(60)
        running.stderr.close()
    admitted = 99 if forks else 100  # the parent has had one
    assert collections.Counter(status for status, _ in answers) == {200: admitted, 429: 200 - admitted}
    passed = [json.loads(body) for status, body in answers if status == 200]
    assert {origin for answer in passed for origin in answer["origins"]} == {"store"}
    if forks:
        assert running.pid not in {answer["process"] for answer in passed}


def await_listener(address):
    """uvicorn's parent tells the address before a worker listens there."""
    host, port = address.removeprefix("http://").split(":")
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("nobody listens")


def load(url, threads, each):
    """What so many threads are answered, each of which asks so often and claims another address each time."""
    answers, lock = [], threading.Lock()

    def ask(thread):
        for number in range(each):
            headers = {"X-Forwarded-For": f"192.0.2.{thread * each + number}"}
            answer = asked(urllib.request.Request(url, data=b"", headers=headers))
            with lock:
                answers.append(answer)

    running = [threading.Thread(target=ask, args=[thread]) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return answers


def asked(request):
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()

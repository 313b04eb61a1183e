"""A whole project under gunicorn, which preloads it and forks: all of its threads admit exactly the limit."""

import collections
import json
import os
import re
import subprocess
import sys
import threading
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
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from tidegate.django import conf

application = get_wsgi_application()


def login(request):
    return JsonResponse({"process": os.getpid(), "origins": [one.origin for one in request.ratelimit.decisions]})


urlpatterns = [path("login", login)]
# In the parent, before it forks.
policy = conf.current().policy
assert policy.admit(policy.request("POST", "/login"), peer="127.0.0.1")
"""


@pytest.mark.parametrize("options", [["--workers=2", "--threads=4"], ["--workers=3"]])
def test_a_project_admits_exactly_the_limit(options, redis, prefix, tmp_path):
    (tmp_path / "settings.py").write_text(SETTINGS)
    (tmp_path / "project.py").write_text(PROJECT)
    (tmp_path / "gunicorn.conf.py").touch()
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "--bind=127.0.0.1:0", *options, "project"],
        cwd=tmp_path,
        env={**os.environ, "URL": redis.url, "PREFIX": prefix},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = iter(server.stderr.readline, "")
        address = next(found[1] for line in lines if (found := re.search(r"Listening at: (http://\S+)", line)))
        threading.Thread(target=lambda: list(lines), daemon=True).start()
        answers = load(address + "/login", threads=8, each=25)
    finally:
        server.terminate()
        assert server.wait(60) == 0
        server.stderr.close()
    assert collections.Counter(status for status, _ in answers) == {200: 99, 429: 101}
    passed = [json.loads(body) for status, body in answers if status == 200]
    assert {origin for answer in passed for origin in answer["origins"]} == {"store"}
    assert server.pid not in {answer["process"] for answer in passed}


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

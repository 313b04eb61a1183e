"""examples/django_app under gunicorn: 100 users send 10,000 uploads, and what is admitted is counted exactly."""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Iterator

import pytest
from conftest import ROOT

EXAMPLE = ROOT / "examples" / "django_app"
USERS, EACH = 100, 100

# Makes users, and prints a session cookie for each.
MAKE_USERS = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
for number in range(%d):
    client = Client()
    client.force_login(User.objects.create(username=f"user{number}"))
    print(client.cookies[settings.SESSION_COOKIE_NAME].value)
"""


@pytest.fixture
def environment(redis, tmp_path):
    return {
        **os.environ,
        "TIDEGATE_URL": redis.url,
        "SHOP_DATABASE": str(tmp_path / "shop.sqlite3"),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PYTHONPATH": str(EXAMPLE),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def cookies(environment: dict[str, str]) -> list[str]:
    script = "import django; django.setup()\n" + MAKE_USERS % USERS
    made = subprocess.run(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True, timeout=120
    )
    assert made.returncode == 0
    return made.stdout.split()


# The example's own settings, and a middleware that tells the test when the store charged.
SETTINGS = """
from shop.settings import *
TIDEGATE = {"DOCUMENT": r"%s"}
MIDDLEWARE = [*MIDDLEWARE, "told.told"]
"""
TOLD = """
def told(get_response):
    def middleware(request):
        response = get_response(request)
        if response.status_code == 200:
            response["Charged-At"], = request.ratelimit.decisions[0].receipt.charged_at
        return response
    return middleware
"""


@contextlib.contextmanager
def served(limit: str, environment: dict[str, str], folder: pathlib.Path) -> Iterator[tuple[str, int]]:
    document = (EXAMPLE / "tidegate.toml").read_text()
    assert '"5/s"' in document
    (folder / "tidegate.toml").write_text(document.replace('"5/s"', f'"{limit}"'))
    (folder / "told_settings.py").write_text(SETTINGS % (folder / "tidegate.toml"))
    (folder / "told.py").write_text(TOLD)
    options = ["--preload", "--bind=127.0.0.1:0", "--workers=2", "--threads=8", "--keep-alive=60"]
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "shop.wsgi"],
        env={**environment, "DJANGO_SETTINGS_MODULE": "told_settings"},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = iter(server.stderr.readline, "")
        found = next(found for line in lines if (found := re.search(r"Listening at: http://(\S+):(\d+)", line)))
        threading.Thread(target=lambda: list(lines), daemon=True).start()
        yield found[1], int(found[2])
    finally:
        server.terminate()
        assert server.wait(60) == 0
        server.stderr.close()


def upload(address: tuple[str, int], cookie: str, times: int) -> list[tuple[int, int | None]]:
    """Statuses, and when the store charged."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    answers = []
    for _ in range(times):
        connection.request("POST", "/upload", b"bytes", {"Cookie": f"sessionid={cookie}"})
        with connection.getresponse() as response:
            response.read()
            charged = response.headers["Charged-At"]
            answers.append((response.status, charged and int(charged)))
    connection.close()
    return answers


@pytest.mark.parametrize("limit", ["5/s", "5/d"])
def test_10000_uploads_of_100_users(limit, redis, environment, tmp_path):
    redis.do("flush")
    sessions = cookies(environment)
    assert len(sessions) == USERS
    with served(limit, environment, tmp_path) as address, ThreadPoolExecutor(16) as pool:
        # Each user by two connections at once.
        jobs = [pool.submit(upload, address, session, EACH // 2) for session in sessions for _ in range(2)]
        answers = [job.result() for job in jobs]
        assert upload(address, "nobody", 1) == [(403, None)]
    assert sum(map(len, answers)) == 10_000
    for one, other in zip(answers[::2], answers[1::2]):
        assert {status for status, _ in one + other} == {200, 429}
        charged = sorted(at for status, at in one + other if status == 200)
        if limit == "5/d":
            assert len(charged) == 5
        assert all(later - earlier >= 1_000_000 for earlier, later in zip(charged, charged[5:]))

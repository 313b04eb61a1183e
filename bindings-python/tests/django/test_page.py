"""docs/django.md, followed to the letter in an empty folder."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from conftest import ROOT

PAGE = (ROOT / "docs" / "django.md").read_text()
BLOCKS = re.findall(r"```(console|python)\n(.*?)```", PAGE, re.DOTALL)
CONSOLES = [block for kind, block in BLOCKS if kind == "console"]
SNIPPETS = [block for kind, block in BLOCKS if kind == "python"]


def run(folder, line):
    """A line of the page, with this Python."""
    words = line.split()
    program = [sys.executable, "-m", "django"] if words[0] == "django-admin" else [sys.executable]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [*program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def status(url):
    try:
        urllib.request.urlopen(urllib.request.Request(url, data=b""), timeout=60).close()
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return 200


def serve(folder):
    """`runserver`, on a port that is free, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "manage.py", "runserver", "--noreload", str(port)]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server, f"http://127.0.0.1:{port}"
        time.sleep(0.05)
    server.kill()
    server.wait()
    raise RuntimeError("runserver does not listen")


def test_from_an_empty_project_to_a_limited_login(redis, prefix, tmp_path):
    install, start = CONSOLES[0].splitlines()
    assert install == "$ pip install Django tidegate"
    assert run(tmp_path, start[2:])[0] == 0
    with (tmp_path / "mysite" / "settings.py").open("a") as settings:
        settings.write(SNIPPETS[0].replace("redis://127.0.0.1:6379", redis.url))
        settings.write(f'TIDEGATE["STORE"] = {{"prefix": "{prefix}", "deadline": "20s"}}\n')
    steps = re.findall(r"\$ (.*)\n((?:[^$].*\n)*)", CONSOLES[1])
    assert len(steps) == 4
    for line, expected in steps[:3]:
        code, text = run(tmp_path, line)
        assert code == 0, text
        assert expected in text
    assert steps[3][0] == "python manage.py runserver"
    server, address = serve(tmp_path)
    try:
        answers = [status(address + "/admin/login/") for _ in range(6)]
    finally:
        server.terminate()
        server.wait(60)
    assert answers == [int(number) for number in re.findall(r"^\d+$", CONSOLES[2], re.MULTILINE)]
    reset, told = re.findall(r"\$ (python .*)\n(.*\n)", CONSOLES[2])[0]
    assert run(tmp_path, reset) == (0, told)


@pytest.mark.parametrize("number", range(1, len(SNIPPETS)))
def test_other_snippets_run(number):
    import django_ready  # noqa: F401
    from django.test import override_settings
    from tidegate.django import conf

    names = {}
    exec(compile(SNIPPETS[number], "docs/django.md", "exec"), names)
    if "TIDEGATE" in names:
        with override_settings(TIDEGATE=names["TIDEGATE"]):
            assert conf.current().policy.routes


def test_every_check_is_on_the_page():
    package = ROOT / "bindings-python" / "python" / "tidegate" / "django"
    texts = [(package / name).read_text() for name in ("checks.py", "view_checks.py")]
    ids = set(re.findall(r"tidegate\.[EW]\d{3}", "".join(texts)))
    assert ids == set(re.findall(r"`(tidegate\.[EW]\d{3})`", PAGE))


def test_every_setting_is_on_the_page():
    import django_ready  # noqa: F401
    from tidegate.django.conf import KEYS

    table = PAGE.split("| key | what | default |")[1].split("\n\n")[0]
    assert set(KEYS) == set(
        re.findall(r"`([A-Z_]+)`", "\n".join(row.split("|")[1] for row in table.splitlines() if row))
    )

"""Real servers, started by the workspace's own harness."""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
from typing import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIXES = itertools.count()


class Servers:
    """A server, or a cluster of six. It ends with this object, and with this process."""

    def __init__(self, kind: str) -> None:
        self.process = subprocess.Popen(
            [os.environ["TIDEGATE_TEST_SERVERS"], kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self._line()

    def do(self, what: str) -> str:
        """Pauses, resumes, kills, restarts or flushes it, or counts its eternal keys."""
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self._line()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            self.process.communicate()
            raise RuntimeError("the servers are gone")
        return line


def _servers(kind: str) -> Iterator[Servers]:
    servers = Servers(kind)
    yield servers
    assert servers.do("eternal") == "0", "every key has a TTL"
    servers.end()


@pytest.fixture(scope="session")
def redis() -> Iterator[Servers]:
    """A server that all tests share: use a prefix of your own, and leave the process alone."""
    yield from _servers("server")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Servers]:
    """A cluster that all tests share."""
    yield from _servers("cluster")


@pytest.fixture
def own_redis() -> Iterator[Servers]:
    """A server that the test may hurt. It must run when the test ends."""
    yield from _servers("server")


@pytest.fixture
def prefix() -> str:
    return f"py{os.getpid()}-{next(PREFIXES)}"


@pytest.fixture(autouse=True)
def _no_url_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_URL", raising=False)

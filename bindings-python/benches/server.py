"""A server of this run alone, on a core of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Iterator

import redis

CLIENT_CORE, SERVER_CORE = 0, 1


def pin_client() -> None:
    """Keeps this process, and all that it starts, on the client's core. To be called before a thread is started."""
    if not {CLIENT_CORE, SERVER_CORE} <= os.sched_getaffinity(0):
        raise SystemExit("the benchmarks need cores 0 and 1: one for the client, and one for the server")
    for program in ("taskset", "redis-server"):
        if shutil.which(program) is None:
            raise SystemExit(
                f"the benchmarks need {program}; `make test` installs redis-server, util-linux has taskset"
            )
    os.sched_setaffinity(0, {CLIENT_CORE})


@contextlib.contextmanager
def started() -> Iterator[str]:
    """The URL of a server that is empty, and ends with the block."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        port = free_port()
        command = [
            "taskset",
            "--cpu-list",
            str(SERVER_CORE),
            "redis-server",
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
        ]
        command += ["--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            _await(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 30
    with redis.Redis.from_url(url) as client:
        while True:
            try:
                client.ping()
                return
            except redis.ConnectionError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit("redis-server does not answer") from None
                time.sleep(0.02)

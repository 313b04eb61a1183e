"""A limiter made when a Celery worker's application is imported, and used there, works in the processes it forks."""

import json
import os
import signal
import subprocess
import sys
import textwrap

APPLICATION = """
    import os
    import celery, tidegate

    application = celery.Celery("application", broker=os.environ["URL"], backend=os.environ["URL"])
    limiter = tidegate.Limiter({"a": "50/h"}, url=os.environ["URL"], deadline=20)
    limiter.check("a", "x")
    imported_by = os.getpid()

    @application.task
    def check():
        decision = limiter.check("a", "x")
        return decision.allowed, decision.origin, os.getpid() != imported_by, os.getpid()
"""

CLIENT = """
    import json, os
    import celery

    client = celery.Celery("client", broker=os.environ["URL"], backend=os.environ["URL"])
    tasks = [client.send_task("application.check") for _ in range(120)]
    print(json.dumps([task.get(timeout=100) for task in tasks]))
"""

CELERY = [sys.executable, "-m", "celery", "--app=application", "worker"]
ALONE = ["--without-mingle", "--without-gossip", "--without-heartbeat"]


def test_a_prefork_worker(own_redis, tmp_path):
    (tmp_path / "application.py").write_text(textwrap.dedent(APPLICATION))
    (tmp_path / "client.py").write_text(textwrap.dedent(CLIENT))
    environment = {**os.environ, "URL": own_redis.url}
    worker = subprocess.Popen(
        # Forks go on: a process ends with its thirtieth task.
        [*CELERY, "--pool=prefork", "--concurrency=2", "--max-tasks-per-child=30", *ALONE],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        client = subprocess.run(
            [sys.executable, "client.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, timeout=120
        )
        assert client.returncode == 0
        answers = json.loads(client.stdout)
        assert sum(allowed for allowed, *_ in answers) == 49, "one was admitted when it was imported"
        assert {origin for _, origin, *_ in answers} <= {"store", "deny_cache"}
        assert all(forked for _, _, forked, _ in answers)
        assert len({process for *_, process in answers}) >= 4
    finally:
        end(worker)
        # What Celery keeps has no end.
        own_redis.do("flush")
    assert worker.returncode == 0


def end(worker):
    """Ends it, and its processes with it if it does not end by itself."""
    worker.terminate()
    try:
        worker.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

"""Runs the tests that `limits` has for its strategies, from its own source distribution, against Tidegate's storages.

    TIDEGATE_TEST_SERVERS=... python tests/limits_own_tests.py [what pytest takes]

It needs the network. The tests are unpacked into a folder that is removed at the end; of theirs only the list of
storages is replaced, and the fixtures that start servers.

Four tests of the sliding window counter fail on every storage: `test_sliding_window_counter`,
`test_sliding_window_counter_previous_window` (both kinds) and `test_sliding_window_counter_stats`. They want the end of
the current window as the reset time, and weights rounded down; docs/migrating-limits.md says what is told here instead.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version

from conftest import Servers

# What their tests are run with, beside what ours have.
TOOLS = ["pytest-asyncio==1.5.0", "pytest-lazy-fixtures==1.4.0"]
TESTS = ["tests/test_strategy.py", "tests/aio/test_strategy.py", "tests/integration/test_concurrency.py"]

PYTEST = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
markers =
  flaky
  integration
"""

CONFTEST = """
import pytest
from conftest_storages import reset

@pytest.fixture(autouse=True)
def _untouched():
    reset()
"""

# Their tests wait for the clock where a storage says that its sliding windows go by it, as ours do.
STORAGES = """
import itertools
import tidegate.limits
from limits.storage.base import TimestampedSlidingWindow
from limits._storage_scheme import SCHEMES

PREFIXES = itertools.count()
PREFIX = {{}}

def reset():
    PREFIX["prefix"] = f"limits-{{next(PREFIXES)}}"

def marked(storage):
    class Marked(storage, TimestampedSlidingWindow):
        STORAGE_SCHEME = storage.STORAGE_SCHEME
        def __init__(self, uri, **options):
            super().__init__(uri, **PREFIX, **options)
    return Marked

marked(tidegate.limits.TidegateStorage)
marked(tidegate.limits.AsyncTidegateStorage)

URLS = {{"memory": "tidegate+memory://", "redis": "tidegate+{redis}", "cluster": "tidegate+{cluster}"}}
"""

REPLACED = """
from conftest_storages import URLS
ALL_STORAGES = {name: pytest.param(url, {}, None, id=name) for name, url in URLS.items()}
ALL_STORAGES_ASYNC = {name: pytest.param("async+" + url, {}, None, id=name) for name, url in URLS.items()}
all_storage = """


def unpacked(folder: pathlib.Path) -> pathlib.Path:
    """Their source distribution, of the version that is installed."""
    what = f"limits=={version('limits')}"
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "limits", "-d", folder, what]
    subprocess.run(download, check=True)
    with tarfile.open(next(folder.glob("limits-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.glob("limits-*") if path.is_dir())


def adapt(source: pathlib.Path, redis: str, cluster: str) -> None:
    tests = source / "tests"
    (tests / "conftest.py").write_text(CONFTEST)
    (source / "conftest_storages.py").write_text(STORAGES.format(redis=redis, cluster=cluster))
    utils = (tests / "utils.py").read_text()
    (tests / "utils.py").write_text(utils.replace("all_storage = ", REPLACED, 1))
    # Not theirs is run, but what is installed.
    (source / "limits").rename(source / "unused")
    (source / "pytest.ini").write_text(PYTEST)


def main() -> int:
    redis, cluster = Servers("server"), Servers("cluster")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "-t", folder / "tools", "--no-deps", *TOOLS], check=True
        )
        source = unpacked(folder)
        adapt(source, redis.url, cluster.url)
        paths = f"import sys; sys.path[:0] = [{str(source)!r}]; sys.path.append({str(folder / 'tools')!r}); "
        run = [sys.executable, "-c", paths + "import pytest; sys.exit(pytest.main(sys.argv[1:]))"]
        plugins = ["-p", "pytest_asyncio", "-p", "pytest_lazy_fixtures"]
        outcome = subprocess.run([*run, *plugins, "-q", "-W", "ignore", *TESTS, *sys.argv[1:]], cwd=source).returncode
    redis.end()
    cluster.end()
    return outcome


if __name__ == "__main__":
    sys.exit(main())

"""What the wheel and the source distribution contain. TIDEGATE_WHEEL is the released wheel, which `make wheel-release`
makes and looks at; without it, it is the wheel that the tests run on."""

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import ROOT

RELEASED = os.environ.get("TIDEGATE_WHEEL")
# The oldest C library that a released wheel runs on: that of manylinux2014.
GLIBC = (2, 17)
PYTHON = ROOT / "bindings-python" / "python" / "tidegate"


@pytest.fixture(scope="module")
def wheel():
    built = sorted((ROOT / "target" / "python" / "wheels").glob("tidegate-*.whl"))
    assert RELEASED or built, "make wheel-python builds it"
    with zipfile.ZipFile(RELEASED or built[-1]) as opened:
        yield opened


def told(wheel, name):
    [path] = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return email.message_from_bytes(wheel.read(path))


def test_one_wheel_is_for_cpython_3_9_and_all_after_it(wheel):
    tags = told(wheel, "WHEEL").get_all("Tag")
    assert tags
    for tag in tags:
        assert tag.startswith("cp39-abi3-")
    assert told(wheel, "METADATA")["Requires-Python"] == ">=3.9"
    assert [name for name in wheel.namelist() if name.endswith(".so")] == ["tidegate/_tidegate.abi3.so"]


def test_it_needs_no_other_package(wheel):
    required = told(wheel, "METADATA").get_all("Requires-Dist", [])
    assert [one for one in required if "extra ==" not in one] == []


def test_it_has_every_module_the_types_and_the_metadata(wheel):
    sources = {path.relative_to(PYTHON.parent).as_posix() for path in PYTHON.rglob("*.py")}
    names = set(wheel.namelist())
    assert sources | {"tidegate/py.typed", "tidegate/_tidegate.pyi"} <= names
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    metadata = told(wheel, "METADATA")
    assert (metadata["Name"], metadata["License-Expression"]) == ("tidegate", "MIT OR Apache-2.0")
    assert set(metadata.get_all("License-File")) == {"LICENSE-APACHE", "LICENSE-MIT"}
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    entry_points = told(wheel, "entry_points.txt").get_payload()
    assert "tidegate=tidegate.pytest_plugin" in entry_points.replace(" ", "")


@pytest.fixture(scope="module")
def module(wheel, tmp_path_factory):
    return wheel.extract("tidegate/_tidegate.abi3.so", tmp_path_factory.mktemp("wheel"))


def test_it_links_the_system_alone(module):
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", module))
    # No Python's library and no OpenSSL.
    system = r"lib(c|m|dl|pthread|rt|gcc_s)\.so\.\d|ld-linux-.*"
    assert needed
    assert [library for library in needed if not re.fullmatch(system, library)] == []


def test_it_asks_for_no_newer_c_library_than_it_says(wheel, module):
    asked = {
        tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", readelf("--version-info", module))
    }
    assert asked
    if RELEASED:
        assert max(asked) <= GLIBC
    said = re.findall(r"manylinux_(\d+)_(\d+)_", " ".join(told(wheel, "WHEEL").get_all("Tag")))
    assert [tuple(map(int, pair)) for pair in said] == ([GLIBC] if RELEASED else [])


def test_a_released_wheel_has_no_clock_for_servers(wheel, tmp_path):
    wheel.extractall(tmp_path)
    script = """if True:
        from tidegate import Limiter, _tidegate
        assert [bool(Limiter({"a": "1/m"}).check("a", "x", cost=cost)) for cost in (1, 2)] == [True, False]
        print(_tidegate.__file__, _tidegate.TESTING)
    """
    path, testing = run(tmp_path, sys.executable, "-c", script).split()
    assert path.startswith(str(tmp_path))
    assert testing == str(not RELEASED)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The source distribution, unpacked."""
    made = tmp_path_factory.mktemp("sdist")
    run(ROOT, sys.executable, "-m", "maturin", "sdist", "--manifest-path=bindings-python/Cargo.toml", "--out", made)
    [path] = made.iterdir()
    with tarfile.open(path) as opened:
        opened.extractall(made)
    return path.with_name(path.name[: -len(".tar.gz")])


def test_the_source_distribution_has_what_a_build_needs(source):
    there = {path.relative_to(source).as_posix() for path in source.rglob("*")}
    folders = ["core/src", "lua", "bindings-python/src", "bindings-python/python"]
    tracked = run(ROOT, "git", "ls-files", *folders).split()
    assert len(tracked) > 50
    needed = {path.replace("bindings-python/python/", "python/") for path in tracked}
    assert needed - there == set()
    assert {"Cargo.lock", "Cargo.toml", "core/Cargo.toml", "PKG-INFO", "README.md", "pyproject.toml"} <= there
    assert not [path for path in there if path.endswith(".so")]


def test_the_source_distribution_is_built_of_the_locked_versions(source):
    tree = ["cargo", "tree", "--offline", "--prefix=none", "--edges=normal,build", "--package=tidegate-python"]
    ours, its = (set(re.sub(r" \(.*", "", run(where, *tree), flags=re.M).splitlines()) for where in (ROOT, source))
    assert len(ours) > 50
    assert its == ours


def run(where, *command):
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=True).stdout


def readelf(what, path):
    return run(ROOT, "readelf", "--wide", what, path)

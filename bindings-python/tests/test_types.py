"""The types of documents and metrics are those of the core."""

import json
import subprocess
import sys
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest
from tidegate import AsyncLimiter, Limiter, Policy, _tidegate, types

SCHEMA = json.loads(_tidegate.schema())
TABLES = {name: table for name, table in SCHEMA["$defs"].items() if "properties" in table}


def kinds(schema):
    """What JSON a schema allows: names of types, of definitions, and the texts of enums."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return {name} if name in TABLES else kinds(SCHEMA["$defs"][name])
    if "anyOf" in schema:
        return set().union(*map(kinds, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return {"null" if value is None else value for value in schema.get("enum", [schema.get("const")])}
    named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    inner = {"array": schema.get("items"), "object": schema.get("additionalProperties")}
    return {(kind, frozenset(kinds(inner[kind]))) if inner.get(kind) else kind for kind in named}


def kinds_of_hint(hint):
    """The same of a type."""
    if get_origin(hint) is Union:
        return set().union(*map(kinds_of_hint, get_args(hint)))
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    if get_args(hint):
        kind = "object" if len(get_args(hint)) == 2 else "array"
        return {(kind, frozenset(kinds_of_hint(get_args(hint)[-1])))}
    plain = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
    return {plain.get(hint) or hint.__name__}


@pytest.mark.parametrize("name", ["Document", *TABLES])
def test_documents_have_the_fields_of_the_schema(name):
    table, kind = TABLES.get(name, SCHEMA), getattr(types, name)
    assert kind.__required_keys__ == set(table.get("required", []))
    hints = {field: kinds_of_hint(hint) for field, hint in get_type_hints(kind).items()}
    assert hints == {field: kinds(schema) for field, schema in table["properties"].items()}


CHECKED = """
from tidegate import Limiter, Policy
from tidegate.types import Document

document: Document = {"version": 1, "rules": {"a": ["5/s", {"limit": 100, "window": "1h"}]}}
plain = dict(version=1, rules=dict(a="5/s"))
for made in [Limiter(document=document), Limiter(document=plain), Policy(document).limiter, Limiter({"a": "5/s"})]:
    keys: int = made.metrics()["keys"]  # an error: it may be None
    made.metrics()["latency"]["sum"] + 1
wrong: Document = {"version": 1, "rules": {"a": {"limits": "5/s", "on_error": "close"}}}  # an error
wrong = {"version": 1, "store": {"uri": "redis://127.0.0.1"}}  # an error
"""


def test_a_type_checker_finds_what_is_wrong_in_a_document(tmp_path):
    (tmp_path / "checked.py").write_text(CHECKED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path}", "checked.py"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    wrong = {int(line.split(":")[1]) for line in found.stdout.splitlines() if ": error:" in line}
    lines = CHECKED.splitlines()
    assert wrong == {number for number, line in enumerate(lines, 1) if "# an error" in line}, found.stdout


def matches(value, hint):
    """Whether a value is of a type, down to its smallest part."""
    if hasattr(hint, "__required_keys__"):
        hints = get_type_hints(hint)
        return value.keys() == hints.keys() and all(matches(value[name], hints[name]) for name in hints)
    if get_origin(hint) is Union:
        return any(matches(value, one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is list:
        return type(value) is list and all(matches(one, *get_args(hint)) for one in value)
    return type(value) is hint


def test_metrics_have_the_fields_that_are_told(redis, prefix):
    for url in [None, redis.url]:
        limiter = Limiter({"a": "1/h"}, url=url, prefix=prefix, deadline=20)
        limiter.check("a", "x")
        metrics = limiter.metrics()
        assert matches(metrics, types.Metrics)
        assert matches(AsyncLimiter.of(limiter).metrics(), types.Metrics)
        assert metrics["decisions"]
        assert metrics["errors"]
    assert metrics["nodes"], "of the server"
    assert not matches({**metrics, "keys": "1"}, types.Metrics)
    assert not matches({**metrics, "more": 1}, types.Metrics)


def test_metrics_of_a_policy_have_the_fields_that_are_told():
    policy = Policy({"version": 1, "rules": {"a": "1/m"}, "routes": [{"path": "/", "rules": "a", "key": "ip"}]})
    policy.admit(policy.request("GET", "/"), peer="203.0.113.7")
    assert matches(policy.metrics(), types.PolicyMetrics)
    assert policy.metrics()["requests"]

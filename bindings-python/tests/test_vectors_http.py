"""The vectors of whole requests (tests/vectors/README.md), through the wheel."""

from __future__ import annotations

import itertools
import json
import os
import socket
from typing import Any

import pytest
import tidegate
from test_vectors import cases, part
from tidegate import Admission, Policy, Request, _tidegate

NUMBERS = itertools.count()


def document(case: Any, url: str | None) -> str:
    """The case's document on a store; without a URL it is memory."""
    store = {"deadline": "20s", "prefix": f"http{os.getpid()}-{next(NUMBERS)}", **({"url": url} if url else {})}
    if case.get("store") == "down":
        with socket.create_server(("127.0.0.1", 0)) as free:
            store["url"] = f"redis://127.0.0.1:{free.getsockname()[1]}"
    rules = case.get("rules") or {"r": "100/m"}
    route = {"prefix": "/", "rules": list(rules), "key": "ip"}
    if any(step.get("cost", 1) != 1 for step in case.get("steps", [])):
        route["cost"] = "app:cost"
    routes = case.get("routes") or [route]
    made = {"version": 1, "store": store, "rules": rules, "http": case.get("http", {}), "routes": routes}
    return json.dumps(made)


def policy_of(case: Any) -> Any:
    try:
        return Policy(document(case, None), "json")
    except tidegate.TidegateError as error:
        return error.code


def as_line(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def lines(case: Any) -> list[Any]:
    return [(name, as_line(part(value))) for name, value in case.get("headers", [])]


def test_addresses():
    for case in cases("addresses"):
        policy = policy_of(case)
        if isinstance(policy, str):
            found = {"error": policy}
        else:
            request, told = policy.request("GET", "/"), (case.get("peer"), lines(case))
            found = {"address": request.client_address(*told), "key": request.client_key(*told)}
        assert found == case["expect"], case["name"]


def test_routes():
    for case in cases("routes"):
        policy = policy_of(case)
        if "error" in case:
            assert policy == case["error"], case["name"]
            continue
        for request in case["requests"]:
            assert policy.request(request["method"], request["path"]).route == request.get("route"), case["name"]


@pytest.mark.parametrize("store", ["memory", "redis", "cluster"])
@pytest.mark.parametrize("name", ["admissions", "http_responses"])
def test_requests(name, store, request):
    url = None if store == "memory" else request.getfixturevalue(store).url
    for case in cases(name):
        clock = _tidegate.Clock(0, for_servers=True)
        policy = Policy._made(document(case, url), "json", clock)
        for number, step in enumerate(case["steps"]):
            clock.micros = step["at_ms"] * 1000
            assert seen(policy, step) == expected(step), f"{case['name']}, step {number}"


def expected(step: Any) -> Any:
    told = dict(step["expect"])
    if isinstance(told.get("headers"), dict):
        told["headers"] = {name.lower(): value for name, value in told["headers"].items()}
    return told


def seen(policy: Policy, step: Any) -> Any:
    try:
        admission = admit(policy, policy.request(step["method"], step["path"]), step)
    except tidegate.TidegateError as error:
        return {"error": error.code}
    found = {field: told(admission, field, step) for field in step["expect"]}
    if "settled" not in found and "settle" in step:
        admission.settle(step["settle"], wait=True)
    return found


def admit(policy: Policy, request: Request, step: Any) -> Admission:
    user = step.get("user")
    values = dict(step.get("values", {}))
    if "cost" in step:
        values["cost"] = step["cost"]
    return policy.admit(
        request,
        peer=step.get("peer"),
        headers=lines(step),
        user=None if user is None else part(user),
        values=values,
        answers=step.get("yes", []),
    )


def told(admission: Admission, field: str, step: Any) -> Any:
    if field == "remaining":
        return [decision.remaining for decision in admission.decisions]
    if field == "settled":
        return admission.settle(step.get("settle", 200), wait=True)
    if field == "headers":
        return {name.lower(): value for name, value in admission.headers}
    if field == "body" and admission.body is not None:
        kind = {name.lower(): value for name, value in admission.headers}["content-type"]
        return json.loads(admission.body) if kind.endswith("json") else admission.body
    return getattr(admission, field)

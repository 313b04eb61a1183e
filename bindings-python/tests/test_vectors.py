"""The vectors that every store and language answers alike (tests/vectors/README.md), through the wheel."""

from __future__ import annotations

import itertools
import json
import math
import os
from typing import Any

import pytest
import tidegate
from conftest import ROOT
from tidegate import Limiter, _tidegate

HISTORIES = [
    "sliding_window_log",
    "sliding_window",
    "token_bucket",
    "sliding_window_counter",
    "fixed_window",
    "several_limits",
    "request_ids",
    "refunds",
    "clock_steps",
    "changes",
    "stored_values",
    "counts",
]
# What looks at Redis or plants something there is the Rust tests' business.
UNTOLD = {"set", "persist"}
NUMBERS = itertools.count()


def cases(name: str) -> list[Any]:
    found = json.loads((ROOT / "tests" / "vectors" / f"{name}.json").read_text())["cases"]
    assert found
    return found


def test_the_wheel_under_test_takes_a_clock_for_servers():
    assert _tidegate.TESTING, "make test-python builds the wheel with --features testing"


@pytest.mark.parametrize("store", ["memory", "redis", "cluster"])
@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name, store, request):
    url = None if store == "memory" else request.getfixturevalue(store).url
    played = 0
    for case in cases(name):
        if any(step["op"] in UNTOLD for step in case["steps"]):
            continue
        scene = Scene(case, url)
        for number, step in enumerate(case["steps"]):
            told = scene.play(step)
            missing = differences(step.get("expect", {}), told) if step["op"] != "state" else []
            assert not missing, f"{case['name']}, step {number} {step}: {missing}"
        played += 1
    assert played > 5


def part(given: Any) -> Any:
    """Text or bytes, as the files write them."""
    if isinstance(given, str):
        return given
    return bytes.fromhex(given["hex"]) if "hex" in given else given["text"] * given["times"]


class Scene:
    def __init__(self, case: Any, url: str | None) -> None:
        self.start, self.url = case["start"], url
        self.rules = dict(case["rules"])
        self.made_with = dict(self.rules)
        if url is None:
            # A new limiter would begin empty. So this one has the rules as they are in the end, and is given those of
            # the moment at the call.
            for step in case["steps"]:
                self.made_with.update(step.get("rules", {}))
        self.clock = _tidegate.Clock(self.start, for_servers=True)
        self.prefix = f"vector{os.getpid()}-{next(NUMBERS)}"
        self.receipts: dict[str, Any] = {}
        self.limiter = self.made()

    def made(self) -> Limiter:
        store = {"prefix": self.prefix, "deadline": "20s", **({"url": self.url} if self.url else {})}
        document = json.dumps({"version": 1, "store": store, "rules": self.made_with})
        return Limiter._made(document, "json", self.clock)

    def play(self, step: Any) -> Any:
        self.clock.micros = self.start + step["at"]
        try:
            return getattr(self, f"do_{step['op']}")(step)
        except tidegate.TidegateError as error:
            return {"error": error.code}

    def limits(self, step: Any) -> dict[str, Any]:
        given, rule = step.get("limits"), step["rule"]
        if given is None and isinstance(rule, str) and self.made_with.get(rule) != self.rules.get(rule):
            given = self.rules[rule]
        return {} if given is None else {"limits": given}

    def options(self, step: Any) -> dict[str, Any]:
        options = self.limits(step)
        if "cost" in step:
            cost = step["cost"]
            options["cost"] = float(cost) if isinstance(cost, str) else cost
        if "id" in step:
            given = step["id"]
            options["request_id"] = bytes.fromhex(given["hex"]) if isinstance(given, dict) else given
        return options

    def do_check(self, step: Any) -> Any:
        admitted, options = 0, self.options(step)
        for number in range(step.get("times", 1)):
            if number:
                self.clock.micros += step.get("every_us", 0)
            decision = self.limiter.check(step["rule"], step["key"], **options)
            admitted += decision.allowed
        if "save" in step:
            self.receipts[step["save"]] = decision.receipt
        return {**told(decision), "admitted": admitted}

    def do_peek(self, step: Any) -> Any:
        return told(self.limiter.peek(step["rule"], step["key"], **self.options(step)))

    def do_count(self, step: Any) -> Any:
        told, window, units = [step["rule"], step["key"]], step["window_us"] / 1_000_000, step["n"]
        if units >= 0:
            counted = self.limiter.count(*told, window, units)
        else:
            counted = self.limiter.take_back(*told, window, -units, self.start + step["start_us"])
        start = counted.start - self.start if counted.start else None
        return {
            "total": counted.total,
            "time_left_us": math.ceil(counted.left * 1000),
            "start_us": start and -(-start // 1000),
        }

    def do_refund(self, step: Any) -> Any:
        return {"refunded": self.limiter.refund(self.receipts[step["receipt"]])}

    def do_reset(self, step: Any) -> Any:
        self.limiter.reset(step["rule"], step["key"], **self.limits(step))
        return {}

    def do_rules(self, step: Any) -> Any:
        self.rules.update(step["rules"])
        if self.url is not None:
            self.made_with = dict(self.rules)
            self.limiter = self.made()
        return {}

    def do_state(self, step: Any) -> Any:
        return {}


def told(decision: tidegate.Decision) -> Any:
    limits = decision.limits
    return {
        **{name: getattr(decision, name) for name in ["allowed", "repeat", "remaining", "origin"]},
        "retry_after_us": decision.retry_after_ms,
        "reset_after_us": decision.reset_after_ms,
        "binding": limits.index(decision.binding),
        "limits": [
            {
                "allowed": limit.allowed,
                "remaining": limit.remaining,
                "retry_after_us": limit.retry_after_ms,
                "reset_after_us": limit.reset_after_ms,
            }
            for limit in limits
        ],
    }


def differences(expected: Any, found: Any, name: str = "") -> list[str]:
    """What is expected and not so; times are compared in whole milliseconds, rounded up."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return [f"{name}: {expected} and not {found}"]
        return [text for key, value in expected.items() for text in differences(value, found.get(key, "nothing"), key)]
    if isinstance(expected, list):
        if len(expected) != len(found):
            return [f"{name}: {expected} and not {found}"]
        return [text for pair in zip(expected, found) for text in differences(*pair, name)]
    if name.endswith("_us") and expected is not None:
        expected = -(-expected // 1000)
    return [] if expected == found else [f"{name}: {expected} and not {found}"]


def test_rules_mean_what_they_mean_everywhere():
    for case in cases("rules"):
        made = {"version": 1, "rules": {"r": case["rule"]}}
        if "error" in case["expect"]:
            with pytest.raises(tidegate.TidegateError) as raised:
                Limiter.from_document(made)
            assert raised.value.code == case["expect"]["error"], case["name"]
            continue
        limits = Limiter.from_document(made).peek("r", "x").limits
        names = {"algorithm": "algorithm", "limit": "limit", "burst": "burst", "window_ms": "window_ms"}
        names.update(precision_ms="precision_ms", name="name", enforce="enforced")
        for limit, expected in zip(limits, case["expect"]["limits"]):
            found = {theirs: getattr(limit, ours) for theirs, ours in names.items()}
            assert not differences(expected, found), case["name"]


def test_documents_are_judged_as_everywhere():
    for case in cases("documents"):
        try:
            found = sorted(Limiter.from_document(case["text"], case["format"]).rules)
        except tidegate.TidegateError as error:
            found = error.code
        if "error" in case["expect"]:
            assert found == case["expect"]["error"], case["name"]
        elif case["expect"]["rules"]:
            assert found == sorted(case["expect"]["rules"]), case["name"]


def test_keys_are_told_apart_and_refused_as_everywhere():
    for case in cases("keys"):
        store = {name: case[name] for name in ["prefix", "key_secret"] if name in case}
        key = case["key"]
        key = tuple(map(part, key["parts"])) if isinstance(key, dict) and "parts" in key else part(key)
        try:
            rules = {case["rule_name"]: case["rule"]}
            Limiter.from_document({"version": 1, "store": store, "rules": rules}).check(case["rule_name"], key)
            found = None
        except tidegate.TidegateError as error:
            found = error.code
        assert found == case["expect"].get("error"), case["name"]

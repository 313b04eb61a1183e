"""The system checks one by one, and the command."""

import io
import json

import django_ready  # noqa: F401
import pytest
from django.core import checks
from django.core.management import CommandError, call_command
from django.test import override_settings
from tidegate.django import conf
from tidegate.django.checks import check, check_deployment

OURS = "tidegate.django.RateLimitMiddleware"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
BY_ADDRESS = [{"path": "/search", "rules": "a", "key": "ip"}]
BY_USER = [{"path": "/search", "rules": ["b", {"rule": "a", "key": "user or ip"}], "key": "ip"}]
RULES = {"a": "2/m", "b": {"limits": "9/m", "on_error": "local"}}


def ids(ours, middleware=(AUTHENTICATION, OURS), **others):
    with override_settings(TIDEGATE=ours, MIDDLEWARE=list(middleware), **others):
        return [message.id for message in check()]


def routes(**route):
    return {"RULES": RULES, "ROUTES": [{"path": "/search", "rules": "a", "key": "ip", **route}]}


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        ({"RULES": RULES, "ROUTES": BY_ADDRESS}, []),
        ({}, []),
        ({"RULES": {"a": "2/fortnight"}}, ["tidegate.E001"]),
        ({"RULE": {}}, ["tidegate.E001"]),
        ({"USE_CACHE": "default"}, ["tidegate.E002"]),
        ({"USE_CACHE": "nowhere"}, ["tidegate.E002"]),
        ({"USER": "not.there"}, ["tidegate.E003"]),
        ({"VALUES": {"tenant": 5}}, ["tidegate.E003"]),
        (routes(key="app:tenant", without_identity="refuse"), ["tidegate.E005"]),
        (routes(cost="app:units"), ["tidegate.E005"]),
        (routes(exempt={"app": ["is_staff"]}), ["tidegate.E005"]),
        ({**routes(exempt={"app": ["is_staff"]}), "EXEMPT": {"is_staff": bool}}, []),
        ({**routes(key="app:tenant", without_identity="refuse"), "VALUES": {"tenant": str}}, []),
        (routes(path="/accounts/login"), ["tidegate.W002"]),
        (routes(name="password reset"), ["tidegate.W002"]),
        (routes(path="/accounts/login", rules="b"), []),
        (routes(path="/accounts/login", rules=["a", "b"]), []),
        (routes(path="/accounts/login", mode="shadow"), []),
        ({"ENABLED": False, "USE_CACHE": "default"}, []),
    ],
)
def test_settings(ours, found):
    assert ids(ours) == found


def test_the_middleware_knows_the_user_where_a_rule_needs_him():
    by_user = {"RULES": RULES, "ROUTES": BY_USER}
    by_exempt_user = routes(exempt={"keys": ["user:1"]})
    for ours in (by_user, by_exempt_user):
        assert ids(ours) == []
        assert ids(ours, [OURS, AUTHENTICATION]) == ["tidegate.E004"]
        assert ids(ours, [OURS]) == ["tidegate.W007"]
        assert ids({**ours, "USER": str}, [OURS]) == []
        assert ids(ours, INSTALLED_APPS=["tidegate.django"]) == ["tidegate.W007"]
    assert ids(routes(), [OURS, AUTHENTICATION]) == []


def test_routes_without_the_middleware_limit_nobody():
    assert ids(routes(), [AUTHENTICATION]) == ["tidegate.W005"]
    assert ids({"RULES": RULES}, [AUTHENTICATION]) == []
    assert ids(routes(), ["tidegate.django.middleware.RateLimitMiddleware"]) == []


def test_a_proxy_in_front_is_trusted_or_everybody_is_the_proxy():
    header = ("HTTP_X_FORWARDED_PROTO", "https")
    assert ids(routes(), SECURE_PROXY_SSL_HEADER=header) == ["tidegate.W001"]
    assert ids(routes(), USE_X_FORWARDED_HOST=True) == ["tidegate.W001"]
    trusted = {**routes(), "HTTP": {"trusted_proxies": ["10.0.0.0/8"]}}
    assert ids(trusted, SECURE_PROXY_SSL_HEADER=header) == []


def test_settings_that_mean_nothing_here_are_told():
    assert ids(routes(), RATELIMIT_IP_META_KEY="HTTP_X_REAL_IP", RATELIMIT_VIEW="a.b") == ["tidegate.W004"] * 2


def test_a_document_that_cannot_be_read_again_is_told(tmp_path, monkeypatch):
    path = tmp_path / "rules.yaml"
    path.write_text('{"version": 1, "rules": {"a": "1/m"}, "http": {"default": {"rules": []}}}')
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    assert ids({"DOCUMENT": path}) == ["tidegate.W006"]


def test_processes_share_their_limits_in_production():
    for url, found in ((None, ["tidegate.W003"]), ("redis://127.0.0.1:1", [])):
        with override_settings(TIDEGATE={"RULES": RULES, **({"URL": url} if url else {})}):
            assert [message.id for message in check_deployment()] == found
    for ours in ({"RULE": {}}, {"ENABLED": False}):
        with override_settings(TIDEGATE=ours):
            assert check_deployment() == []


def test_they_are_registered_and_can_be_silenced():
    with override_settings(TIDEGATE=routes(path="/login"), MIDDLEWARE=[OURS]):
        for tag in ("security", "caches"):
            assert "tidegate.W002" in [message.id for message in checks.run_checks(tags=[tag])]
        with override_settings(SILENCED_SYSTEM_CHECKS=["tidegate.W002"]):
            assert all(message.is_silenced() for message in checks.run_checks(tags=["caches"]))


def command(*args):
    out, code = io.StringIO(), 0
    try:
        call_command("tidegate", *args, stdout=out)
    except SystemExit as exit:
        code = exit.code
    return code, out.getvalue()


def told(*args):
    code, text = command(*args, "--json")
    return code, json.loads(text)


def test_a_key_is_charged_looked_at_and_reset():
    with override_settings(TIDEGATE=routes()):
        limiter = conf.current().limiter
        assert command("check", "a", "ip:203.0.113.7") == (0, "a: allowed by store, 1 of 2 remain\n")
        assert limiter.peek("a", ("ip", "203.0.113.7")).remaining == 1
        assert told("check", "a", "ip:203.0.113.7")[1]["remaining"] == 0
        code, text = command("check", "a", "ip:203.0.113.7")
        assert code == 1
        assert text.startswith("a: refused by ")
        assert ", 0 of 2 remain, again in " in text
        code, facts = told("peek", "a", "ip:203.0.113.7")
        assert (code, facts["allowed"], facts["rule"], facts["limit"]) == (0, False, "a", 2)
        assert 0 < facts["retry_after_ms"] <= 60_000
        assert command("reset", "a", "ip:203.0.113.7") == (0, "a is reset\n")
        assert told("reset", "a", "ip:203.0.113.7") == (0, {"rule": "a", "reset": True})
        assert limiter.peek("a", ("ip", "203.0.113.7")).remaining == 2


@pytest.mark.parametrize(
    ("written", "key"),
    [
        (["user:7"], ("user", "7")),
        (["ip:2001:db8::1:2:3:4"], ("ip", "2001:db8::/64")),
        (["ip:::ffff:203.0.113.7"], ("ip", "203.0.113.7")),
        (["header:X-Api-Key:a:b"], ("header", "x-api-key", "a:b")),
        (["cookie:Theme:x"], ("cookie", "Theme", "x")),
        (["app:tenant:a", "user:7"], ("app", "tenant", "a", "user", "7")),
        (["constant:all"], ("constant", "all")),
        (["key:alice"], "alice"),
    ],
)
def test_keys_are_written_as_in_documents(written, key):
    with override_settings(TIDEGATE=routes()):
        command("check", "a", *written)
        assert conf.current().limiter.peek("a", key).remaining == 1


def test_networks_that_count_as_one_client_are_one_key():
    with override_settings(TIDEGATE={**routes(), "HTTP": {"ipv4_prefix": 24, "ipv6_prefix": 128}}):
        policy = conf.current().policy
        for address in ("203.0.113.7", "2001:db8::7"):
            policy.admit(policy.request("GET", "/search"), peer=address)
            assert told("peek", "a", f"ip:{address}")[1]["remaining"] == 1
        assert told("peek", "a", "ip:203.0.113.200")[1]["remaining"] == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["peek", "nobody", "user:7"], "the rules are: a, b"),
        (["peek", "a", "alice"], "write who: ip:203.0.113.7"),
        (["peek", "a", "user:"], "write who"),
        (["peek", "a", "header:x"], "write who"),
        (["peek", "a", "ip:alice"], "write ip:203.0.113.7"),
        (["peek", "a"], "key"),
        (["break", "a", "user:7"], "break"),
    ],
)
def test_a_command_that_cannot_be_meant_says_what_to_write(args, says):
    with override_settings(TIDEGATE=routes()), pytest.raises(CommandError, match=says) as refused:
        command(*args)
    assert refused.value.returncode in (1, 2)


def test_the_doctor_finds_what_is_wrong(redis, prefix):
    with override_settings(TIDEGATE={**routes(), "URL": redis.url, "STORE": {"prefix": prefix}}, MIDDLEWARE=[OURS]):
        command("check", "a", "user:7")
        code, text = command("doctor")
        assert (code, text) == (0, "rules: a, b\nstore: ready\nrefused: 0, without the store: 0\n")
        assert told("doctor")[1]["store"] == "ready"
    with override_settings(TIDEGATE={**routes(path="/login"), "URL": "redis://127.0.0.1:1"}, MIDDLEWARE=[OURS]):
        command("check", "a", "user:7")
        code, facts = told("doctor")
        assert (code, facts["ok"], facts["without_store"], facts["rules"]) == (1, False, 1, ["a", "b"])
        assert "cannot be reached" in facts["store"]
        assert [finding["id"] for finding in facts["findings"]] == ["tidegate.W002"]
        assert "tidegate.W002: " in command("doctor")[1]
    for ours, says in (({"ENABLED": False}, "not enabled"), ({"RULE": {}}, "write RULES")):
        with override_settings(TIDEGATE=ours), pytest.raises(CommandError, match=says):
            command("doctor")

"""``TIDEGATE``: what is understood, and what is refused with what to write instead."""

import json
import sys
import threading

import django_ready  # noqa: F401
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from tidegate.django import conf
from tidegate.django._caches import store_of

DJANGO = "django.core.cache.backends.redis.RedisCache"
DJANGO_REDIS = "django_redis.cache.RedisCache"
RULES = {"login": "2/m"}
ROUTES = [{"path": "/login", "rules": "login", "key": "ip"}]


def settings_of(ours, **others):
    with override_settings(TIDEGATE=ours, **others):
        return conf.current()


def store(backend, location, **cache):
    with override_settings(CACHES={"shared": {"BACKEND": backend, "LOCATION": location, **cache}}):
        return store_of("shared")


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        ({"RULE": {}}, "write RULES"),
        ({"rules": {}}, "write RULES"),
        ({"XYZ": {}}, "it has DOCUMENT, RULES"),
        ([], "is a dict with the keys"),
        ({"RULES": {"login": "5/fortnight"}}, "no unit; write"),
        ({"RULES": ["5/m"]}, "rules"),
        ({"RULES": RULES, "ROUTES": [{"path": "/", "rules": "nobody", "key": "ip"}]}, "nobody"),
        ({"HTTP": []}, r"TIDEGATE\['HTTP'\] is a dict"),
        ({"STORE": "redis://"}, r"TIDEGATE\['STORE'\] is a dict"),
        ({"STORE": {"prefx": "a"}}, "prefx"),
        ({"URL": "redis://", "USE_CACHE": "default"}, "both URL and USE_CACHE"),
        ({"DOCUMENT": "rules.toml", "URL": "redis://h"}, "DOCUMENT and URL"),
        ({"DOCUMENT": "not/there.toml"}, "there.toml"),
        ({"DOCUMENT": 5}, "the path of a TOML"),
        ({"ENABLED": "yes"}, "True or False"),
        ({"USER": "not.there"}, r"TIDEGATE\['USER'\] cannot be imported"),
        ({"USER": 5}, r"TIDEGATE\['USER'\] is a function"),
        ({"VALUES": {"tenant": "not.there"}}, r"TIDEGATE\['VALUES'\]\['tenant'\] cannot be imported"),
        ({"EXEMPT": {"is_staff": 5}}, r"TIDEGATE\['EXEMPT'\]\['is_staff'\] is a function"),
        ({"EXEMPT": ["is_staff"]}, r"TIDEGATE\['EXEMPT'\] is a dict"),
        ({"USE_CACHE": "nowhere"}, "CACHES has no 'nowhere'"),
        ({"USE_CACHE": "default"}, "LocMemCache, which is not on Redis"),
    ],
)
def test_what_is_refused_says_what_to_write(ours, says):
    with pytest.raises(ImproperlyConfigured, match=says) as refused:
        settings_of(ours)
    assert "TIDEGATE" in str(refused.value)


def test_no_password_is_in_an_error():
    for ours in (
        {"URL": "redis://user:hunter2@/x/y"},
        {"URL": "redis:/user:hunter2@h"},
        {"STORE": {"pass": "hunter2"}},
    ):
        with pytest.raises(ImproperlyConfigured) as refused:
            settings_of(ours)
        assert "hunter2" not in str(refused.value)


def test_without_settings_there_are_no_limits():
    settings = conf.Settings()
    assert settings.enabled
    assert settings.policy.request("GET", "/").route == "default"
    assert settings.policy.admit(settings.policy.request("GET", "/")).outcome == "unlimited"


def test_rules_without_routes_are_for_code_alone():
    settings = settings_of({"RULES": RULES})
    assert settings.limiter.check("login", "alice").remaining == 1
    assert settings.document["rules"] == RULES


@pytest.mark.parametrize("document", ["dict", "toml", "json"])
def test_a_document_is_a_dict_or_a_file(document, tmp_path):
    whole = {"version": 1, "rules": RULES, "routes": ROUTES}
    if document == "toml":
        if sys.version_info < (3, 11):
            pytest.importorskip("tomli")
        (tmp_path / "rules.toml").write_text(
            'version = 1\nrules = { login = "2/m" }\nroutes = [{ path = "/login", rules = "login", key = "ip" }]\n'
        )
        given = tmp_path / "rules.toml"
    elif document == "json":
        given = str(tmp_path / "rules.json")
        (tmp_path / "rules.json").write_text(json.dumps(whole))
    else:
        given = whole
    settings = settings_of({"DOCUMENT": given})
    assert settings.policy.routes == ["/login"]
    assert settings.document["routes"] == ROUTES


def test_what_is_not_enabled_needs_no_store():
    settings = settings_of({"ENABLED": False, "USE_CACHE": "default"})
    assert (settings.enabled, settings.policy, settings.limiter, settings.document) == (False, None, None, {})


def test_names_of_django_ratelimit_mean_what_they_meant():
    old = {
        "RATELIMIT_USE_CACHE": "shared",
        "RATELIMIT_CACHE_PREFIX": "rl:",
        "RATELIMIT_IPV4_MASK": 24,
        "RATELIMIT_IPV6_MASK": 56,
        "RATELIMIT_FAIL_OPEN": False,
        "CACHES": {"shared": {"BACKEND": DJANGO, "LOCATION": "redis://h:7", "KEY_PREFIX": "p"}},
    }
    rules = {"a": "1/m", "b": {"limits": "1/m", "on_error": "local"}, "c": ["1/m"]}
    document = settings_of({"RULES": rules}, **old).document
    assert document["store"] == {"url": "redis://h:7/0", "prefix": "rl:"}
    assert document["http"] == {"ipv4_prefix": 24, "ipv6_prefix": 56, "default": {"rules": []}}
    assert document["rules"] == {
        "a": {"limits": "1/m", "on_error": "deny"},
        "b": {"limits": "1/m", "on_error": "local"},
        "c": {"limits": ["1/m"], "on_error": "deny"},
    }
    newer = {"RULES": rules, "URL": "redis://mine", "HTTP": {"ipv4_prefix": 32}, "STORE": {"prefix": "mine"}}
    document = settings_of(newer, **{**old, "RATELIMIT_FAIL_OPEN": True}).document
    assert document["store"] == {"url": "redis://mine", "prefix": "mine"}
    assert document["http"]["ipv4_prefix"] == 32
    assert document["rules"]["a"]["on_error"] == "allow"
    assert not settings_of({"RULES": rules}, RATELIMIT_ENABLE=False).enabled
    whole = {"version": 1, "rules": {"a": "1/m"}, "routes": [{"path": "/a", "rules": "a", "key": "ip"}]}
    assert settings_of({"DOCUMENT": whole}, **old).document == whole


@pytest.mark.parametrize("backend", [DJANGO, DJANGO_REDIS])
@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("redis://h", "redis://h/0"),
        ("redis://h:7/2", "redis://h:7/2"),
        ("redis://h:7?db=3", "redis://h:7/3"),
        ("redis://[::1]:7/2", "redis://[::1]:7/2"),
        ("redis://primary:7,redis://replica:7", "redis://primary:7/0"),
        (["redis://primary:7/1", "redis://replica:7/1"], "redis://primary:7/1"),
        ("unix:///run/redis.sock?db=2", "redis+unix:///run/redis.sock?db=2"),
        ("rediss://h:7/2", "rediss://h:7/2"),
    ],
)
def test_where_a_cache_is(backend, location, url):
    assert store(backend, location) == {"url": url}
    assert settings_of({"USE_CACHE": "c"}, CACHES={"c": {"BACKEND": backend, "LOCATION": location}}).policy


def test_how_a_cache_logs_in():
    login = {"url": "redis://h/0", "username": "u", "password": "p@ss"}
    assert store(DJANGO, "redis://u:p%40ss@h") == login
    options = {"username": "u", "password": "p@ss"}
    assert store(DJANGO, "redis://h", OPTIONS={**options, "db": "0"}) == login
    assert store(DJANGO, "redis://u:p%40ss@h", OPTIONS={"password": "other"}) == login
    assert store(DJANGO_REDIS, "redis://u@h", OPTIONS={"PASSWORD": "p@ss"}) == login
    assert store(DJANGO_REDIS, "redis://h", OPTIONS={"CONNECTION_POOL_KWARGS": options}) == login
    assert store(DJANGO, "redis://h", OPTIONS={"db": 5})["url"] == "redis://h/5"


def test_what_a_cache_trusts():
    options = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "c.pem", "ssl_keyfile": "k.pem", "ssl_cert_reqs": "required"}
    tls = {"ca": "ca.pem", "certificate": "c.pem", "key": "k.pem"}
    assert store(DJANGO, "rediss://h", OPTIONS=options)["tls"] == tls
    assert store(DJANGO_REDIS, "rediss://h", OPTIONS={"CONNECTION_POOL_KWARGS": options})["tls"] == tls
    assert store(DJANGO, "rediss://h?ssl_ca_certs=ca.pem")["tls"] == {"ca": "ca.pem"}
    for unverified in ({"ssl_cert_reqs": None}, {"ssl_cert_reqs": "none"}, {"ssl_check_hostname": False}):
        with pytest.raises(ImproperlyConfigured, match="does not verify"):
            store(DJANGO, "rediss://h", OPTIONS=unverified)
    with pytest.raises(ImproperlyConfigured, match=r"ssl_ca_data .* cannot be taken over"):
        store(DJANGO, "rediss://h", OPTIONS={"ssl_ca_data": "..."})


def test_sentinels_of_django_redis():
    options = {"SENTINELS": [("a", 1), ("b", 2)], "SENTINEL_KWARGS": {"password": "s"}, "PASSWORD": "p"}
    expected = {"url": "redis+sentinel://a:1,b:2/main/3", "password": "p", "sentinel": {"password": "s"}}
    assert store(DJANGO_REDIS, "redis://main/3", OPTIONS=options) == expected


def test_a_caches_prefix_begins_our_keys():
    assert store(DJANGO, "redis://h", KEY_PREFIX="prod")["prefix"] == "prod:tidegate"
    with pytest.raises(ImproperlyConfigured, match="KEY_PREFIX"):
        store(DJANGO, "redis://h", KEY_PREFIX="{ä}")
    for location in ("", None, [], "h:6379", "memcached://h"):
        with pytest.raises(ImproperlyConfigured, match="LOCATION"):
            store(DJANGO, location)


def test_settings_that_change_while_a_thread_makes_them_are_made_again(monkeypatch):
    """What the thread has read is of before: the next request must not have it."""
    reading, changed = threading.Event(), threading.Event()

    class Slow(conf.Settings):
        def __init__(self):
            super().__init__()
            reading.set()
            changed.wait(0.5)  # it comes only where the change does not wait for this thread

    with override_settings(TIDEGATE={"RULES": RULES}):
        monkeypatch.setattr(conf, "Settings", Slow)
        maker = threading.Thread(target=conf.current)
        maker.start()
        assert reading.wait(10)
        with override_settings(TIDEGATE={"RULES": RULES, "ENABLED": False}):
            changed.set()
            maker.join(10)
            assert not conf.current().enabled

"""The middleware in both worlds, through Django's own clients and handlers."""

import asyncio
import inspect
import io
import json
import logging
import uuid

import django_ready  # noqa: F401
import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import User
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from tidegate import _web
from tidegate.django import RateLimitMiddleware, conf, exchange, rate_limited, store_degraded

OURS = "tidegate.django.RateLimitMiddleware"
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
STACK = [SESSIONS, AUTHENTICATION, OURS]

RULES = {"login": "2/m", "mine": "1/m", "item": "3/m", "deny": {"limits": "2/m", "on_error": "deny"}}
ROUTES = [
    {"path": "/login", "methods": ["POST"], "rules": "login", "key": "ip"},
    {"path": "/mine", "rules": "mine", "key": "user", "without_identity": "skip"},
    {"path": "/missing", "rules": "login", "key": "ip", "refund_status": [404]},
    {"path": "/broken", "rules": "login", "key": "ip", "refund_status": ["5xx"]},
    {"path": "/shadow", "rules": "login", "key": "ip", "mode": "shadow"},
    {"path": "/exempt", "rules": "login", "key": "ip", "exempt": {"app": ["is_staff"]}},
    {"path": "/items/ä b", "rules": "item", "key": ["app:tenant"], "without_identity": "refuse", "cost": "app:units"},
    {"path": "/deny", "rules": "deny", "key": "ip"},
]


class Backend(BaseBackend):
    """Users without a database."""

    def get_user(self, user_id):
        return User(pk=user_id, username=f"user{user_id}", password="!")


def view(request, *_):
    return HttpResponse(f"passed {request.ratelimit.outcome}" if hasattr(request, "ratelimit") else "passed")


async def view_async(request):
    return view(request)


def missing(request):
    return HttpResponse(status=404)


def broken(request):
    raise ValueError("of the view")


def own(request):
    return HttpResponse(headers={"X-RateLimit-Limit": "mine", "Vary": "Origin"})


urlpatterns = [
    path("missing", missing),
    path("broken", broken),
    path("own", own),
    *(path(name, view) for name in ("login", "mine", "shadow", "exempt", "items/ä b", "deny", "free")),
]


def tenant(request):
    return request.META.get("HTTP_X_TENANT")


async def tenant_async(request):
    await asyncio.sleep(0)
    return tenant(request)


def units(request):
    return int(request.GET["units"]) if "units" in request.GET else None


def is_staff(request):
    return request.META.get("HTTP_X_STAFF") == "yes"


MINE = {
    "RULES": RULES,
    "ROUTES": ROUTES,
    "VALUES": {"tenant": f"{__name__}.tenant", "units": units},
    "EXEMPT": {"is_staff": is_staff},
}


class Sync(Client):
    def __init__(self, peer="203.0.113.7"):
        super().__init__(raise_request_exception=False, REMOTE_ADDR=peer)


class Awaited(AsyncClient):
    """Django's asynchronous client, called from where there is no loop."""

    def __init__(self, peer="203.0.113.7"):
        super().__init__(raise_request_exception=False)
        self.peer = [peer, 1] if peer else None

    def _base_scope(self, **request):
        # As servers have it that listen on a Unix socket.
        server = {} if self.peer else {"server": ["/run/site.sock", None]}
        return {**super()._base_scope(**request), "client": self.peer, **server}

    def _get_path(self, parsed):
        return super()._get_path(parsed).encode("latin-1").decode()  # as ASGI's servers have it

    def get(self, *args, **options):
        return asyncio.run(super().get(*args, **options))

    def post(self, *args, **options):
        return asyncio.run(super().post(*args, **options))


@pytest.fixture(params=[Sync, Awaited])
def client(request):
    return request.param


@pytest.fixture(autouse=True)
def _ours():
    with override_settings(TIDEGATE=MINE, ROOT_URLCONF=__name__, MIDDLEWARE=STACK):
        yield


def statuses(client, method, count, *args, **options):
    return [getattr(client, method)(*args, **options).status_code for _ in range(count)]


def logged_in(client, user=7):
    """Logs somebody in by the cookie that Django would have set."""
    session = SessionStore()
    session[SESSION_KEY] = str(user)
    session[BACKEND_SESSION_KEY] = f"{__name__}.Backend"
    session[HASH_SESSION_KEY] = Backend().get_user(user).get_session_auth_hash()
    session.save()
    client.cookies["sessionid"] = session.session_key
    return client


def with_backend():
    return override_settings(AUTHENTICATION_BACKENDS=[f"{__name__}.Backend"])


def test_a_route_is_limited_and_its_clients_are_told(client):
    here = client()
    first = here.post("/login")
    assert (first.status_code, first.content) == (200, b"passed allowed")
    assert first["RateLimit-Policy"] == '"login";q=2;w=60'
    assert first["RateLimit"] == '"login";r=1;t=60'
    assert first["X-RateLimit-Remaining"] == "1"
    assert "Vary" not in first
    assert statuses(here, "post", 2, "/login") == [200, 429]
    assert client("203.0.113.8").post("/login").status_code == 200
    free = here.get("/login")
    assert (free.status_code, free.content) == (200, b"passed unlimited")
    assert "RateLimit" not in free


@pytest.mark.parametrize(
    ("accept", "kind"),
    [(None, "application/problem+json"), ("application/json", "application/json"), ("text/html", "text/plain")],
)
def test_a_refusal_is_as_the_client_likes_it(client, accept, kind):
    here, headers = client(), {} if accept is None else {"Accept": accept}
    refused = [here.post("/login", headers=headers) for _ in range(3)][-1]
    assert refused.status_code == 429
    assert refused["Content-Type"].split(";")[0] == kind
    assert 0 < int(refused["Retry-After"]) <= 60
    assert refused["Cache-Control"] == "no-store"
    assert refused["Vary"] == "Accept"
    if kind == "application/problem+json":
        assert json.loads(refused.content)["violated-policies"] == ["login"]
    elif kind == "application/json":
        assert json.loads(refused.content)["error"] == "Too Many Requests"
    else:
        assert refused.content.startswith(b"Too many requests. Try again in ")


def test_spellings_of_a_path_are_no_way_around(client):
    here = client()
    assert statuses(here, "post", 2, "/login") == [200, 200]
    for spelling in ("/LOGIN", "/login/", "/login//", "/%6Cogin", "/login?x=1"):
        assert here.post(spelling).status_code == 429, spelling


def test_the_user_is_looked_at_where_a_rule_needs_him_alone(client):
    with with_backend():
        here = logged_in(client())
        for url in ("/login", "/free"):
            assert "Vary" not in here.post(url), "a session that was looked at makes a response vary by cookie"
        mine = here.get("/mine")
        assert mine.status_code == 200
        assert mine["Vary"] == "Cookie"
        assert here.get("/mine").status_code == 429
        assert logged_in(client(), 8).get("/mine").status_code == 200
        assert statuses(client(), "get", 3, "/mine") == [200] * 3


def test_the_application_says_who_its_users_are(client):
    with override_settings(TIDEGATE={**MINE, "USER": f"{__name__}.tenant"}, MIDDLEWARE=[OURS]):
        here = client()
        assert statuses(here, "get", 2, "/mine", headers={"X-Tenant": "a"}) == [200, 429]
        assert here.get("/mine", headers={"X-Tenant": "b"}).status_code == 200


@pytest.mark.parametrize("user", [7, 0, uuid.UUID(int=7), "a\ud800"])
def test_a_user_is_told_as_the_application_has_it(client, user):
    """Numbers as databases have them, and text that a JSON body can have and UTF-8 cannot."""
    with override_settings(TIDEGATE={**MINE, "USER": lambda request: user}, MIDDLEWARE=[OURS]):
        assert statuses(client(), "get", 2, "/mine") == [200, 429]


@pytest.mark.parametrize("tenant", [7, uuid.UUID(int=7), "a\ud800"])
def test_a_value_is_told_as_the_application_has_it(client, tenant):
    values = {"tenant": lambda request: tenant, "units": lambda request: 3}
    with override_settings(TIDEGATE={**MINE, "VALUES": values}):
        assert statuses(client(), "get", 2, "/items/%C3%A4%20b") == [200, 429]


def test_without_authentication_a_rule_by_user_is_a_fault_and_no_free_pass(client, caplog):
    with override_settings(MIDDLEWARE=[OURS]):
        assert client().get("/mine").status_code == 500
        assert "behind AuthenticationMiddleware" in caplog.text


def test_values_and_costs_are_the_applications(client, caplog):
    here, url = client(), "/items/%C3%A4%20b"
    a, b = {"X-Tenant": "a"}, {"X-Tenant": "b"}
    assert here.get(url + "?units=2", headers=a)["X-RateLimit-Remaining"] == "1"
    assert here.get(url + "?units=2", headers=a).status_code == 429
    assert here.get(url + "?units=1", headers=b).status_code == 200
    assert here.get(url + "?units=1").status_code == 403
    assert here.get(url, headers=a).status_code == 500
    assert "was not supplied" in caplog.text


def test_async_functions_are_awaited_and_refused_where_nobody_can(caplog):
    with override_settings(TIDEGATE={**MINE, "VALUES": {"tenant": tenant_async, "units": units}}):
        url = "/items/%C3%A4%20b?units=3"
        assert statuses(Awaited(), "get", 2, url, headers={"X-Tenant": "a"}) == [200, 429]
        assert Sync().get(url).status_code == 500
        assert "is async, and this request is not" in caplog.text


def test_who_is_exempt_is_not_counted(client):
    here = client()
    assert statuses(here, "get", 4, "/exempt", headers={"X-Staff": "yes"}) == [200] * 4
    assert statuses(here, "get", 3, "/exempt") == [200, 200, 429]


def test_statuses_give_back_what_they_are_said_to(client):
    assert statuses(client(), "get", 9, "/missing") == [404] * 9
    assert statuses(client("203.0.113.8"), "get", 9, "/broken") == [500] * 9


def test_a_shadow_lets_pass_and_reports(client):
    heard = []
    rate_limited.connect(listener := lambda **told: heard.append(told["admission"]))
    try:
        here = client()
        answers = [here.get("/shadow") for _ in range(3)]
    finally:
        rate_limited.disconnect(listener)
    assert [answer.status_code for answer in answers] == [200] * 3
    assert "RateLimit" not in answers[-1]
    assert [(one.is_shadow, one.outcome, one.route) for one in heard] == [(True, "refused", "/shadow")]


def test_fields_that_a_view_has_set_stay(client):
    ours = {**MINE, "HTTP": {"default": {"rules": "login", "key": "ip"}}}
    with override_settings(TIDEGATE=ours):
        own = client().get("/own")
        assert own["X-RateLimit-Limit"] == "mine"
        assert own["X-RateLimit-Remaining"] == "1"
        assert own["Vary"] == "Origin"


def test_forged_addresses_are_not_believed(client):
    here = client()
    assert [here.post("/login", headers={"X-Forwarded-For": f"192.0.2.{n}"}).status_code for n in range(3)][-1] == 429
    with override_settings(TIDEGATE={**MINE, "HTTP": {"trusted_proxies": ["10.0.0.0/8"]}}):
        proxy = client("10.0.0.1")
        sent = [f"192.0.2.{n}, 203.0.113.9" for n in range(3)]
        assert [proxy.post("/login", headers={"X-Forwarded-For": text}).status_code for text in sent][-1] == 429
        assert proxy.post("/login", headers={"X-Forwarded-For": "203.0.113.10"}).status_code == 200
        assert statuses(client(), "post", 3, "/login", headers={"X-Forwarded-For": "1.2.3.4"})[-1] == 429


def test_a_proxy_on_a_socket_has_no_address(client):
    assert client("").post("/login").status_code == 403
    with override_settings(TIDEGATE={**MINE, "HTTP": {"trusted_proxies": ["unix"]}}):
        socket = client("")
        assert statuses(socket, "post", 3, "/login", headers={"X-Forwarded-For": "203.0.113.9"}) == [200, 200, 429]
        assert socket.post("/login", headers={"X-Forwarded-For": "203.0.113.10"}).status_code == 200


def test_a_path_below_a_script_is_what_the_router_sees():
    one = Sync()
    names = ["/app", "/other", ""]
    assert [one.post("/login", SCRIPT_NAME=name).status_code for name in names] == [200, 200, 429]


def test_a_store_that_is_down_denies_where_it_is_said_and_is_told_once(client, caplog):
    heard = []
    exchange._outage.last = None
    store_degraded.connect(listener := lambda **told: heard.append(told["admission"].outcome))
    try:
        with override_settings(TIDEGATE={**MINE, "URL": "redis://127.0.0.1:1"}), caplog.at_level(logging.INFO):
            here = client()
            denied = here.get("/deny")
            assert (denied.status_code, here.get("/deny").status_code) == (503, 503)
            assert "Retry-After" not in denied
            open_to_all = here.post("/login")
            assert open_to_all.status_code == 200
            assert "RateLimit" not in open_to_all
    finally:
        store_degraded.disconnect(listener)
    assert heard == ["unavailable", "unavailable", "allowed"]
    ours = [record for record in caplog.records if record.name == "tidegate.django"]
    assert [record.levelname for record in ours] == ["WARNING"]
    assert "203.0.113.7" not in caplog.text


def test_the_end_of_an_outage_is_told_once(caplog, monkeypatch):
    outage = exchange._Outage()
    now = [100.0]
    monkeypatch.setattr(exchange.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO, "tidegate.django"):
        for _ in range(3):
            outage.failed()
            outage.answered()  # another node
        now[0] += outage.QUIET
        outage.answered()
        outage.answered()
        outage.failed()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


def test_receivers_hear_of_refusals_and_cannot_break_them(client, caplog):
    heard = []

    def listener(sender, request, admission, **_):
        heard.append((request.path, request.ratelimit is admission))
        raise ValueError("of the receiver")

    rate_limited.connect(listener)
    try:
        assert statuses(client(), "post", 4, "/login") == [200, 200, 429, 429]
    finally:
        rate_limited.disconnect(listener)
    assert heard == [("/login", True)] * 2


def test_receivers_may_be_coroutine_functions():
    heard = []

    async def listener(**told):
        await asyncio.sleep(0)
        heard.append(told["admission"].status)

    if "asend_robust" not in dir(rate_limited):
        return  # Django 4.2 has plain receivers alone
    rate_limited.connect(listener)
    try:
        assert statuses(Awaited(), "post", 3, "/login") == [200, 200, 429]
    finally:
        rate_limited.disconnect(listener)
    assert heard == [429]


def test_settings_are_made_new_when_a_test_overrides_them(client):
    here = client()
    assert statuses(here, "post", 3, "/login")[-1] == 429
    with override_settings(TIDEGATE={**MINE, "RULES": {**RULES, "login": "5/m"}}):
        assert here.post("/login")["X-RateLimit-Limit"] == "5"
    with override_settings(TIDEGATE={**MINE, "ENABLED": False}):
        answers = [here.post("/login") for _ in range(9)]
        assert {answer.content for answer in answers} == {b"passed"}
        assert "RateLimit" not in answers[-1]
        with override_settings(TIDEGATE=MINE):
            assert here.post("/login")["X-RateLimit-Limit"] == "2"
    with override_settings(RATELIMIT_ENABLE=False):
        assert here.post("/login").content == b"passed"


def test_a_server_does_not_start_with_what_is_refused():
    with override_settings(TIDEGATE={"RULES": {"login": "5/fortnight"}}), pytest.raises(ImproperlyConfigured):
        RateLimitMiddleware(view)


def test_it_is_native_in_both_worlds(monkeypatch):
    def hop(*_, **__):
        raise AssertionError("a thread was asked")

    sync, awaited = RateLimitMiddleware(view), RateLimitMiddleware(view_async)
    assert not iscoroutinefunction(sync)
    assert iscoroutinefunction(awaited)
    monkeypatch.setattr(exchange, "sync_to_async", hop)
    request = Sync().post("/free").wsgi_request
    for attribute in ("user", "auser", "ratelimit"):
        request.__dict__.pop(attribute, None)
    call = awaited(request)
    assert inspect.isawaitable(call)
    assert asyncio.run(call).content == b"passed unlimited"


def test_loops_that_wait_for_the_store_are_answered(redis, prefix):
    ours = {**MINE, "URL": redis.url, "STORE": {"prefix": prefix, "deadline": "20s"}}
    with override_settings(TIDEGATE=ours):

        async def load():
            client = AsyncClient()
            answers = await asyncio.gather(*(client.post("/login") for _ in range(10)))
            return sorted(answer.status_code for answer in answers)

        assert asyncio.run(load()) == [200] * 2 + [429] * 8
        assert Sync("127.0.0.1").post("/login").status_code == 429
        assert conf.current().policy.metrics()["limiter"]["nodes"]


@pytest.mark.parametrize(
    ("server", "told"), [(["/run/site.sock", None], "203.0.113.7"), (["127.0.0.1", 80], None)], ids=["unix", "unknown"]
)
def test_a_peer_without_an_address_is_a_socket_where_the_server_says_so(server, told):
    """Who is not known is no proxy, whatever he says."""
    http = ASGIRequest(
        {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [(b"x-forwarded-for", b"203.0.113.7")],
            "client": None,
            "server": server,
        },
        io.BytesIO(),
    )
    document = {
        "version": 1,
        "rules": {"r": "1/m"},
        "http": {"trusted_proxies": ["unix"], "default": {"rules": "r", "key": "ip"}},
    }
    with override_settings(TIDEGATE={"DOCUMENT": document}):
        settings = conf.current()
        request = settings.policy.request("GET", "/")
        asked = exchange.told(settings, request, http)
    assert request.client_address(asked["peer"], asked["headers"]) == told


def test_who_is_false_is_nobody():
    assert (_web.user(False), _web.user(0), _web.user(None)) == (None, "0", None)


def test_a_user_who_is_not_saved_yet_is_nobody():
    assert (exchange._key(User(pk=7)), exchange._key(User())) == ("7", None)

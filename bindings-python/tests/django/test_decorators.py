"""`@ratelimit` on views of every kind, through Django's own clients and handlers."""

import asyncio
import functools
import itertools
import json
import sys
import threading
import time
import types

import django_ready  # noqa: F401
import pytest
from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404, HttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from tidegate.django import decorators
from tidegate.django.conf import current
from tidegate.django.decorators import ALL, UNSAFE, ratelimit
from tidegate.django.view_checks import check_views

MINE = {
    "RULES": {"login": "2/m", "missing": "1/m"},
    "ROUTES": [
        {"name": "login", "path": "/login", "rules": "login", "key": "ip"},
        {"name": "missing", "path": "/missing", "rules": "missing", "key": "ip", "refund_status": [404]},
    ],
}
FACTORY = RequestFactory()


@pytest.fixture(autouse=True)
def _mine(monkeypatch):
    # Documents of other tests do not have the routes that are named here.
    monkeypatch.setattr(decorators, "NAMED", set())
    with override_settings(TIDEGATE=MINE, ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        yield


def plain(request, *args, **kwargs):
    return HttpResponse("passed")


async def awaited(request):
    await asyncio.sleep(0)
    return HttpResponse("passed")


def statuses(view, count, make=FACTORY.get, **options):
    return [view(make("/", **options)).status_code for _ in range(count)]


class Search(View):
    def get(self, request):
        return HttpResponse("passed")

    def post(self, request):
        return HttpResponse("passed")


@method_decorator(ratelimit(key="ip", rate="1/m"), name="dispatch")
class ByName(Search):
    pass


@ratelimit(key="ip", rate="1/m")
class ByClass(Search):
    pass


class Silent(View):
    async def get(self, request):
        return HttpResponse("passed")


@ratelimit(key="ip", rate="1/m")
class Async(View):
    async def get(self, request):
        await asyncio.sleep(0)
        return HttpResponse("passed")


class ByMethod(Search):
    @method_decorator(ratelimit(key="ip", rate="1/m"))
    def post(self, request):
        return HttpResponse("passed")


urlpatterns = [
    path("sync", ratelimit(key="ip", rate="1/m")(plain)),
    path("async", ratelimit(key="ip", rate="1/m")(awaited)),
    path("name", ByName.as_view()),
    path("class", ByClass.as_view()),
    path("async-class", Async.as_view()),
    path("as-view", ratelimit(key="ip", rate="1/m")(Search.as_view())),
    path("partial", ratelimit(key="ip", rate="1/m")(functools.partial(plain, extra=1))),
    path("async-partial", ratelimit(key="ip", rate="1/m")(functools.partial(awaited))),
]
PATHS = [f"/{pattern.pattern}" for pattern in urlpatterns]


@pytest.mark.parametrize("url", PATHS)
def test_a_view_of_every_kind_is_limited_under_wsgi(url):
    responses = [Client().get(url) for _ in range(2)]
    assert [response.status_code for response in responses] == [200, 429]
    assert all("RateLimit" in response for response in responses)


@pytest.mark.parametrize("url", PATHS)
def test_a_view_of_every_kind_is_limited_under_asgi(url):
    async def twice():
        return [await AsyncClient().get(url) for _ in range(2)]

    responses = asyncio.run(twice())
    assert [response.status_code for response in responses] == [200, 429]
    assert all("RateLimit" in response for response in responses)


def test_an_async_view_stays_one():
    assert iscoroutinefunction(ratelimit(key="ip", rate="1/m")(awaited))
    assert iscoroutinefunction(ratelimit(key="ip", rate="1/m")(functools.partial(awaited)))
    assert iscoroutinefunction(ratelimit(key="ip", rate="1/m")(Async.as_view()))
    assert not iscoroutinefunction(ratelimit(key="ip", rate="1/m")(plain))


def test_a_refusal_is_the_core_s_response():
    view = ratelimit(key="ip", rate="1/m", group="search")(plain)
    passed, refused = view(FACTORY.get("/")), view(FACTORY.get("/", HTTP_ACCEPT="application/json"))
    assert passed.headers["RateLimit"] == '"search 1/m";r=0;t=60'
    assert "Retry-After" not in passed.headers
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "60"
    assert refused.headers["Content-Type"] == "application/json"


def test_a_route_of_the_document_is_named():
    view = ratelimit(route="login")(plain)
    assert statuses(view, 3) == [200, 200, 429]
    assert statuses(view, 1, REMOTE_ADDR="203.0.113.9") == [200]


def test_what_the_status_gives_back_is_given_back_after_exceptions_too():
    def missing(request):
        raise Http404

    view = ratelimit(route="missing")(missing)
    for _ in range(3):
        with pytest.raises(Http404):
            view(FACTORY.get("/"))
    assert statuses(ratelimit(route="missing")(plain), 2) == [200, 429]


def test_an_exception_that_gives_nothing_back_stays_charged():
    def forbidden(request):
        raise PermissionDenied

    view = ratelimit(route="missing")(forbidden)
    with pytest.raises(PermissionDenied):
        view(FACTORY.get("/"))
    assert view(FACTORY.get("/")).status_code == 429


def test_the_group_is_the_view_s_own_name():
    names = {}

    def seen(group, request):
        names[request.path] = group
        return None

    limit = ratelimit(key=seen, rate="1/m")
    inherited = type("Inherited", (Search,), {"__module__": __name__})
    limit(plain)(FACTORY.get("/function"))
    limit(functools.partial(plain))(FACTORY.get("/partial"))
    limit(Search.as_view())(FACTORY.get("/as_view"))
    method_decorator(limit, name="dispatch")(inherited).as_view()(FACTORY.get("/dispatch"))
    by_method = type("ByMethod", (View,), {"__module__": __name__, "get": method_decorator(limit)(Search.get)})
    by_method.as_view()(FACTORY.get("/method"))
    assert names == {
        "/function": f"{__name__}.plain",
        "/partial": f"{__name__}.plain",
        "/as_view": f"{__name__}.Search",
        "/dispatch": f"{__name__}.Inherited",
        "/method": f"{__name__}.ByMethod.get",
    }


def test_classes_that_inherit_one_dispatch_are_limited_apart():
    assert statuses(ByName.as_view(), 2) == [200, 429]
    assert statuses(ByClass.as_view(), 2) == [200, 429]


def test_a_limit_on_one_method_leaves_the_others_alone():
    view = ByMethod.as_view()
    assert statuses(view, 2, FACTORY.post) == [200, 429]
    assert statuses(view, 2) == [200, 200]


def test_a_group_is_shared():
    one = ratelimit(key="ip", rate="1/m", group="both")(plain)
    other = ratelimit(key="ip", rate="1/m", group="both")(Search.as_view())
    assert statuses(one, 1) == [200]
    assert statuses(other, 1) == [429]


def test_a_long_group_is_still_a_name():
    one = ratelimit(key="ip", rate="1/m", group="a" * 80 + ".one")(plain)
    other = ratelimit(key="ip", rate="1/m", group="b" + "a" * 79 + ".one")(plain)
    assert statuses(one, 2) == [200, 429]
    assert statuses(other, 2) == [200, 429]


@pytest.mark.parametrize("method", ["POST", "post", ["POST"], ("PUT", "POST"), UNSAFE, ratelimit.UNSAFE])
def test_other_methods_are_not_limited(method):
    view = ratelimit(key="ip", rate="1/m", method=method)(plain)
    assert statuses(view, 2) == [200, 200]
    assert statuses(view, 2, FACTORY.post) == [200, 429]


@pytest.mark.parametrize("method", [ALL, ratelimit.ALL, None, (None,)])
def test_all_methods_share_a_limit(method):
    view = ratelimit(key="ip", rate="1/m", method=method)(plain)
    assert statuses(view, 1) == [200]
    assert statuses(view, 1, FACTORY.post) == [429]


def test_head_is_no_way_around_get():
    view = ratelimit(key="ip", rate="1/m", method="GET")(plain)
    assert statuses(view, 2, FACTORY.head) == [200, 429]


@pytest.mark.parametrize("rate", ["2/m", "2/minute", "2 per minute", (2, 60), "2/60", "9/s; 2/m"])
def test_rates_of_every_dialect(rate):
    assert statuses(ratelimit(key="ip", rate=rate)(plain), 3) == [200, 200, 429]


def test_a_rate_of_nothing_refuses_and_of_none_lets_pass():
    assert statuses(ratelimit(key="ip", rate="0/s")(plain), 1) == [429]
    assert statuses(ratelimit(key="ip", rate=None)(plain), 3) == [200] * 3


def by_tier(group, request):
    return {"gold": "2/m", "free": "1/m"}.get(request.headers.get("X-Tier", "none"))


@pytest.mark.parametrize("rate", [by_tier, f"{__name__}.by_tier"])
def test_a_rate_for_each_request(rate):
    view = ratelimit(key="ip", rate=rate)(plain)
    assert statuses(view, 2, HTTP_X_TIER="free") == [200, 429]
    assert statuses(view, 3, HTTP_X_TIER="gold") == [200, 200, 429]
    assert statuses(view, 4) == [200] * 4


def test_a_path_into_the_module_that_is_being_imported():
    module = types.ModuleType("half_imported")
    module.__spec__ = types.SimpleNamespace(_initializing=True, name="half_imported")
    sys.modules["half_imported"] = module
    try:
        view = ratelimit(key="half_imported.who", rate="1/m")(plain)
        module.who = lambda group, request: "all"
        module.__spec__._initializing = False
        assert statuses(view, 2) == [200, 429]
    finally:
        del sys.modules["half_imported"]


def test_keys():
    by_field = ratelimit(key="post:name", rate="1/m", without_identity="skip")(plain)
    assert statuses(by_field, 2, FACTORY.post, data={"name": "a"}) == [200, 429]
    assert statuses(by_field, 2, FACTORY.post, data={"name": "b"}) == [200, 429]
    assert statuses(by_field, 2, FACTORY.post) == [200, 200]
    by_query = ratelimit(key="get:q", rate="1/m", without_identity="refuse")(plain)
    assert statuses(by_query, 2, data={"q": "a"}) == [200, 429]
    assert statuses(by_query, 1) == [403]
    by_header = ratelimit(key="header:x-api-key", rate="1/m", without_identity="share")(plain)
    assert statuses(by_header, 2, HTTP_X_API_KEY="a") == [200, 429]
    assert statuses(by_header, 1, HTTP_X_API_KEY="b") == [200]
    assert statuses(by_header, 2) == [200, 429]
    by_both = ratelimit(key=["ip", "header:x-api-key"], rate="1/m", without_identity="skip")(plain)
    assert statuses(by_both, 2, HTTP_X_API_KEY="a") == [200, 429]


@pytest.mark.parametrize("key", ["user_or_ip", "user or ip"])
def test_user_or_ip(key):
    view = ratelimit(key=key, rate="1/m")(plain)

    def as_user(pk):
        request = FACTORY.get("/")
        request.user = types.SimpleNamespace(pk=pk, is_authenticated=pk is not None, get_username=lambda: str(pk))
        return view(request).status_code

    assert [as_user(1), as_user(1), as_user(2), as_user(None), as_user(None)] == [200, 429, 200, 200, 429]


def test_a_key_function():
    view = ratelimit(key=lambda group, request: request.headers.get("X-Who"), rate="1/m")(plain)
    assert statuses(view, 2, HTTP_X_WHO="a") == [200, 429]
    assert statuses(view, 1, HTTP_X_WHO="b") == [200]
    assert statuses(view, 3) == [200] * 3
    with pytest.raises(ImproperlyConfigured, match="return text, or None"):
        statuses(view, 1, HTTP_X_WHO="")


def test_a_key_of_text_that_utf_8_does_not_have_is_counted():
    """A client writes it into a JSON body."""
    assert statuses(ratelimit(key=lambda group, request: "a\ud800", rate="1/m")(plain), 2) == [200, 429]


def test_functions_of_async_views_may_be_async():
    async def who(group, request):
        await asyncio.sleep(0)
        return "all"

    async def spared(group, request):
        await asyncio.sleep(0)
        return "spared" in request.GET

    view = ratelimit(key=who, rate="1/m", exempt=spared)(awaited)

    async def twice(url):
        return [(await view(AsyncRequestFactory().get(url))).status_code for _ in range(2)]

    assert asyncio.run(twice("/?spared")) == [200, 200]
    assert asyncio.run(twice("/")) == [200, 429]


def test_a_coroutine_exempts_nobody_and_is_nobody_on_a_view_that_cannot_await_it():
    async def supplied(group, request):
        return False

    for limit in (ratelimit(key="ip", rate="1/m", exempt=supplied), ratelimit(key=supplied, rate="1/m")):
        with pytest.raises(TypeError, match="is async, and this request is not"):
            limit(plain)(FACTORY.get("/"))


def test_costs():
    assert statuses(ratelimit(key="ip", rate="5/m", cost=2)(plain), 3) == [200, 200, 429]
    view = ratelimit(key="ip", rate="5/m", group="by the request", cost=lambda group, request: int(request.GET["n"]))(
        plain
    )
    assert statuses(view, 1, data={"n": 4}) == [200]
    assert statuses(view, 1, data={"n": 2}) == [429]
    assert statuses(view, 2, data={"n": 1}) == [200, 429]


def test_who_is_exempt_is_not_counted():
    view = ratelimit(key="ip", rate="1/m", exempt=lambda group, request: "staff" in request.GET)(plain)
    assert statuses(view, 3, data={"staff": 1}) == [200] * 3
    assert statuses(view, 2) == [200, 429]


def test_what_does_not_block_is_told():
    seen = []

    def view(request):
        seen.append((request.limited, request.ratelimit.outcome, request.ratelimit.decisions[0].remaining))
        return HttpResponse("passed")

    limited = ratelimit(key="ip", rate="1/m", block=False)(view)
    responses = [limited(FACTORY.get("/")) for _ in range(2)]
    assert seen == [(False, "allowed", 0), (True, "refused", 0)]
    assert [response.status_code for response in responses] == [200, 200]
    assert responses[1].headers["Content-Type"] == "text/html; charset=utf-8"


def test_stacked_limits_are_each_their_own():
    view = ratelimit(key="ip", rate="3/m")(ratelimit(key="ip", rate="2/h")(plain))
    first = view(FACTORY.get("/"))
    assert first.headers["RateLimit-Policy"].count("q=") == 2
    assert statuses(view, 2) == [200, 429]


def test_a_refusal_gives_back_what_decorators_around_it_charged():
    around = ratelimit(key="ip", rate="3/h", group="around")
    view = around(ratelimit(key="ip", rate="1/h")(plain))
    assert statuses(view, 10) == [200] + [429] * 9
    assert statuses(around(plain), 3) == [200, 200, 429]


def test_a_view_that_answers_in_spite_of_a_refusal_inside_it_stays_charged():
    inside = ratelimit(key="ip", rate="0/s")(plain)

    @ratelimit(key="ip", rate="1/h")
    def view(request):
        assert inside(request).status_code == 429
        return HttpResponse("something else")

    assert statuses(view, 2) == [200, 429]


def test_a_rule_is_charged_once_whatever_is_stacked():
    once = ratelimit(key="ip", rate="2/m", group="once")
    assert statuses(once(once(plain)), 3) == [200, 200, 429]
    route = ratelimit(route="login")
    assert statuses(route(ratelimit(key="ip", rate="9/m")(route(plain))), 3) == [200, 200, 429]


def test_a_refusal_that_does_not_block_does_not_make_others_charge_twice():
    strict = ratelimit(key="ip", rate="0/s", block=False)
    route = ratelimit(route="login")
    assert statuses(route(strict(route(plain))), 3) == [200, 200, 429]


def test_what_is_switched_off_limits_nobody():
    with override_settings(TIDEGATE={**MINE, "ENABLED": False}):
        assert statuses(ratelimit(key="ip", rate="0/s")(plain), 2) == [200, 200]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "route='NAME'"),
        ({"key": "ip"}, "rate='5/m'"),
        ({"rate": "5/m"}, "key='ip'"),
        ({"key": "ip", "rate": "10/M"}, "write m for minutes"),
        ({"key": "ip", "rate": "5/fortnight"}, "5/fortnight"),
        ({"key": "ip", "rate": "10/m;"}, "10/m"),
        ({"key": "ip", "rate": 5}, "write '100/m'"),
        ({"key": "ip", "rate": (5, 0)}, "window"),
        ({"key": "ip", "rate": "no.such.function"}, "cannot be imported"),
        ({"key": "no.such.function", "rate": "5/m"}, "cannot be imported"),
        ({"key": "ip", "rate": "5/m", "exempt": "is_staff"}, "cannot be called"),
        ({"key": "who", "rate": "5/m"}, "is not known"),
        ({"key": "user", "rate": "5/m"}, "without_identity"),
        ({"key": "post:name", "rate": "5/m"}, "without_identity"),
        ({"key": "ip", "rate": "5/m", "cost": 0}, "cost"),
        ({"key": "ip", "rate": "5/m", "cost": 6}, "cost"),
        ({"key": "ip", "rate": "5/m", "method": "PO ST"}, "write 'POST'"),
        ({"key": "ip", "rate": "5/m", "on_error": "perhaps"}, "on_error"),
        ({"route": "login", "rate": "5/m"}, "the document says"),
        ({"route": "login", "key": "ip"}, "the document says"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_import(wrong, says):
    with pytest.raises(ImproperlyConfigured) as refused:
        ratelimit(**wrong)
    assert says in str(refused.value)


def test_the_system_check_knows_the_routes_that_are_named():
    ratelimit(route="login")
    assert check_views() == []
    ratelimit(route="logn")
    assert ["'logn'" in message.msg and "login" in message.hint for message in check_views()] == [True]
    with override_settings(TIDEGATE={**MINE, "ENABLED": False}):
        assert check_views() == []


def test_a_method_without_method_decorator_is_told_what_to_write():
    class Wrong(View):
        @ratelimit(key="ip", rate="5/m")
        def get(self, request):
            raise AssertionError

    with pytest.raises(TypeError, match="method_decorator"):
        Wrong.as_view()(FACTORY.get("/"))


def test_threads_on_redis_are_admitted_exactly(redis, prefix):
    store = {"url": redis.url, "prefix": prefix, "deadline": "10s"}
    view = ratelimit(key="ip", rate="20/h", group="upload")(plain)
    seen = []
    with override_settings(TIDEGATE={**MINE, "STORE": store}):
        threads = [threading.Thread(target=lambda: seen.extend(statuses(view, 10))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert (seen.count(200), seen.count(429)) == (20, 60)


def test_tasks_on_redis_are_admitted_exactly(redis, prefix):
    store = {"url": redis.url, "prefix": prefix, "deadline": "10s"}
    view = ratelimit(key="ip", rate="20/h", group="upload")(awaited)

    async def flood():
        return await asyncio.gather(*(view(AsyncRequestFactory().get("/")) for _ in range(80)))

    with override_settings(TIDEGATE={**MINE, "STORE": store}):
        seen = [response.status_code for response in asyncio.run(flood())]
    assert (seen.count(200), seen.count(429)) == (20, 60)


@pytest.mark.parametrize("kind", ["function", "method_decorator"])
def test_the_loop_goes_on_while_the_store_is_silent(own_redis, prefix, kind):
    """A view that waited for the store on the loop would keep everything else waiting as long."""
    store = {"url": own_redis.url, "prefix": prefix, "deadline": "1s"}
    limit = ratelimit(key="ip", rate="20/h", group="silent")
    limited = limit(awaited) if kind == "function" else method_decorator(limit, name="dispatch")(Silent).as_view()

    async def ticks():
        count, request = 0, asyncio.ensure_future(limited(AsyncRequestFactory().get("/")))
        while not request.done():
            await asyncio.sleep(0.001)
            count += 1
        return count, (await request).status_code

    with override_settings(TIDEGATE={**MINE, "STORE": store}):
        current().policy.ready(10)
        own_redis.do("pause")
        try:
            count, status = asyncio.run(ticks())
        finally:
            own_redis.do("resume")
    assert status == 200
    # A loop that stood still would have turned once or twice in this second.
    assert count > 20


def test_a_document_that_is_taken_again_is_the_decorators_too(tmp_path):
    """Proxies that are trusted no more are not believed, and a torn file changes nothing."""
    file = tmp_path / "rules.json"
    trusting = {
        "version": 1,
        "rules": {"none": "1/s"},
        "http": {"default": {"rules": []}, "trusted_proxies": ["loopback"]},
    }
    file.write_text(json.dumps(trusting))
    limited = ratelimit(key="ip", rate="1/h", group="taken again")(plain)
    numbers = itertools.count(1)

    def forged():
        request = FACTORY.get("/", headers={"X-Forwarded-For": f"203.0.113.{next(numbers)}"})
        return limited(request).status_code

    def eventually_refused():
        for _ in range(200):
            if forged() == 429:
                return True
            time.sleep(0.05)
        return False

    with override_settings(TIDEGATE={"DOCUMENT": str(file)}):
        assert [forged() for _ in range(5)] == [200] * 5
        file.write_text("{ torn")
        time.sleep(1.5)
        assert [forged() for _ in range(5)] == [200] * 5
        file.write_text(json.dumps({**trusting, "http": {"default": {"rules": []}}}))
        assert eventually_refused()
        assert [forged() for _ in range(5)] == [429] * 5

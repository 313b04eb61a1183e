"""The throttles, by REST framework's settings alone, in its own views."""

import threading
import time
import types
import uuid

import django_ready  # noqa: F401
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView
from tidegate import drf
from tidegate.django import decorators
from tidegate.django.decorators import ratelimit
from tidegate.django.view_checks import check_views

FACTORY = APIRequestFactory()
MINE = {
    "RULES": {"upload": "2/m"},
    "ROUTES": [
        {"name": "upload", "path": "/upload", "rules": "upload", "key": "ip"},
        {"name": "once", "path": "/once", "rules": "upload", "key": "ip"},
    ],
}


@pytest.fixture(autouse=True)
def _mine(monkeypatch):
    # Documents of other tests do not have the routes that are named here.
    monkeypatch.setattr(decorators, "NAMED", set())
    with override_settings(TIDEGATE=MINE):
        yield


def rates(classes=("AnonRateThrottle", "UserRateThrottle"), **options):
    """REST framework's settings, as a project writes them; ``rates`` are those by scope."""
    of = {"DEFAULT_THROTTLE_CLASSES": [f"tidegate.drf.{name}" for name in classes]}
    of["DEFAULT_THROTTLE_RATES"] = options.pop("rates", {"anon": "1/min", "user": "2/min"})
    return override_settings(REST_FRAMEWORK={**of, **options})


def view(*throttles, **attributes):
    """A view with these throttles, or with those of the settings as they are now."""

    def get(self, request):
        return Response({"passed": True})

    said = {"throttle_classes": throttles} if throttles else {"get_throttles": of_settings}
    return type("Items", (APIView,), {"get": get, **said, **attributes}).as_view()


def of_settings(self):
    """What a view that says nothing has; it remembers them when it is imported, and here they change."""
    from rest_framework.settings import api_settings

    return [throttle() for throttle in api_settings.DEFAULT_THROTTLE_CLASSES]


def call(items, user=None, **meta):
    request = FACTORY.get("/items", **meta)
    if user is not None:
        force_authenticate(request, types.SimpleNamespace(pk=user, is_authenticated=True))
    return items(request)


def statuses(items, count, user=None, **meta):
    return [call(items, user, **meta).status_code for _ in range(count)]


def test_settings_alone_switch_them_on():
    with rates():
        items = view()
        assert statuses(items, 2) == [200, 429]
        assert statuses(items, 1, REMOTE_ADDR="203.0.113.9") == [200]
        assert statuses(items, 3, user=1) == [200, 200, 429]
        assert statuses(items, 1, user=2) == [200]


def test_a_refusal_says_when_to_come_and_how_the_limits_stand():
    with rates(["UserRateThrottle"], rates={"user": "1/min"}):
        items = view()
        passed, refused = call(items), call(items)
    assert passed.headers["RateLimit"] == '"throttle:user 1/min";r=0;t=60'
    assert "Retry-After" not in passed.headers
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "60"
    assert refused.headers["X-RateLimit-Remaining"] == "0"
    assert "60 seconds" in refused.data["detail"]
    refused.render()
    assert refused.headers["Content-Type"] == "application/json"


def test_wait_is_a_float_of_seconds():
    waits = []

    class Waits(drf.UserRateThrottle):
        rate = "1/min"

        def wait(self):
            waits.append(super().wait())
            return waits[-1]

    assert statuses(view(Waits), 2) == [200, 429]
    assert isinstance(waits[0], float)
    assert 58 < waits[0] <= 60


def test_a_wait_without_end_is_none():
    class Never(drf.UserRateThrottle):
        rate = "0/s"

    refused = call(view(Never))
    assert refused.status_code == 429
    assert "Retry-After" not in refused.headers


def test_a_refused_call_charges_nothing_of_the_throttles_around_it():
    """The others have charged already, or would charge afterwards: they hold ten, and nine refusals take none."""

    class Before(drf.UserRateThrottle):
        scope, rate = "before", "3/h"

    class Strict(drf.UserRateThrottle):
        scope, rate = "strict", "1/h"

    class After(drf.UserRateThrottle):
        scope, rate = "after", "3/h"

    assert statuses(view(Before, Strict, After), 10) == [200] + [429] * 9
    for throttle in (Before, After):
        wait_for(lambda throttle=throttle: remaining(throttle) == 2)


def remaining(throttle):
    """What a throttle would let pass, by a call that it is given back for."""

    class Closed(drf.UserRateThrottle):
        rate = "0/s"

    seen = []

    class Seen(throttle):
        def allow_request(self, request, view):
            try:
                return super().allow_request(request, view)
            finally:
                decision = request.ratelimit.decisions[-1]
                seen.append(decision.remaining + decision.allowed)

    call(view(Seen, Closed))
    return seen[0]


def wait_for(true):
    """Charges are given back in the background."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_was_given_back_is_charged_again_where_one_request_is_several_calls():
    class Once(drf.UserRateThrottle):
        scope, rate = "once", "1/h"

    class Closed(drf.UserRateThrottle):
        rate = "0/s"

    request = FACTORY.get("/items")
    assert view(Once, Closed)(request).status_code == 429
    assert view(Once)(request).status_code == 200
    assert call(view(Once)).status_code == 429


@pytest.mark.parametrize("rates", [("1/min", "1/h"), ("1/h", "1/min")])
def test_the_longest_wait_of_all_is_told(rates):
    class First(drf.UserRateThrottle):
        scope, rate = "first", rates[0]

    class Second(drf.UserRateThrottle):
        scope, rate = "second", rates[1]

    items = view(First, Second)
    assert call(items).status_code == 200
    assert call(items).headers["Retry-After"] == "3600"


def test_scopes():
    with rates(["ScopedRateThrottle"], rates={"uploads": "1/min", "reads": None}):
        uploads, other = view(throttle_scope="uploads"), view(throttle_scope="uploads")
        assert statuses(uploads, 1) == [200]
        assert statuses(other, 1) == [429]
        assert statuses(view(throttle_scope="reads"), 3) == [200] * 3
        assert statuses(view(), 3) == [200] * 3
        with pytest.raises(ImproperlyConfigured, match="DEFAULT_THROTTLE_RATES"):
            call(view(throttle_scope="unheard-of"))


@pytest.mark.parametrize("rate", ["2/min", "2/minute", "2/m", "2/60", "2 per minute", "4/2m; 2/min", (2, 60)])
def test_rates_of_every_dialect(rate):
    with rates(["UserRateThrottle"], rates={"user": rate}):
        assert statuses(view(), 3) == [200, 200, 429]


def test_a_rate_of_several_minutes():
    with rates(["UserRateThrottle"], rates={"user": "1/5m"}):
        items = view()
        assert [call(items).status_code, call(items).headers["Retry-After"]] == [200, "300"]


@pytest.mark.parametrize(
    ("rate", "says"), [("5/M", "write m for minutes"), ("5/fortnight", "fortnight"), (5, "'100/m'")]
)
def test_what_cannot_be_meant_is_refused(rate, says):
    with rates(["UserRateThrottle"], rates={"user": rate}), pytest.raises(ImproperlyConfigured, match=says):
        call(view())


def test_the_system_check_finds_what_would_fail():
    with rates(
        ["UserRateThrottle"], rates={"a": "5/M", "b": "route:nowhere", "c": "route:upload", "d": None, "e": "5/m"}
    ):
        messages = [message.msg for message in check_views()]
    assert [message.partition(":")[0] for message in messages] == [
        "DEFAULT_THROTTLE_RATES['a']",
        "DEFAULT_THROTTLE_RATES['b']",
    ]
    assert "write m for minutes" in messages[0]
    assert "'nowhere'" in messages[1]
    with rates():
        assert check_views() == []


def test_a_month_is_no_minute():
    with rates(["UserRateThrottle"], rates={"user": "1/month"}):
        items = view()
        assert [call(items).status_code, call(items).headers["Retry-After"]] == [200, str(30 * 24 * 3600)]


def test_what_users_override_holds():
    class ByTenant(drf.UserRateThrottle):
        THROTTLE_RATES = {"tenant": "1/min"}  # noqa: RUF012
        scope = "tenant"

        def get_cache_key(self, request, view):
            return request.headers.get("X-Tenant")

    class ByDevice(drf.AnonRateThrottle):
        def get_rate(self):
            return "1/min"

        def get_ident(self, request):
            return request.headers["X-Device"]

    class Parsed(drf.UserRateThrottle):
        rate = "one a minute"

        def parse_rate(self, rate):
            return (1, 60)

    tenants, devices = view(ByTenant), view(ByDevice)
    assert statuses(tenants, 2, HTTP_X_TENANT="a") == [200, 429]
    assert statuses(tenants, 1, HTTP_X_TENANT="b") == [200]
    assert statuses(tenants, 3) == [200] * 3
    assert statuses(devices, 2, HTTP_X_DEVICE="a") == [200, 429]
    assert statuses(devices, 1, HTTP_X_DEVICE="b") == [200]
    assert statuses(devices, 2, user=1, HTTP_X_DEVICE="a") == [200, 200]
    assert statuses(view(Parsed), 2) == [200, 429]
    with pytest.raises(ImproperlyConfigured, match="return text, or None"):
        call(tenants, HTTP_X_TENANT="")


@pytest.mark.parametrize("key", [0, 7, uuid.UUID(int=7), "a\ud800"])
def test_a_key_is_told_as_the_application_has_it(key):
    class Keyed(drf.UserRateThrottle):
        rate = "1/m"

        def get_cache_key(self, request, view):
            return key

    assert statuses(view(Keyed), 2) == [200, 429]


class OfARoute(drf.RateThrottle):
    rate = "route:flaky"


class Flaky(APIView):
    throttle_classes = (OfARoute,)

    def get(self, request):
        raise ValueError("of the view")


def test_what_a_status_gives_back_is_given_back_of_throttles_by_the_middleware():
    """A throttle does not see what its view answers, or that it raises."""
    flaky = {"name": "flaky", "path": "/of/no/request", "rules": "upload", "key": "ip", "refund_status": ["5xx"]}
    ours = "tidegate.django.RateLimitMiddleware"
    with override_settings(TIDEGATE={**MINE, "ROUTES": [flaky]}, ROOT_URLCONF=__name__, MIDDLEWARE=[ours]):
        here = Client(raise_request_exception=False)
        assert [here.get("/flaky").status_code for _ in range(5)] == [500] * 5


def test_two_of_one_scope_and_other_rates_both_hold():
    class Burst(drf.UserRateThrottle):
        rate = "9/s"

    class Sustained(drf.UserRateThrottle):
        rate = "2/h"

    assert statuses(view(Burst, Sustained), 3) == [200, 200, 429]


def test_a_forged_header_is_no_way_around():
    with rates(["AnonRateThrottle"], rates={"anon": "1/min"}):
        items = view()
        assert statuses(items, 1, HTTP_X_FORWARDED_FOR="198.51.100.1") == [200]
        assert statuses(items, 1, HTTP_X_FORWARDED_FOR="198.51.100.2") == [429]


def test_num_proxies_counts_from_the_right():
    with rates(["AnonRateThrottle"], rates={"anon": "1/min"}, NUM_PROXIES=1):
        items = view()
        assert statuses(items, 1, HTTP_X_FORWARDED_FOR="198.51.100.1, 203.0.113.7") == [200]
        assert statuses(items, 1, HTTP_X_FORWARDED_FOR="198.51.100.2, 203.0.113.7") == [429]
        assert statuses(items, 1, HTTP_X_FORWARDED_FOR="198.51.100.2, 203.0.113.8") == [200]


def test_trusted_proxies_come_before_num_proxies():
    trusting = {**MINE, "HTTP": {"trusted_proxies": ["127.0.0.0/8", "203.0.113.0/24"]}}
    with override_settings(TIDEGATE=trusting), rates(["AnonRateThrottle"], rates={"anon": "1/min"}, NUM_PROXIES=1):
        items = view()
        assert statuses(items, 1, HTTP_X_FORWARDED_FOR="198.51.100.1, 203.0.113.7") == [200]
        assert statuses(items, 1, HTTP_X_FORWARDED_FOR="198.51.100.1, 203.0.113.8") == [429]
        assert statuses(items, 1, HTTP_X_FORWARDED_FOR="198.51.100.2, 203.0.113.8") == [200]


def test_a_network_of_ipv6_is_one_client():
    with rates(["AnonRateThrottle"], rates={"anon": "1/min"}):
        items = view()
        assert statuses(items, 1, REMOTE_ADDR="2001:db8::1") == [200]
        assert statuses(items, 1, REMOTE_ADDR="2001:db8::2") == [429]


class Items(APIView):
    throttle_classes = (drf.UserRateThrottle,)

    def get(self, request):
        return Response({"passed": True})


def decorated(request):
    return ratelimit(route="upload")(Items.as_view())(request)


urlpatterns = [path("once", decorated), path("flaky", Flaky.as_view())]


def through_the_middleware():
    return override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=["tidegate.django.RateLimitMiddleware"])


def test_a_rule_is_charged_once_in_middleware_decorator_and_throttle():
    with through_the_middleware(), rates(["UserRateThrottle"], rates={"user": "route:upload"}):
        responses = [Client().get("/once") for _ in range(3)]
        assert [response.status_code for response in responses] == [200, 200, 429]
        assert responses[0].headers["RateLimit"] == '"upload";r=1;t=60'


def test_the_middleware_leaves_the_throttles_fields():
    with through_the_middleware(), rates(["UserRateThrottle"], rates={"user": "9/min"}):
        response = Client().get("/once")
    assert response.headers["RateLimit-Policy"] == '"upload";q=2;w=60, "throttle:user 9/min";q=9;w=60'


def test_a_store_that_fails_is_no_fault_of_the_client_s():
    class Closed(drf.UserRateThrottle):
        rate, on_error = "9/min", "deny"

    class Open(drf.UserRateThrottle):
        rate = "9/min"

    nowhere = {**MINE, "STORE": {"url": "redis://127.0.0.1:1", "deadline": "50ms"}}
    with override_settings(TIDEGATE=nowhere):
        assert call(view(Closed)).status_code == 503
        assert call(view(Open)).status_code == 200


def test_who_is_authenticated_late_is_the_user():
    class Late(BaseAuthentication):
        def authenticate(self, request):
            return types.SimpleNamespace(pk=request.headers["X-Token"], is_authenticated=True), None

    class Throttle(drf.UserRateThrottle):
        rate = "1/min"

    late = {"authentication_classes": [Late], "perform_authentication": lambda self, request: None}
    items = view(Throttle, **late)
    assert statuses(items, 2, HTTP_X_TOKEN="a") == [200, 429]
    assert statuses(items, 1, HTTP_X_TOKEN="b") == [200]


def test_views_of_functions_are_limited_each_for_itself():
    limit = ratelimit(key="ip", rate="1/min")

    @api_view()
    @limit
    def inside(request):
        return Response({"limited": request.limited})

    @limit
    @api_view()
    def outside(request):
        return Response({"limited": request.limited})

    @limit
    @api_view()
    def another(request):
        return Response({"limited": request.limited})

    for items in (inside, outside, another):
        assert statuses(items, 2) == [200, 429]


def test_what_is_switched_off_limits_nobody():
    with override_settings(TIDEGATE={**MINE, "ENABLED": False}), rates(rates={"anon": "0/s", "user": "0/s"}):
        assert statuses(view(), 2) == [200, 200]


def test_threads_on_redis_are_admitted_exactly(redis, prefix):
    store = {"url": redis.url, "prefix": prefix, "deadline": "10s"}
    seen = []
    with override_settings(TIDEGATE={**MINE, "STORE": store}), rates(["UserRateThrottle"], rates={"user": "20/h"}):
        items = view()
        threads = [threading.Thread(target=lambda: seen.extend(statuses(items, 10))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert (seen.count(200), seen.count(429)) == (20, 60)

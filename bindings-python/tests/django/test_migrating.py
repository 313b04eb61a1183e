"""What the pages on migration show, runs."""

import asyncio
import re
import types

import django_ready  # noqa: F401
import pytest
from conftest import ROOT
from django.test import AsyncRequestFactory, RequestFactory, override_settings
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

FACTORY = RequestFactory()


def page(name):
    """The names that a page's snippets define."""
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / name).read_text(), re.DOTALL)
    module = types.ModuleType("snippets")
    for snippet in snippets:
        exec(compile(snippet, name, "exec"), module.__dict__)
    return module


@pytest.fixture
def cache(redis, prefix):
    backend = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis.url}
    with override_settings(CACHES={"default": backend}, RATELIMIT_CACHE_PREFIX=prefix):
        yield


def test_from_django_ratelimit(cache):
    views = page("migrating-django-ratelimit.md")
    with override_settings(TIDEGATE=views.TIDEGATE):
        assert [views.login(FACTORY.post("/")).status_code for _ in range(6)] == [200] * 5 + [429]
        assert [views.login(FACTORY.get("/")).status_code for _ in range(6)] == [200] * 6
        named = [FACTORY.post("/", {"username": "a"}, REMOTE_ADDR=f"203.0.113.{place}") for place in range(21)]
        assert [views.login(request).status_code for request in named] == [200] * 20 + [429]
        assert [views.Report.as_view()(FACTORY.get("/")).status_code for _ in range(11)] == [200] * 10 + [429]
        assert [views.preview(FACTORY.get("/")).content for _ in range(2)] == [b"whole", b"short"]
        request = AsyncRequestFactory().get("/")
        request.user = types.SimpleNamespace(pk=1, is_authenticated=True)
        assert asyncio.run(views.search(request)).status_code == 200


def test_from_rest_framework(cache):
    project = page("migrating-drf.md")

    class Items(APIView):
        def get(self, request):
            return Response()

    make = APIRequestFactory().get
    with override_settings(TIDEGATE=project.TIDEGATE, REST_FRAMEWORK=project.REST_FRAMEWORK):
        from rest_framework.settings import api_settings

        said = {"throttle_classes": api_settings.DEFAULT_THROTTLE_CLASSES, "throttle_scope": "uploads"}
        uploads = type("Uploads", (Items,), said).as_view()
        assert [uploads(make("/")).status_code for _ in range(11)] == [200] * 10 + [429]
        burst = type("Burst", (Items,), {"throttle_classes": [project.BurstThrottle]}).as_view()
        assert [burst(make("/")).status_code for _ in range(50)] == [200] * 50
        tenant = type("Tenant", (Items,), {"throttle_classes": [project.TenantThrottle]}).as_view()
        assert tenant(make("/", HTTP_X_TENANT="a")).headers["X-RateLimit-Remaining"] == "4999"
        assert "X-RateLimit-Remaining" not in tenant(make("/")).headers

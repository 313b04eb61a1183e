"""The middleware: routes of the document are limited before any view is looked for."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Union

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from . import conf, exchange

Response = Union[HttpResponseBase, Awaitable[HttpResponseBase]]


class RateLimitMiddleware:
    """Admits or refuses requests by the routes of ``TIDEGATE``, and tells clients how their limits stand.

    It is native in both worlds: under WSGI it waits on the calling thread, under ASGI on the loop.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        """Raises ImproperlyConfigured if ``TIDEGATE`` is refused, so that a server does not start with it."""
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)
        conf.current()

    def __call__(self, http: HttpRequest) -> Response:
        if self.is_async:
            return self._call_async(http)
        settings = conf.current()
        policy = settings.policy
        if policy is None:
            return self.get_response(http)
        request = policy.request(http.method, exchange.path(http))
        admission = policy.admit(request, **exchange.told(settings, request, http))
        exchange.apply(http, admission)
        response = self.get_response(http) if admission else exchange.response(admission)
        exchange.tell(response, admission)
        exchange.settle(http, response.status_code)
        return response

    async def _call_async(self, http: HttpRequest) -> HttpResponseBase:
        settings = conf.current()
        policy = settings.policy
        if policy is None:
            return await self.get_response(http)
        request = policy.request(http.method, exchange.path(http))
        admission = await policy.admit_async(request, **await exchange.told_async(settings, request, http))
        await exchange.apply_async(http, admission)
        response = await self.get_response(http) if admission else exchange.response(admission)
        exchange.tell(response, admission)
        exchange.settle(http, response.status_code)
        return response

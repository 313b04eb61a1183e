"""Between a request of Django's and the policy: what it is told, and what the response is to have."""

from __future__ import annotations

import inspect
import logging
import time
from typing import Any, Dict, List, Optional, Tuple

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.functional import SimpleLazyObject

from .. import Admission, Request, _web
from ..asgi import peer_of
from .conf import Function, Settings
from .signals import rate_limited, store_degraded

logger = logging.getLogger("tidegate.django")

WITHOUT_STORE = ("local", "open", "closed")
"""The origins of decisions by ``on_error``."""

_DECIDED = "_ratelimit_decided"
"""Where a request has its admissions, in the order in which they were decided."""


def path(http: HttpRequest) -> str:
    """The path that the router sees, encoded again. What stands before it in ``http.path`` some clients can choose."""
    return _web.encoded(http.path_info)


def told(settings: Settings, request: Request, http: HttpRequest) -> Dict[str, Any]:
    """What ``Policy.admit`` is told of a request: no more than its route needs."""
    asked = _asked(settings, request)
    return _told(request, http, {what: _web.plain(function(http), function) for what, function in asked.items()})


async def told_async(settings: Settings, request: Request, http: HttpRequest) -> Dict[str, Any]:
    """``told`` on a loop. Functions may be coroutine functions; others run on the loop, and must not wait."""
    answers = {}
    for what, function in _asked(settings, request).items():
        answer = (_async_user if function is _user else function)(http)
        answers[what] = await answer if inspect.isawaitable(answer) else answer
    return _told(request, http, answers)


def apply(http: HttpRequest, admission: Admission) -> None:
    """Leaves the admission on the request, as ``ratelimit``, and tells who listens."""
    for signal in _heard(http, admission):
        signal.send_robust(type(http), request=http, admission=admission)


async def apply_async(http: HttpRequest, admission: Admission) -> None:
    """``apply`` on a loop. Receivers that are not coroutine functions run in a thread."""
    for signal in _heard(http, admission):
        send = getattr(signal, "asend_robust", None) or sync_to_async(signal.send_robust)
        await send(type(http), request=http, admission=admission)


def response(admission: Admission) -> HttpResponse:
    """The response to a request that may not pass."""
    return HttpResponse(admission.body or "", status=admission.status, headers=dict(admission.headers))


def tell(response: HttpResponseBase, admission: Admission) -> None:
    """Gives a response the fields that it does not have yet, and gives back what its status says."""
    for name, value in admission.headers:
        if name == "Vary":
            patch_vary_headers(response, [value])
        elif name not in response:
            response[name] = value
    admission.settle(response.status_code)


def _peer(http: HttpRequest) -> Optional[str]:
    """The peer's address: empty under WSGI where the server listens on a Unix socket; ASGI's scope tells of that."""
    address: Optional[str] = http.META.get("REMOTE_ADDR")
    scope = getattr(http, "scope", None)
    return peer_of(scope) if address is None and scope is not None else address


def settle(http: HttpRequest, status: int) -> None:
    """Gives back what a status says of all that was decided of a request: throttles do not see their response."""
    for admission in http.__dict__.get(_DECIDED, ()):
        admission.settle(status)


def _asked(settings: Settings, request: Request) -> Dict[Tuple[str, str], Function]:
    """The functions whose answers a request needs."""
    asked: Dict[Tuple[str, str], Function] = {}
    if request.needs_user:
        asked["user", ""] = settings.user or _user
    for name in request.needs_values:
        if name in settings.values:
            asked["value", name] = settings.values[name]
    for question in request.needs_answers:
        if question in settings.answers:
            asked["answer", question] = settings.answers[question]
    return asked


def _told(request: Request, http: HttpRequest, answers: Dict[Tuple[str, str], Any]) -> Dict[str, Any]:
    told: Dict[str, Any] = {
        "peer": _peer(http),
        "headers": _web.headers_of(http.META, request.needs_headers),
    }
    for (kind, name), answer in answers.items():
        if kind == "user":
            told["user"] = _web.user(answer)
        elif kind == "value" and answer is not None:
            told.setdefault("values", {})[name] = _web.identity(answer)
        elif kind == "answer" and answer:
            told.setdefault("answers", []).append(name)
    before = getattr(http, "ratelimit", None)
    if isinstance(before, Admission):
        told["after"] = before
    return told


def _user(http: HttpRequest) -> Optional[str]:
    """The key of whoever is logged in."""
    try:
        user = http.user
    except AttributeError:
        raise ImproperlyConfigured(
            "a rule of TIDEGATE needs the user, whom nobody has looked at yet: write RateLimitMiddleware behind "
            "AuthenticationMiddleware in MIDDLEWARE, or TIDEGATE['USER']"
        ) from None
    return _key(user)


async def _async_user(http: HttpRequest) -> Optional[str]:
    user = getattr(http, "user", None)
    if user is not None and not isinstance(user, SimpleLazyObject):
        return _key(user)
    if hasattr(http, "auser"):
        return _key(await http.auser())
    return await sync_to_async(_user)(http)  # Django 4.2 has no other way to the session


def _key(user: Any) -> Optional[str]:
    return str(user.pk) if user.is_authenticated and user.pk is not None else None


def _heard(http: HttpRequest, admission: Admission) -> List[Signal]:
    http.ratelimit = admission
    http.__dict__.setdefault(_DECIDED, []).append(admission)
    signals = [rate_limited] if admission.outcome == "refused" else []
    origins = {decision.origin for decision in admission.decisions}
    if not origins.isdisjoint(WITHOUT_STORE):
        _outage.failed()
        signals.append(store_degraded)
    elif "store" in origins:
        _outage.answered()
    return [signal for signal in signals if signal.receivers]


class _Outage:
    """One line in the log when the store begins to fail, and one when it is back: not one for each request."""

    QUIET = 1.0
    """Seconds without a failure, after which it is back: of a cluster, one node may fail and others answer."""

    def __init__(self) -> None:
        self.last: Optional[float] = None

    def failed(self) -> None:
        if self.last is None:
            logger.warning("the store does not answer; until it does, each rule's on_error decides")
        self.last = time.monotonic()

    def answered(self) -> None:
        last = self.last  # which another thread may change
        if last is not None and time.monotonic() - last >= self.QUIET:
            self.last = None
            logger.info("the store answers again")


_outage = _Outage()

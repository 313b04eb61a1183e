"""Throttles for Django REST framework, by its own settings.

    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["tidegate.drf.AnonRateThrottle", "tidegate.drf.UserRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"anon": "100/h", "user": "1000/h; 20/s"},
    }

Who is counted, where state lives and what happens when the store fails is said in ``TIDEGATE``. Throttles are asked one
after the other: where one refuses, what the others have charged for the request is given back.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import classproperty
from rest_framework.exceptions import APIException, PermissionDenied
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from . import Admission, Policy, Request, _web
from .django import _adhoc, exchange
from .django.conf import Settings, current

__all__ = ["AnonRateThrottle", "RateThrottle", "ScopedRateThrottle", "StoreFailed", "UserRateThrottle"]

#: The value of a key that a subclass makes itself.
KEY = "throttle.key"
OF_THE_BODY = ("Retry-After", "Content-Type", "Vary")
#: Who asks for the client's address alone.
ADDRESS = _adhoc.Rule("throttle", "0/s", "ip")
#: A rate that begins so names a route of the document, whose rules are the rate.
ROUTE = "route:"


class StoreFailed(APIException):
    """The store failed, and the throttle has ``on_error = "deny"``: that is nobody's fault who asks."""

    status_code = 503
    default_detail = "Temporarily unavailable. Try again later."
    default_code = "unavailable"


def wrong_rates(routes: List[str]) -> Iterator[str]:
    """What is wrong with ``DEFAULT_THROTTLE_RATES``, where the document has these routes."""
    for scope, said in api_settings.DEFAULT_THROTTLE_RATES.items():
        whose = f"DEFAULT_THROTTLE_RATES[{scope!r}]"
        try:
            rate = _adhoc.rate_text(said, whose)
            if rate is None:
                continue
            if not rate.startswith(ROUTE):
                _adhoc.Rule("throttle", rate, "ip").judge(whose)
            elif rate[len(ROUTE) :] not in routes:
                yield f"{whose}: the document has no route {rate[len(ROUTE) :]!r}; it has {', '.join(routes)}"
        except ImproperlyConfigured as error:
            yield str(error)


def _stock(method: Any) -> Any:
    """Marks what the core does itself as long as no subclass does otherwise."""
    method.is_stock = True
    return method


class RateThrottle(BaseThrottle):
    """A throttle of one scope and its rate. Subclasses say ``scope`` or ``rate``, and may override ``get_cache_key``
    (None: not limited), ``get_ident`` and ``get_rate``."""

    scope: Optional[str] = None
    cache_format = "throttle_%(scope)s_%(ident)s"
    #: A key of the document: who is limited where no subclass says.
    key = "user or ip"
    #: "allow", "deny" (503) or "local": what to answer when the store fails.
    on_error: Optional[str] = None
    #: "refuse" (403), "share" or "skip": must be said where a ``key`` may be missing.
    without_identity: Optional[str] = None

    @classproperty
    def THROTTLE_RATES(cls) -> Mapping[str, Optional[str]]:
        """The rates by scope, as the settings are now."""
        return api_settings.DEFAULT_THROTTLE_RATES  # type: ignore[no-any-return]

    def __init__(self) -> None:
        self._admission: Optional[Admission] = None
        if not getattr(self, "rate", None):
            self.rate = self.get_rate()

    def get_rate(self) -> Any:
        """The rate of its scope; None for no limit.

        :raises ImproperlyConfigured: if no rate is written for the scope.
        """
        if not self.scope:
            raise ImproperlyConfigured(f"{type(self).__name__} has neither scope nor rate; write one of them")
        if self.scope not in self.THROTTLE_RATES:
            raise ImproperlyConfigured(
                f"no rate is written for the throttle scope {self.scope!r}; write it in DEFAULT_THROTTLE_RATES"
            )
        return self.THROTTLE_RATES[self.scope]

    @_stock
    def get_ident(self, request: Any) -> Optional[str]:
        """The client's address, by the trusted proxies of ``TIDEGATE``, or by ``NUM_PROXIES`` where there are none."""
        settings = current()
        if settings.policy is None:
            return None
        # Of a route that needs nothing but the address.
        asked = _adhoc.policy(settings, ADDRESS).named(request.method, ADDRESS.name)
        told = _told(settings, request, asked)
        return asked.client_address(told["peer"], told["headers"])

    @_stock
    def get_cache_key(self, request: Any, view: Any) -> Optional[str]:
        """Who is limited, as text; None for who is not."""
        user = getattr(request, "user", None)
        ident = user.pk if user and user.is_authenticated else self.get_ident(request)
        return self.cache_format % {"scope": self.scope, "ident": ident}

    def allow_request(self, request: Any, view: Any) -> bool:
        """Decides, and charges.

        :raises StoreFailed: if the store failed, and ``on_error`` is ``"deny"``.
        :raises PermissionDenied: if nothing tells whom to count the request for.
        """
        settings = current()
        rate = self._rate_text()
        if settings.policy is None or rate is None:
            return True
        values: Dict[str, Any] = {}
        if rate.startswith(ROUTE):
            policy, route = settings.policy, rate[len(ROUTE) :]
        else:
            who = self._who(request, view)
            if who is None:
                return True
            key, values = who
            route, policy = self._policy(settings, rate, key)
        asked = policy.named(request.method, route)
        told = _told(settings, request, asked)
        stack = _Stack.of(request)
        told = {**told, "values": {**told.get("values", {}), **values}, "after": stack.before()}
        return self._answer(view, stack, policy.admit(asked, **told))

    def wait(self) -> Optional[float]:
        """Seconds until the request passes if nobody else comes; None if it never does, or nobody knows."""
        decisions = () if self._admission is None else self._admission.decisions
        waits = [decision.retry_after for decision in decisions if not decision.allowed]
        known = [wait for wait in waits if wait is not None]
        return max(known) if known and len(known) == len(waits) else None

    def _rate_text(self) -> Optional[str]:
        rate = self.rate
        if hasattr(self, "parse_rate"):  # of a subclass: REST framework's own reads less than the core
            parsed = tuple(self.parse_rate(rate))
            rate = None if parsed == (None, None) else parsed
        return _adhoc.rate_text(rate, type(self).__name__)

    def _who(self, request: Any, view: Any) -> Optional[Tuple[str, Dict[str, Any]]]:
        """The key, as a document says it, and what it needs; None for who is not limited."""
        if _is_stock(self.get_cache_key) and _is_stock(self.get_ident):
            return None if self._passes(request) else (self.key, {})
        key = self.get_cache_key(request, view)
        if key is None:
            return None
        if not (told := _web.user(key)):
            raise ImproperlyConfigured(f"{type(self).__name__}.get_cache_key returned {key!r}; return text, or None")
        return f"app:{KEY}", {KEY: told}

    def _passes(self, request: Any) -> bool:
        """Whether it is not for this throttle to limit."""
        return False

    def _policy(self, settings: Settings, rate: str, key: str) -> Tuple[str, Policy]:
        """The route of this throttle, and its policy."""
        # A key that a subclass makes is there, or the request is not limited.
        without = self.without_identity or ("refuse" if key == f"app:{KEY}" else None)
        name = _adhoc.name(f"throttle:{self.scope}", rate)
        rule = _adhoc.Rule(name, rate, key, without_identity=without, on_error=self.on_error)
        return name, _adhoc.policy(settings, rule)

    def _answer(self, view: Any, stack: _Stack, admission: Admission) -> bool:
        self._admission = admission
        stack.add(admission)
        if admission.status == 503:
            raise StoreFailed
        if admission.status == 403:
            raise PermissionDenied
        if stack.is_told_of(admission):
            _tell(view, admission)
        return admission.allowed


class AnonRateThrottle(RateThrottle):
    """Limits who is not logged in, by address."""

    scope = "anon"
    key = "ip"

    @_stock
    def get_cache_key(self, request: Any, view: Any) -> Optional[str]:
        """The address, as text; None for who is logged in."""
        return None if self._passes(request) else super().get_cache_key(request, view)

    def _passes(self, request: Any) -> bool:
        return bool(request.user and request.user.is_authenticated)


class UserRateThrottle(RateThrottle):
    """Limits users, and by address who is not logged in."""

    scope = "user"


class ScopedRateThrottle(RateThrottle):
    """Limits views that say their ``throttle_scope``; views of one scope together."""

    scope_attr = "throttle_scope"

    def __init__(self) -> None:
        # Scope and rate are the view's, which is not known yet.
        self._admission = None

    def allow_request(self, request: Any, view: Any) -> bool:
        self.scope = getattr(view, self.scope_attr, None)
        if not self.scope:
            return True
        self.rate = self.get_rate()
        return super().allow_request(request, view)


class _Stack:
    """The throttles of one request, asked one after the other: all charge, or none does."""

    def __init__(self, http: Any) -> None:
        self._http, self._outside = http, _adhoc.before(http)
        self._charged: List[Admission] = []
        self._is_refused = False

    @classmethod
    def of(cls, request: Any) -> _Stack:
        stack = getattr(request, "_tidegate_throttles", None)
        if stack is None:
            stack = request._tidegate_throttles = cls(_django(request))
        return stack

    def before(self) -> Optional[Admission]:
        """What has been decided of the request, and charged."""
        return self._outside if self._is_refused else _adhoc.before(self._http)

    def add(self, admission: Admission) -> None:
        """Takes what was decided; from the first refusal on everything is given back."""
        self._charged.append(admission)
        if self.is_told_of(admission):
            _adhoc.keep(self._http)
            exchange.apply(self._http, admission)
        if not admission.allowed or self._is_refused:
            self._give_back()

    def is_told_of(self, admission: Admission) -> bool:
        """Whether the client is: after a refusal, what would have let pass has nothing to say."""
        return not (admission.allowed and self._is_refused)

    def _give_back(self) -> None:
        self._is_refused = True
        while self._charged:
            self._charged.pop().undo()
        self._http._ratelimit_passed = self._outside


def _tell(view: Any, admission: Admission) -> None:
    """Gives the view's response its fields; REST framework says Retry-After, and what its own body is."""
    fields = getattr(view, "headers", None)
    if fields is not None:
        fields.update((name, value) for name, value in admission.headers if name not in OF_THE_BODY)


def _django(request: Any) -> Any:
    return getattr(request, "_request", request)


def _is_stock(method: Any) -> bool:
    return getattr(method, "is_stock", False)


def _told(settings: Settings, request: Any, asked: Request) -> Dict[str, Any]:
    """What is told of the request. Without trusted proxies ``NUM_PROXIES`` tells where the client's address stands."""
    http = _django(request)
    if asked.needs_user:
        getattr(request, "user", None)  # authenticates, if nobody has yet, and leaves the user on Django's request
    told = exchange.told(settings, asked, http)
    proxies, forwarded = api_settings.NUM_PROXIES, http.META.get("HTTP_X_FORWARDED_FOR")
    if proxies and forwarded and not _trusts(settings):
        addresses = forwarded.split(",")
        told["peer"] = addresses[-min(proxies, len(addresses))].strip()
    return told


def _trusts(settings: Settings) -> bool:
    """Whether the document says which proxies are trusted."""
    return bool(settings.document.get("http", {}).get("trusted_proxies"))

"""What ``manage.py check`` says of the settings. ``SILENCED_SYSTEM_CHECKS`` takes the ids."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Optional

from django.apps import apps
from django.conf import settings as django
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ._caches import NoStore
from .conf import NoFunction, Settings
from .middleware import RateLimitMiddleware

AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
PROXY_SETTINGS = ("SECURE_PROXY_SSL_HEADER", "USE_X_FORWARDED_HOST", "USE_X_FORWARDED_PORT")
# Of django-ratelimit's settings those that have no meaning here.
UNREAD = {
    "RATELIMIT_IP_META_KEY": "write TIDEGATE['HTTP'] = {'trusted_proxies': [..], 'client_address': 'X-Real-IP'}",
    "RATELIMIT_HASH_ALGORITHM": "write TIDEGATE['STORE'] = {'key_secret_file': ..} if keys are to be hidden",
    "RATELIMIT_VIEW": "refusals are answered as TIDEGATE['HTTP'] = {'refusal': ..} says",
    "RATELIMIT_EXCEPTION_CLASS": "refusals are responses, and no exceptions",
}
SENSITIVE = re.compile(r"log-?_?in|sign-?_?in|sign-?_?up|password|passwd|token|otp|2fa|mfa", re.IGNORECASE)


@register(Tags.security, Tags.caches)
def check(**_: Any) -> List[CheckMessage]:
    """Whether the settings are understood, and whether they do what they seem to."""
    try:
        settings = Settings()
    except ImproperlyConfigured as error:
        return [_refused(error)]
    if not settings.enabled:
        return []
    try:
        document = settings.document
    except (ImproperlyConfigured, OSError) as error:
        return [*_unread(), Warning(str(error), hint="Most checks need the document.", id="tidegate.W006")]
    found = [*_unread(), *_proxies(document), *_open(document), *_supplied(settings, document)]
    return [*found, *_order(settings, document)]


@register(Tags.security, deploy=True)
def check_deployment(**_: Any) -> List[CheckMessage]:
    """Whether processes share their limits."""
    try:
        limiter = Settings().limiter
    except ImproperlyConfigured:
        return []
    if limiter is None or limiter.metrics()["nodes"]:
        return []
    return [
        Warning(
            "Tidegate keeps its limits in memory: each process counts for itself, and starts anew with it.",
            hint="Write TIDEGATE['URL'] or TIDEGATE['USE_CACHE'], or set TIDEGATE_URL.",
            id="tidegate.W003",
        )
    ]


def _refused(error: ImproperlyConfigured) -> CheckMessage:
    codes = {NoStore: "tidegate.E002", NoFunction: "tidegate.E003"}
    return Error(str(error), id=codes.get(type(error), "tidegate.E001"))


def _unread() -> Iterator[CheckMessage]:
    for name, instead in UNREAD.items():
        if hasattr(django, name):
            yield Warning(f"{name} is not read by Tidegate.", hint=f"Instead, {instead}.", id="tidegate.W004")


def _proxies(document: Mapping[str, Any]) -> Iterator[CheckMessage]:
    behind = [name for name in PROXY_SETTINGS if getattr(django, name, None)]
    if behind and not document.get("http", {}).get("trusted_proxies"):
        yield Warning(
            f"{behind[0]} says that there is a proxy in front, but Tidegate has no trusted_proxies: all clients would "
            "have the proxy's address, and share its limits.",
            hint="Write the proxy's network: 'HTTP': {'trusted_proxies': ['10.0.0.0/8']}.",
            id="tidegate.W001",
        )


def _open(document: Mapping[str, Any]) -> Iterator[CheckMessage]:
    for route in _routes(document):
        where = route.get("path") or route.get("prefix") or ""
        if SENSITIVE.search(f"{where} {route.get('name', '')}") and _fails_open(route, document):
            yield Warning(
                f"The route {where} lets all requests pass while the store fails.",
                hint="Write on_error = 'local' or 'deny' in its rule: passwords must not be guessed in an outage.",
                id="tidegate.W002",
            )


def _fails_open(route: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Of several rules, deny and local come over allow."""
    rules = [document.get("rules", {}).get(_name(entry)) for entry in _list(route.get("rules"))]
    says = [rule.get("on_error", "allow") if isinstance(rule, Mapping) else "allow" for rule in rules]
    return bool(says) and set(says) == {"allow"} and route.get("mode") != "shadow"


def _supplied(settings: Settings, document: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Everything that the document asks of the application has somebody who answers."""
    exempt = [document.get("http", {}).get("exempt", {})] + [route.get("exempt", {}) for route in _routes(document)]
    questions = {question for each in exempt for question in _list(each.get("app"))}
    sources = {source for route in _routes(document) for source in _sources(route)}
    sources |= {route["cost"] for route in _routes(document) if isinstance(route.get("cost"), str)}
    sources |= {key for each in exempt for key in _list(each.get("keys"))}
    names = {source.split(":")[1] for source in sources if source.startswith("app:")}
    for key, missing in (("VALUES", names - set(settings.values)), ("EXEMPT", questions - set(settings.answers))):
        for name in sorted(missing):
            yield Error(
                f"The routes need {name!r} of the application, and TIDEGATE[{key!r}] does not have it.",
                hint=f"Write {key!r}: {{{name!r}: 'myproject.limits.{name}'}}, a function of the request.",
                id="tidegate.E005",
            )


def _order(settings: Settings, document: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """The middleware is there if routes are, and stands where it knows the user if a rule needs him."""
    ours = _place(RateLimitMiddleware)
    if ours is None:
        if document.get("routes"):
            yield Warning(
                "Tidegate has routes, but its middleware is not there to limit them.",
                hint="Write 'tidegate.django.RateLimitMiddleware' into MIDDLEWARE.",
                id="tidegate.W005",
            )
        return
    if settings.user or not _needs_user(document):
        return
    # Without its application, Django's middleware cannot be imported.
    there = apps.is_installed("django.contrib.auth")
    authentication = _place(import_string(AUTHENTICATION)) if there else None
    if authentication is None:
        yield Warning(
            "A rule needs the user, and there is no AuthenticationMiddleware to say who that is.",
            hint="Write it before RateLimitMiddleware, or write TIDEGATE['USER'].",
            id="tidegate.W007",
        )
    elif authentication > ours:
        yield Error(
            "A rule needs the user, whom RateLimitMiddleware cannot know where it stands.",
            hint=f"Write it behind {AUTHENTICATION} in MIDDLEWARE, or write TIDEGATE['USER'].",
            id="tidegate.E004",
        )


def _place(kind: type) -> Optional[int]:
    """Where a middleware of this kind stands. One that cannot be imported is Django's to complain of."""
    for place, path in enumerate(django.MIDDLEWARE):
        try:
            found = import_string(path)
        except ImportError:
            continue
        if isinstance(found, type) and issubclass(found, kind):
            return place
    return None


def _needs_user(document: Mapping[str, Any]) -> bool:
    exempt = [document.get("http", {}).get("exempt", {})] + [route.get("exempt", {}) for route in _routes(document)]
    by_key = any(key.startswith("user:") for each in exempt for key in _list(each.get("keys")))
    return by_key or any("user" in _sources(route) for route in _routes(document))


def _routes(document: Mapping[str, Any]) -> List[Dict[str, Any]]:
    default = document.get("http", {}).get("default")
    return [*document.get("routes", []), *([] if default is None else [default])]


def _sources(route: Mapping[str, Any]) -> List[str]:
    """The sources of a route's keys: user, ip, app:NAME and so on."""
    entries = [entry for entry in _list(route.get("rules")) if isinstance(entry, Mapping)]
    texts = [text for entry in [route, *entries] for text in _list(entry.get("key"))]
    return [source.strip() for text in texts for source in text.split(" or ")]


def _name(entry: Any) -> Any:
    return entry.get("rule") if isinstance(entry, Mapping) else entry


def _list(value: Any) -> List[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]

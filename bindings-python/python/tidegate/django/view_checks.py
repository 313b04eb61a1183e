"""System checks of what views say: routes that decorators name, and rates of throttles."""

from __future__ import annotations

import sys
from typing import Any, Iterator, List

from django.conf import settings as django
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver

from . import decorators
from .conf import current


@register(Tags.security)
def check_views(**_: Any) -> List[CheckMessage]:
    """What would fail with the first request."""
    try:
        policy = current().policy
    except ImproperlyConfigured:
        return []  # the check of the settings tells
    if policy is None:
        return []
    if getattr(django, "ROOT_URLCONF", None):
        get_resolver().url_patterns  # noqa: B018 - imports the views
    return [*_routes(policy.routes), *_rates(policy.routes)]


def _routes(known: List[str]) -> Iterator[CheckMessage]:
    for route in sorted(decorators.NAMED.difference(known)):
        yield Error(
            f"@ratelimit names the route {route!r}, which the document does not have.",
            hint=f"Name one of {', '.join(known)}, or write it.",
            id="tidegate.E101",
        )


def _rates(known: List[str]) -> Iterator[CheckMessage]:
    drf = sys.modules.get("tidegate.drf")  # if a view uses it
    for wrong in drf.wrong_rates(known) if drf is not None else ():
        yield Error(wrong, hint="docs/rules.md has the rates.", id="tidegate.E102")

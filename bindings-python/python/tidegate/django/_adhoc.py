"""Rules that code says and not the document: each is a small document beside the settings' own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from .. import Admission, Policy, TidegateError
from ..testing import MemoryLimiter
from .conf import Settings, on_error_said

#: So many rules have a policy at once: rates are by tier, not by user.
POLICIES = 1_000
NAME_BYTES = 64


@dataclass(frozen=True)
class Rule:
    """A rule and whom it is for, as a document says it."""

    name: str
    rate: str
    key: Union[str, Tuple[str, ...]]
    cost: Union[int, str] = 1
    without_identity: Optional[str] = None
    on_error: Optional[str] = None
    exempt: Tuple[str, ...] = ()

    def document(self, settings: Mapping[str, Any]) -> Dict[str, Any]:
        """This rule for every request, with the store and the ``[http]`` of the settings' document."""
        rule = {
            "limits": self.rate,
            "on_error": self.on_error or on_error_said(),
        }
        route = {
            "name": self.name,
            "rules": self.name,
            "key": list(self.key) if isinstance(self.key, tuple) else self.key,
            "cost": self.cost,
            "without_identity": self.without_identity,
            "exempt": {"app": list(self.exempt)} if self.exempt else None,
        }
        http = {**settings.get("http", {}), "default": _said(route)}
        store = {"store": settings["store"]} if "store" in settings else {}
        return {"version": 1, **store, "rules": {self.name: _said(rule)}, "http": http}

    def judge(self, whose: str) -> None:
        """Refuses what the core does.

        :raises ImproperlyConfigured: with what to write instead.
        """
        try:
            # In memory whatever the environment says: this is about the rule, and connects to nothing.
            MemoryLimiter(document=self.document({}))
        except (TidegateError, TypeError) as error:
            raise ImproperlyConfigured(f"{whose}: {error}") from error


def policy(settings: Settings, rule: Rule) -> Policy:
    """The rule at work, on the store and the connections of the settings' policy.

    :raises ImproperlyConfigured: if the core refuses it.
    """
    return _policy(settings, settings.taken()[0], rule)


@lru_cache(maxsize=POLICIES)
def _policy(settings: Settings, taken: int, rule: Rule) -> Policy:
    """One for each document that the settings' policy has taken."""
    assert settings.policy is not None, "whoever asks has looked whether limits are enabled"
    try:
        return settings.policy.beside(rule.document(settings.document))
    except TidegateError as error:
        raise ImproperlyConfigured(str(error)) from error


def before(http: Any) -> Optional[Admission]:
    """What was decided of this request last that let it pass: its rules are not charged again."""
    last: Optional[Admission] = getattr(http, "ratelimit", None)
    return last if last is None or last.allowed else getattr(http, "_ratelimit_passed", None)


def keep(http: Any) -> None:
    """Before something else is decided: keeps what let the request pass, in case that does not."""
    http._ratelimit_passed = before(http)


def name(*parts: str) -> str:
    """A rule's name of parts, digested where it is longer than names may be."""
    text = " ".join(" ".join(parts).split())
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= NAME_BYTES:
        return text
    digest = hashlib.sha256(encoded).hexdigest()[:12]
    return f"{digest} {encoded[len(digest) + 1 - NAME_BYTES :].decode('utf-8', 'ignore')}"


def rate_text(rate: object, whose: str) -> Optional[str]:
    """A rate as the core reads it, none where there is no limit. ``(100, 300)`` is 100 per 300 seconds."""
    if rate is None:
        return None
    if isinstance(rate, str):
        return " ".join(rate.split())
    if isinstance(rate, (tuple, list)) and len(rate) == 2 and all(type(number) is int for number in rate):
        return f"{rate[0]}/{rate[1]}s"
    raise ImproperlyConfigured(f"{whose}: the rate {rate!r} is none; write '100/m', (100, 60), or None for no limit")


def _said(table: Mapping[str, Any]) -> Dict[str, Any]:
    return {field: value for field, value in table.items() if value is not None}


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("TIDEGATE", "CACHES") or setting.startswith("RATELIMIT_"):
        _policy.cache_clear()


setting_changed.connect(_forget, dispatch_uid="tidegate.django._adhoc")

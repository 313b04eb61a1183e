"""``manage.py tidegate``: who is limited, and how it stands with the store."""

from __future__ import annotations

import ipaddress
import json
import sys
from typing import Any, Dict, List, Mapping, Tuple

from django.core.checks import ERROR, Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegate import Decision, Limiter, TidegateError
from tidegate.django import conf

KEYS = (
    "who: ip:203.0.113.7, user:7, header:NAME:VALUE, cookie:NAME:VALUE, app:NAME:VALUE, constant:TEXT; several for a "
    "key of several parts; key:TEXT as it stands, for rules that your own code checks"
)
READY_SECONDS = 2.0
NAMED = ("header", "cookie", "app")


class Command(BaseCommand):
    help = "Checks, looks at or resets a key of a rule, or looks for what is wrong (doctor)."

    # doctor tells what they say, and a limit can be reset whatever they say.
    requires_system_checks: List[str] = []  # noqa: RUF012

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        helps = {"check": "charge a unit; the exit code is 1 if it is refused", "peek": "charge nothing"}
        helps["reset"] = "forget what was charged"
        for action, text in helps.items():
            of_key = actions.add_parser(action, help=text)
            of_key.add_argument("rule")
            of_key.add_argument("key", nargs="+", help=KEYS)
            of_key.add_argument("--json", action="store_true")
        doctor = actions.add_parser(
            "doctor", help="settings, store and what was counted; the exit code is 1 for errors"
        )
        doctor.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            limiter = conf.current().limiter
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=2) from error
        if limiter is None:
            raise CommandError("Tidegate is not enabled; see TIDEGATE['ENABLED'] and RATELIMIT_ENABLE", returncode=2)
        if options["action"] == "doctor":
            return self._doctor(limiter, options["json"])
        key = _key(options["key"])
        try:
            return self._do(limiter, options, key)
        except TidegateError as error:
            raise CommandError(str(error), returncode=2) from error

    def _do(self, limiter: Limiter, options: Mapping[str, Any], key: Any) -> None:
        action, rule = options["action"], options["rule"]
        if action == "reset":
            limiter.reset(rule, key)
            self.stdout.write(json.dumps({"rule": rule, "reset": True}) if options["json"] else f"{rule} is reset")
            return
        decision = limiter.check(rule, key) if action == "check" else limiter.peek(rule, key)
        self.stdout.write(json.dumps(_facts(rule, decision)) if options["json"] else _line(rule, decision))
        if action == "check" and not decision:
            sys.exit(1)

    def _doctor(self, limiter: Limiter, as_json: bool) -> None:
        messages = [message for message in run_checks(None, [Tags.security, Tags.caches], True) if _ours(message)]
        failure = _failure(limiter)
        counted = _counted(limiter)
        ok = failure is None and not any(message.level >= ERROR for message in messages)
        if as_json:
            findings = [{"id": message.id, "text": message.msg, "advice": message.hint} for message in messages]
            facts = {"ok": ok, "findings": findings, "store": failure or "ready", "rules": limiter.rules, **counted}
            self.stdout.write(json.dumps(facts))
        else:
            for message in messages:
                self.stdout.write(f"{message.id}: {message.msg}" + (f" {message.hint}" if message.hint else ""))
            self.stdout.write(f"rules: {', '.join(limiter.rules) or 'none'}")
            self.stdout.write(f"store: {failure or 'ready'}")
            self.stdout.write(f"refused: {counted['refused']}, without the store: {counted['without_store']}")
        if not ok:
            sys.exit(1)


def _key(parts: List[str]) -> Any:
    """A key as routes have it, or as code has it."""
    if len(parts) == 1 and parts[0].startswith("key:"):
        return parts[0][len("key:") :]
    return tuple(text for part in parts for text in _part(part))


def _part(text: str) -> Tuple[str, ...]:
    source, _, value = text.partition(":")
    if source == "ip" and value:
        return source, _bucket(value)
    if source in ("user", "constant") and value:
        return source, value
    name, _, rest = value.partition(":")
    if source in NAMED and name and rest:
        return source, name.lower() if source == "header" else name, rest
    raise CommandError(f"the key cannot be read; write {KEYS}", returncode=2)


def _bucket(text: str) -> str:
    """An address as it stands in keys: a network's, where that counts as one client."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise CommandError("what follows ip: is no address; write ip:203.0.113.7", returncode=2) from None
    address = getattr(address, "ipv4_mapped", None) or address
    field, usual = ("ipv4_prefix", 32) if address.version == 4 else ("ipv6_prefix", 64)
    prefix = conf.current().document.get("http", {}).get(field, usual)
    if prefix == address.max_prefixlen:
        return str(address)
    return str(ipaddress.ip_network((address, prefix), strict=False))


def _facts(rule: str, decision: Decision) -> Dict[str, Any]:
    names = ("allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "origin")
    return {"rule": rule, **{name: getattr(decision, name) for name in names}}


def _line(rule: str, decision: Decision) -> str:
    wait = "" if decision.retry_after is None or decision else f", again in {decision.retry_after:.3f} s"
    how = "allowed" if decision else "refused"
    return f"{rule}: {how} by {decision.origin}, {decision.remaining} of {decision.limit} remain{wait}"


def _ours(message: Any) -> bool:
    return str(message.id).startswith("tidegate.") and not message.is_silenced()


def _failure(limiter: Limiter) -> Any:
    try:
        limiter.ready(READY_SECONDS)
    except TidegateError as error:
        return str(error)
    return None


def _counted(limiter: Limiter) -> Dict[str, int]:
    """What this process has counted; a server's processes tell it by ``policy.prometheus()``."""
    rows = limiter.metrics()["decisions"]
    without = sum(row["count"] for row in rows if row["origin"] in ("local", "open", "closed"))
    return {"refused": sum(row["count"] for row in rows if not row["allowed"]), "without_store": without}

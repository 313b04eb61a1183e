"""``settings.TIDEGATE``, read once, and again when a test overrides it."""

from __future__ import annotations

import difflib
import json
import os
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from django.conf import settings as django
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.utils.module_loading import import_string

from .. import Limiter, Policy, TidegateError
from ..testing import MemoryPolicy
from ._caches import store_of

Function = Callable[[HttpRequest], Any]

PARTS = {"RULES": "rules", "ROUTES": "routes", "HTTP": "http", "STORE": "store"}
KEYS = ("DOCUMENT", *PARTS, "URL", "USE_CACHE", "ENABLED", "USER", "VALUES", "EXEMPT")
# Seconds after which it is asked whether the policy has taken another document.
LOOK_EVERY = 1.0
# A document whose rules are decorators' alone: no request has a route.
NO_ROUTES: Mapping[str, Any] = {"rules": []}
# A limiter has a rule; where all are decorators', nobody is counted under this one.
NO_RULES: Mapping[str, Any] = {"none": "1/s"}


class NoFunction(ImproperlyConfigured):
    """A function that cannot be called, or imported."""


class Settings:
    """What ``TIDEGATE`` and the ``RATELIMIT_*`` settings that mean the same say.

    ``enabled``; ``policy`` and ``limiter``, which are None if it is not; ``user``, a function of the request or None
    for ``request.user``; ``values`` and ``answers``, functions by their names.
    """

    def __init__(self) -> None:
        """Raises ImproperlyConfigured, which says what to write instead."""
        given = _given()
        enabled = given.get("ENABLED", getattr(django, "RATELIMIT_ENABLE", True))
        if not isinstance(enabled, bool):
            raise ImproperlyConfigured("TIDEGATE['ENABLED'] is True or False")
        self.enabled: bool = enabled
        self.user: Optional[Function] = _function("USER", given["USER"]) if given.get("USER") else None
        self.values = _functions("VALUES", given)
        self.answers = _functions("EXEMPT", given)
        self.policy: Optional[Policy] = None
        self._source: Union[str, Dict[str, Any]] = {}
        self._taken: Optional[Tuple[int, Dict[str, Any]]] = None
        self._look_at = 0.0
        if enabled:
            self._source = _source(given)
            self.policy = _policy(self._source)

    @property
    def limiter(self) -> Optional[Limiter]:
        """The limiter of the rules, as they are now."""
        return None if self.policy is None else self.policy.limiter

    @property
    def document(self) -> Dict[str, Any]:
        """The document; that of a file as the policy has taken it last."""
        return self.taken()[1]

    def taken(self) -> Tuple[int, Dict[str, Any]]:
        """How often the policy has taken another document, and the one that it has."""
        if isinstance(self._source, dict) or self.policy is None:
            return 0, self._source if isinstance(self._source, dict) else {}
        now = time.monotonic()
        if self._taken is None:
            self._taken = self.policy.metrics()["reloads"], _read(self._source)
        elif now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            self.policy.request("GET", "/")  # has it look at the file, where no middleware does
            reloads = self.policy.metrics()["reloads"]
            if reloads != self._taken[0]:
                self._taken = _read_again(self._source, reloads) or self._taken
        return self._taken


# Of a thread that makes them, an import may change settings: that must not wait for itself.
_lock = threading.RLock()
_settings: Optional[Settings] = None


def current() -> Settings:
    """The settings as they are now. Raises ImproperlyConfigured if they are refused."""
    return _settings or _make()


def _make() -> Settings:
    global _settings
    with _lock:
        if _settings is None:
            _settings = Settings()
        return _settings


def _changed(*, setting: str, **_: Any) -> None:
    """The next request makes them new; those under way end with what they have begun with."""
    global _settings
    if setting in ("TIDEGATE", "CACHES") or setting.startswith("RATELIMIT_"):
        with _lock:  # behind a thread that makes them of what was said before
            _settings = None


setting_changed.connect(_changed, dispatch_uid="tidegate.django.conf")


def _given() -> Dict[str, Any]:
    given = getattr(django, "TIDEGATE", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"TIDEGATE is a dict with the keys {', '.join(KEYS)}")
    for key in given:
        if key not in KEYS:
            raise ImproperlyConfigured(f"TIDEGATE has no key {key!r}; {_instead(str(key))}")
    if "URL" in given and "USE_CACHE" in given:
        raise ImproperlyConfigured("TIDEGATE has both URL and USE_CACHE; write one of them")
    return dict(given)


def _instead(key: str) -> str:
    near = difflib.get_close_matches(key.upper(), KEYS, n=1)
    return f"write {near[0]}" if near else f"it has {', '.join(KEYS)}"


def _functions(key: str, given: Mapping[str, Any]) -> Dict[str, Function]:
    functions = given.get(key, {})
    if not isinstance(functions, Mapping):
        raise ImproperlyConfigured(f"TIDEGATE[{key!r}] is a dict of names and functions (or their dotted paths)")
    return {name: _function(f"{key}'][{name!r}"[:-1], function) for name, function in functions.items()}


def _function(key: str, function: Any) -> Function:
    if isinstance(function, str):
        try:
            function = import_string(function)
        except ImportError as error:
            raise NoFunction(f"TIDEGATE['{key}'] cannot be imported: {error}") from error
    if not callable(function):
        raise NoFunction(f"TIDEGATE['{key}'] is a function of the request, or its dotted path")
    return function  # type: ignore[no-any-return]


def _source(given: Mapping[str, Any]) -> Union[str, Dict[str, Any]]:
    """The document, or the path of its file."""
    document = given.get("DOCUMENT")
    beside = [key for key in (*PARTS, "URL", "USE_CACHE") if key in given]
    if document is not None and beside:
        raise ImproperlyConfigured(f"TIDEGATE has DOCUMENT and {', '.join(beside)}; write it into the document")
    if isinstance(document, (str, os.PathLike)):
        return os.fspath(document)
    if document is None:
        document = _of_parts(given)
    if not isinstance(document, Mapping):
        raise ImproperlyConfigured("TIDEGATE['DOCUMENT'] is the path of a TOML, YAML or JSON file, or a dict")
    document = {"version": 1, **document, "rules": document.get("rules") or NO_RULES}
    if not document.get("routes"):
        document["http"] = {"default": NO_ROUTES, **_mapping("HTTP", document.get("http", {}))}
    return document


def _of_parts(given: Mapping[str, Any]) -> Dict[str, Any]:
    """A document of what ``TIDEGATE`` has of one, and of django-ratelimit's settings where it says nothing."""
    document = {PARTS[key]: given[key] for key in PARTS if key in given}
    document["store"] = _store(given)
    document["rules"] = _rules(given.get("RULES", {}))
    document["http"] = {**_prefixes(), **_mapping("HTTP", given.get("HTTP", {}))}
    return document


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured(f"TIDEGATE[{key!r}] is a dict, with the fields of the document in lower case")
    return value


def _store(given: Mapping[str, Any]) -> Dict[str, Any]:
    written = _mapping("STORE", given.get("STORE", {}))
    alias = given.get("USE_CACHE")
    if alias is None and "URL" not in given and "url" not in written:
        alias = getattr(django, "RATELIMIT_USE_CACHE", None)
    store = {} if alias is None else store_of(alias)
    prefix = getattr(django, "RATELIMIT_CACHE_PREFIX", None)
    store.update({} if prefix is None else {"prefix": prefix})
    store.update({"url": given["URL"]} if given.get("URL") else {})
    return {**store, **written}


def _prefixes() -> Dict[str, Any]:
    names = {"RATELIMIT_IPV4_MASK": "ipv4_prefix", "RATELIMIT_IPV6_MASK": "ipv6_prefix"}
    return {field: getattr(django, name) for name, field in names.items() if hasattr(django, name)}


def on_error_said() -> Optional[str]:
    """The ``on_error`` that RATELIMIT_FAIL_OPEN says; none if it is not there."""
    fails_open = getattr(django, "RATELIMIT_FAIL_OPEN", None)
    return None if fails_open is None else "allow" if fails_open else "deny"


def _rules(rules: Any) -> Any:
    """Rules that do not say what to do without a store do as RATELIMIT_FAIL_OPEN says, if it is there."""
    on_error = on_error_said()
    if on_error is None or not isinstance(rules, Mapping):
        return rules
    tables = {name: rule if isinstance(rule, Mapping) else {"limits": rule} for name, rule in rules.items()}
    return {name: {"on_error": on_error, **table} for name, table in tables.items()}


def _policy(source: Union[str, Dict[str, Any]]) -> Policy:
    try:
        return Policy.watch(source) if isinstance(source, str) else Policy(source)
    except (TidegateError, TypeError) as error:
        raise ImproperlyConfigured(f"TIDEGATE: {error}") from error


def _read_again(path: str, reloads: int) -> Optional[Tuple[int, Dict[str, Any]]]:
    """A file that the policy has taken; None if it is another by now, which nobody would take."""
    try:
        document = _read(path)
        MemoryPolicy(document)
    except (ImproperlyConfigured, OSError, TidegateError, TypeError, ValueError):
        return None
    return reloads, document


def _read(path: str) -> Dict[str, Any]:
    """A file's document. The core alone judges it; this is for what is put beside it."""
    with open(path, "rb") as file:
        text = file.read()
    parsed: Any = _parser(path)(text.decode())
    return parsed  # type: ignore[no-any-return]


def _parser(path: str) -> Callable[[str], Any]:
    modules: Dict[str, List[str]] = {".toml": ["tomllib", "tomli"], ".yaml": ["yaml"], ".yml": ["yaml"]}
    for module in modules.get(os.path.splitext(path)[1].lower(), ()):
        try:
            parser = __import__(module)
        except ImportError:
            continue
        return parser.safe_load if module == "yaml" else parser.loads  # type: ignore[no-any-return]
    if path.lower().endswith(".json"):
        return json.loads
    raise ImproperlyConfigured(
        f"decorators need {path} in Python: write it as JSON, use Python 3.11 or `pip install tomli` for TOML, "
        "or `pip install pyyaml` for YAML"
    )

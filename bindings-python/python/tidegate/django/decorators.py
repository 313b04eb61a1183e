"""``@ratelimit``: a limit on one view.

from tidegate.django.decorators import ratelimit

@ratelimit(route="login")               # a route that the document names
def login(request): ...

@ratelimit(key="ip", rate="5/m", method=ratelimit.UNSAFE)
async def upload(request): ...

@method_decorator(ratelimit(key="user or ip", rate="100/h"), name="dispatch")
class Search(View): ...
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from inspect import isawaitable
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Union,
)

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.utils.module_loading import import_string

from .. import Admission, Policy, Request, _web
from . import _adhoc, _views, exchange
from .conf import Settings, current

__all__ = ["ALL", "UNSAFE", "ratelimit"]

#: Every method.
ALL = None
#: The methods that change something.
UNSAFE = ("DELETE", "PATCH", "POST", "PUT")

#: Called with the group and the request.
Supplier = Callable[[str, HttpRequest], Any]
Methods = Union[None, str, Iterable[Optional[str]]]

UNSAID: Any = ...
#: The routes that decorators name, for the system check.
NAMED: Set[str] = set()
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
VALUE_KEY = re.compile(r"(get|post):.+")
#: What suppliers supply, beside fields of the request.
RATE, KEY, COST, EXEMPT = "ratelimit.rate", "ratelimit.key", "ratelimit.cost", "ratelimit.exempt"


class ratelimit:
    """Limits a view: a function, sync or ``async def``, a class, or a method by way of ``method_decorator``.

    :param key: who is limited: a key of the document (``"ip"``, ``"user"``, ``"user or ip"``, ``"header:x-api-key"``),
        ``"get:FIELD"`` or ``"post:FIELD"``, or what is called with the group and the request, and returns text, or None
        for a request that is not limited. What is called may be a dotted path, here and below.
    :param rate: ``"5/m"``, ``"10/5m"``, ``"100 per hour; 1000/d"``, ``(100, 60)``, None for no limit, or what is called
        and returns one of these.
    :param route: instead of these, the name of a route of the document.
    :param method: the methods that are limited: one or several; all unless said. ``GET`` is for ``HEAD`` too.
    :param group: the name under which views share a limit of the same rate and methods; the view's own unless said.
    :param cost: the units that a request takes, from 1 to 10,000,000, or what returns them.
    :param block: whether a refusal is answered. If not, the view sees ``request.limited``.
    :param exempt: what is called with the group and the request, and returns whether it passes without being counted.
    :param without_identity: ``"refuse"``, ``"share"`` or ``"skip"``: must be said where requests may lack the key.
    :param on_error: ``"allow"`` (unless said), ``"deny"`` or ``"local"``, when the store fails.
    :raises ImproperlyConfigured: when the module is imported, with what to write instead.
    """

    ALL: ClassVar[Methods] = ALL
    UNSAFE: ClassVar[Methods] = UNSAFE

    def __init__(
        self,
        key: Union[str, List[str], Supplier, None] = None,
        rate: Union[str, Tuple[int, int], Supplier, None] = UNSAID,
        *,
        route: Optional[str] = None,
        method: Methods = ALL,
        group: Optional[str] = None,
        cost: Union[int, str, Supplier] = 1,
        block: bool = True,
        exempt: Union[str, Supplier, None] = None,
        without_identity: Optional[str] = None,
        on_error: Optional[str] = None,
    ) -> None:
        self._whose = f"@ratelimit(key={key!r}, rate={rate!r})" if route is None else f"@ratelimit(route={route!r})"
        self._route, self._group, self._block = route, group, block
        self._methods = _methods(method, self._whose)
        self._suppliers: Dict[str, Supplier] = {}
        if route is None:
            if key is None or rate is UNSAID:
                raise ImproperlyConfigured("@ratelimit: write route='NAME', or key='ip' (or another) and rate='5/m'")
            self._rate = self._called_or(RATE, rate, None)
            self._rule = self._rule_of(key, cost, exempt, without_identity, on_error)
            rate_now = _adhoc.rate_text(self._rate, self._whose)
            self._rule_at("view", rate_now or "1/s").judge(self._whose)
            return
        NAMED.add(route)
        if rate is not UNSAID or cost != 1 or (key, group, exempt, without_identity, on_error) != (None,) * 5:
            raise ImproperlyConfigured(
                f"{self._whose}: the document says the rest of it; leave out all but method and block"
            )

    def _rule_of(self, key: Any, cost: Any, exempt: Any, without_identity: Any, on_error: Any) -> Dict[str, Any]:
        """The rule but for its name and rate. What is to be called for it is among the suppliers."""
        if isinstance(key, str) and VALUE_KEY.fullmatch(key):
            self._suppliers[key], key = _field(key), f"app:{key}"
        key = self._called_or(KEY, key, f"app:{KEY}")
        if KEY in self._suppliers:
            # A request that it has no key for is not limited: the core never sees one.
            without_identity = without_identity or "refuse"
        if exempt is not None:
            self._suppliers[EXEMPT] = _called(exempt, self._whose)
        return {
            "key": tuple(key) if isinstance(key, list) else "user or ip" if key == "user_or_ip" else key,
            "cost": self._called_or(COST, cost, f"app:{COST}"),
            "exempt": () if exempt is None else (EXEMPT,),
            "without_identity": without_identity,
            "on_error": on_error,
        }

    def _called_or(self, name: str, said: Any, instead: Any) -> Any:
        """What was said; or what stands for it, where it is to be called for each request."""
        if not _is_called(said):
            return said
        self._suppliers[name] = _called(said, self._whose)
        return instead

    def _rule_at(self, group: str, rate: str) -> _adhoc.Rule:
        """The rule at a rate. Its name tells rates and methods apart: stacked, each is a limit of its own."""
        methods = ",".join(sorted(self._methods or ()))
        return _adhoc.Rule(name=_adhoc.name(group, rate, methods), rate=rate, **self._rule)

    def __call__(self, view: Any) -> Any:
        if isinstance(view, type):
            return method_decorator(self, name="dispatch")(view)
        group = self._group or _views.name(view)
        limited = self._async(view, group) if _views.is_async(view) else self._sync(view, group)
        return functools.update_wrapper(limited, view)

    def _sync(self, view: _views.View, group: str) -> _views.View:
        def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
            http = _views.request_of(request)
            asked = None
            if self._applies(http):
                supplied = self._supplied(http, group)
                supplied = {name: _web.plain(value, self._suppliers[name]) for name, value in supplied.items()}
                asked = self._asked(http, group, supplied)
            if asked is None:
                return view(request, *args, **kwargs)
            told = exchange.told(asked.settings, asked.request, http)
            admission = asked.policy.admit(asked.request, **asked.completed(http, told))
            exchange.apply(http, admission)
            if self._refuses(http, admission):
                return _refusal(admission)
            with _settled(http, admission) as answered:
                return answered(view(request, *args, **kwargs))

        return limited

    def _async(self, view: _views.View, group: str) -> _views.View:
        async def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
            http = _views.request_of(request)
            asked = None
            if self._applies(http):
                supplied = self._supplied(http, group)
                supplied = {name: await value if isawaitable(value) else value for name, value in supplied.items()}
                asked = self._asked(http, group, supplied)
            if asked is None:
                return await view(request, *args, **kwargs)
            told = await exchange.told_async(asked.settings, asked.request, http)
            admission = await asked.policy.admit_async(asked.request, **asked.completed(http, told))
            await exchange.apply_async(http, admission)
            if self._refuses(http, admission):
                return _refusal(admission)
            with _settled(http, admission) as answered:
                return answered(await view(request, *args, **kwargs))

        return limited

    def _applies(self, http: Any) -> bool:
        http.limited = getattr(http, "limited", False)
        # HEAD is answered by what answers GET.
        return self._methods is None or ("GET" if http.method == "HEAD" else http.method) in self._methods

    def _supplied(self, http: Any, group: str) -> Dict[str, Any]:
        """What the application says of this request; of async views some of it may have to be awaited."""
        return {name: supply(group, http) for name, supply in self._suppliers.items()}

    def _asked(self, http: Any, group: str, supplied: Dict[str, Any]) -> Optional[_Asked]:
        """What the core is to be asked, None where the request is not limited."""
        settings = current()
        if settings.policy is None:
            return None
        if self._route is not None:
            return _Asked(settings, settings.policy, settings.policy.named(http.method, self._route), {}, ())
        rate = _adhoc.rate_text(supplied.pop(RATE, self._rate), self._whose)
        key = supplied.get(KEY, UNSAID)
        if rate is None or key is None:
            return None
        if key is not UNSAID:
            supplied[KEY] = _key_text(key, self._whose)
        answers = (EXEMPT,) if supplied.pop(EXEMPT, False) else ()
        rule = self._rule_at(group, rate)
        policy = _adhoc.policy(settings, rule)
        values = {name: value for name, value in supplied.items() if value is not None}
        return _Asked(settings, policy, policy.named(http.method, rule.name), values, answers)

    def _refuses(self, http: Any, admission: Admission) -> bool:
        http.limited = http.limited or not admission.allowed
        return self._block and not admission.allowed


class _Asked(NamedTuple):
    """One decision of one request, before it."""

    settings: Settings
    policy: Policy
    request: Request
    values: Mapping[str, Any]
    answers: Tuple[str, ...]

    def completed(self, http: Any, told: Dict[str, Any]) -> Dict[str, Any]:
        """What is told of the request, with what this limit adds."""
        _adhoc.keep(http)
        values, answers = {**told.get("values", {}), **self.values}, (*told.get("answers", ()), *self.answers)
        return {**told, "values": values, "answers": answers, "after": _adhoc.before(http)}


@contextlib.contextmanager
def _settled(http: Any, admission: Admission) -> Iterator[Callable[[Any], Any]]:
    """Completes the response, and gives back what its status says, or its exception's."""

    def answered(response: Any) -> Any:
        if isinstance(response, HttpResponseBase):
            # What refused, and did not block, has fields for a refusal.
            last = _adhoc.before(http)
            if last is not None:
                exchange.tell(response, last)
            admission.settle(response.status_code)
            if getattr(response, "_ratelimit_refused", False):
                admission.undo()
        return response

    try:
        yield answered
    except Exception as error:
        admission.settle(_views.status_of(error))
        raise


def _refusal(admission: Admission) -> Any:
    """The response, and for decorators around this one that they have charged for nothing."""
    response = exchange.response(admission)
    response._ratelimit_refused = True
    return response


def _methods(method: Methods, whose: str) -> Optional[FrozenSet[str]]:
    """The methods in capitals; None for all."""
    methods = [method] if method is None or isinstance(method, str) else list(method)
    if None in methods:
        return None
    names = frozenset(str(name).upper() for name in methods)
    if not names or not all(name.isalpha() for name in names):
        raise ImproperlyConfigured(
            f"{whose}: the method {method!r} is none; write 'POST', ('POST', 'PUT') or None for all"
        )
    return names


def _is_called(said: object) -> bool:
    return callable(said) or (isinstance(said, str) and DOTTED.fullmatch(said) is not None)


def _called(said: Any, whose: str) -> Supplier:
    """What is called, itself or by its dotted path."""
    if callable(said):
        return said  # type: ignore[no-any-return]
    if not _is_called(said):
        raise ImproperlyConfigured(f"{whose}: {said!r} cannot be called; write a function or its dotted path")
    try:
        found = import_string(said)
    except ImportError as error:
        module = sys.modules.get(said.rpartition(".")[0])
        if module is None or not getattr(module.__spec__, "_initializing", False):
            raise ImproperlyConfigured(f"{whose}: {said!r} cannot be imported: {error}") from error
        # Of the module that is being imported, further down in it.
        return lambda group, request: import_string(said)(group, request)
    if not callable(found):
        raise ImproperlyConfigured(f"{whose}: {said!r} cannot be called; write the path of a function")
    return found  # type: ignore[no-any-return]


def _field(key: str) -> Supplier:
    """A field of the query or of the form."""
    where, _, field = key.partition(":")
    return lambda group, request: getattr(request, where.upper()).get(field)


def _key_text(key: object, whose: str) -> Union[str, bytes]:
    """What a key function has returned, which must tell somebody from others."""
    text: Union[str, bytes] = _web.user(key)
    if not text:
        raise ImproperlyConfigured(f"{whose}: the key function returned {key!r}; return text, or None for no limit")
    return text

"""What a view is: its name, whether it is async, and what its exceptions become."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Iterator, Optional

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest

View = Callable[..., Any]


def name(view: View) -> str:
    """Its dotted name. A method's is that of the request's class, so that those whose ``dispatch`` is Django's own are
    told apart."""
    owner = _owner(view)
    if owner is not None:
        method = getattr(view, "__name__", "dispatch")
        return _dotted(owner) if method == "dispatch" else f"{_dotted(owner)}.{method}"
    for inner in _layers(view):
        # What `as_view` has made, of Django or of REST framework, knows its class.
        made_of = getattr(inner, "view_class", None) or getattr(inner, "cls", None)
        if made_of is not None:
            return _dotted(made_of)
    return _dotted(_innermost(view))


def is_async(view: View) -> bool:
    """Whether its response must be awaited; of a ``dispatch`` its class tells."""
    if getattr(view, "__name__", "") == "dispatch" and getattr(_owner(view), "view_is_async", False):
        return True
    return bool(iscoroutinefunction(view) or iscoroutinefunction(_innermost(view)))


def request_of(request: Any) -> Any:
    """Django's request: itself, or the one that REST framework's is made of."""
    django = getattr(request, "_request", request)
    if isinstance(django, HttpRequest):
        return django
    raise TypeError(
        f"@ratelimit got {type(request).__name__} instead of a request; on a method, write "
        "@method_decorator(ratelimit(...))"
    )


def status_of(error: Exception) -> int:
    """The status that Django answers an exception of a view with."""
    if isinstance(error, Http404):
        return 404
    if isinstance(error, PermissionDenied):
        return 403
    return 400 if isinstance(error, (BadRequest, SuspiciousOperation)) else 500


def _owner(view: View) -> Optional[type]:
    """The class whose method it is, bound as `method_decorator` does it."""
    for inner in _layers(view):
        if inspect.ismethod(inner):
            return inner.__self__ if isinstance(inner.__self__, type) else type(inner.__self__)
    return None


def _layers(view: View) -> Iterator[View]:
    """It, and what it wraps, from the outside."""
    while True:
        yield view
        if isinstance(view, functools.partial):
            view = view.func
        elif not inspect.ismethod(view) and "__wrapped__" in getattr(view, "__dict__", {}):
            view = view.__dict__["__wrapped__"]
        else:
            return


def _innermost(view: View) -> View:
    """It without partials, which have no name."""
    while isinstance(view, functools.partial):
        view = view.func
    return view


def _dotted(named: Any) -> str:
    named = named if hasattr(named, "__qualname__") else type(named)
    # The name and not the end of the qualified one: REST framework's `@api_view` names its classes after functions.
    around = named.__qualname__.rpartition(".")[0]
    return ".".join(part for part in (named.__module__, around, named.__name__) if part)

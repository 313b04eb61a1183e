"""What the files of several frameworks need."""

from __future__ import annotations

import contextlib
import inspect
import logging
from functools import lru_cache
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Tuple, Union
from urllib.parse import quote

from ._policy import Policy
from ._tidegate import InvalidRequest, Request

Ask = Callable[[Any], Any]

# What `quote` need not touch, beside letters, digits and "_.-~".
_SAFE = "/!$&'()*+,;=:@"


def policy_of(policy: Any) -> Policy:
    """A policy as it is, or one of a document: a dictionary, or the path of a file."""
    return policy if isinstance(policy, Policy) else Policy(policy)


def encoded(path: Union[str, bytes]) -> str:
    """A decoded path, percent-encoded again. It is what the application's router sees, where `%2F` parts segments too.

    A path of characters that UTF-8 does not have is none of the application's, and no reason to fail.
    """
    return quote(path.encode("utf-8", "surrogatepass") if isinstance(path, str) else path, safe=_SAFE)


def headers_of(environ: Mapping[str, Any], names: Iterable[str]) -> List[Tuple[str, str]]:
    """These headers of a WSGI environment. Servers have joined the lines of one header already."""
    return [(name, environ[key]) for name in names if (key := _variable(name)) in environ]


@lru_cache(maxsize=256)
def _variable(header: str) -> str:
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def plain(answer: Any, asked: object) -> Any:
    """What somebody who was asked has answered, where nothing can be awaited.

    A coroutine is refused: it is true, whatever it would answer, and as text it tells nobody from others.
    """
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{asked!r} is async, and this request is not: write a plain function")
    return answer


def identity(value: Any) -> Any:
    """A user, or a part of a key, as it is told: numbers stay, since they may be costs; anything else is text."""
    if value is None or isinstance(value, (bytes, int)):
        return value
    kind: Any = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        raise TypeError(f"a {kind.__name__} tells nobody from others; write text, bytes or a number of it")
    return str(value).encode("utf-8", "surrogatepass")


def user(value: Any) -> Any:
    """A user as it is told: of the application's numbers, text. False, as of ``is_authenticated and id``, is nobody."""
    if value is False:
        return None
    return str(value) if isinstance(value, int) else identity(value)


class Asks:
    """What the application is asked of a request, where its route needs it."""

    def __init__(
        self, user: Optional[Ask], values: Optional[Mapping[str, Ask]], answers: Optional[Mapping[str, Ask]]
    ) -> None:
        self.user, self.values, self.answers = user, dict(values or {}), dict(answers or {})
        asked = {**self.values, **self.answers, **({} if user is None else {"user": user})}
        for name, ask in asked.items():
            if not callable(ask):
                raise TypeError(f"{name} is to be a callable, which is asked for each request that needs it")

    def warn(self, log: logging.Logger, policy: Policy, routes: Iterable[str]) -> None:
        """Says what routes need and nobody was told how to find: their rules would not hold."""
        for route in routes:
            with contextlib.suppress(InvalidRequest):  # the default route need not have a name
                needs = policy.named("GET", route)
                for what in self._missing(needs):
                    log.warning("route %s needs %s, which is not there", route, what)

    def _missing(self, needs: Request) -> Iterator[str]:
        if needs.needs_user and self.user is None:
            yield "user="
        yield from (f"values[{name!r}]" for name in needs.needs_values if name not in self.values)
        yield from (f"answers[{name!r}]" for name in needs.needs_answers if name not in self.answers)

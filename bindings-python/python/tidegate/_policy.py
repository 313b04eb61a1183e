from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Dict, Iterable, NoReturn, Optional, Tuple, Type, TypeVar, Union

from . import _asyncio, _document
from ._limiter import Limiter
from ._tidegate import Admission, Clock, PolicyCore, Request
from .types import PolicyMetrics

P = TypeVar("P", bound="Policy")
Line = Tuple[Union[str, bytes], Union[str, bytes]]


class Policy(PolicyCore):
    """Which rules requests have, of a document's routes: for servers and their middleware.

    >>> policy = Policy({"version": 1, "rules": {"login": "1/m"}, "routes": [{"path": "/login", "rules": "login",
    ...                  "key": "ip"}]})
    >>> [policy.admit(policy.request("POST", "/login"), peer="203.0.113.7").status for _ in range(2)]
    [None, 429]
    """

    def __new__(cls: Type[P], document: _document.Document, format: Optional[str] = None) -> P:
        """Of a document: a dictionary, the path of a file, or text of a format (``toml``, ``yaml`` or ``json``)."""
        return cls._made(*_document.of_document(document, format))

    @classmethod
    def watch(cls: Type[P], path: Any) -> P:
        """Of a file, which is read again when it changes. A document that is refused changes nothing, and is logged."""
        return cls._made(path, "watched")

    @classmethod
    def _made(
        cls: Type[P], document: Any, format: str, clock: Optional[Clock] = None, beside: Optional[PolicyCore] = None
    ) -> P:
        return super().__new__(cls, document, format, clock, beside)

    def reload(self, document: _document.Document, format: Optional[str] = None) -> None:
        """Takes another document from the next request on. One that is refused raises, and the old one stays."""
        self._reload(*_document.of_document(document, format))

    def beside(self, document: _document.Document, format: Optional[str] = None) -> Policy:
        """A policy of other rules and routes on the same store: it shares connections and state with this one."""
        return Policy._made(*_document.of_document(document, format), beside=self)

    @property
    def limiter(self) -> Limiter:
        """The limiter of its rules, as they are now."""
        return Limiter._of(self._limiter())

    async def admit_async(
        self,
        request: Request,
        *,
        peer: Optional[str] = None,
        headers: Iterable[Line] = (),
        user: Union[str, bytes, None] = None,
        values: Optional[Dict[str, Any]] = None,
        answers: Iterable[str] = (),
        after: Optional[Admission] = None,
    ) -> Admission:
        """``admit`` on the running loop: one that is cancelled gives back what it charges."""
        loop = asyncio.get_running_loop()
        port = _asyncio.port_of(loop)
        ticket = next(port.tickets)
        admission = self._submit(port.queue, ticket, request, peer, headers, user, values, answers, after)
        if admission is not None:
            return admission
        return await port.answer(loop, ticket, None)  # type: ignore[no-any-return]

    def metrics(self) -> PolicyMetrics:
        """What has been counted since the policy was made; ``prometheus()`` is the same as text to scrape."""
        return json.loads(self._metrics())  # type: ignore[no-any-return]

    def __enter__(self: P) -> P:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.routes)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a policy cannot be pickled; make one in each process, of the same document")

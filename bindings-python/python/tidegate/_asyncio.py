"""The limiter for asyncio. Each event loop has one port: a queue of the core's, and a pipe that the loop watches.

A call that is not answered at once leaves a future in the port under a ticket. The core's I/O thread puts the answer
into the queue and writes a byte into the pipe; the loop's own thread drains the queue, once for all that has come.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from types import TracebackType
from typing import Any, Dict, Iterator, NoReturn, Optional, Tuple, Type, TypeVar, Union

from . import _document
from ._limiter import Limiter
from ._tidegate import Admission, Counted, Decision, Queue, Receipt
from .types import Metrics

A = TypeVar("A", bound="AsyncLimiter")
Key = Union[str, bytes, Tuple[Union[str, bytes], ...]]

# Another object in each forked process: a queue of the parent's takes no calls in the child.
_process = object()


def _forked() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_forked)


class _Port:
    """Used by its loop's thread alone. It must not refer to the loop, which refers to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.process = _process
        self.queue = Queue()
        self.tickets: Iterator[int] = itertools.count(1)
        # The future of each call that is on its way, or None where it was given up, and the limiter that takes back
        # what nobody waits for.
        self.calls: Dict[int, Tuple[Optional["asyncio.Future[Any]"], Optional[Limiter]]] = {}
        loop.add_reader(self.queue.fileno(), self.drain)

    def drain(self) -> None:
        for limiter, decision in self.queue.drain(self.calls):
            self.give_back(limiter, decision)

    async def answer(self, loop: asyncio.AbstractEventLoop, ticket: int, limiter: Optional[Limiter]) -> Any:
        """What comes of a call that was submitted."""
        future = loop.create_future()
        self.calls[ticket] = (future, limiter)
        try:
            return await future
        except BaseException:
            self.give_up(limiter, ticket, future)
            raise

    def give_up(self, limiter: Optional[Limiter], ticket: int, future: "asyncio.Future[Any]") -> None:
        """Of a call whose task is cancelled: what it charges, or has charged already, is given back."""
        if ticket in self.calls:
            self.calls[ticket] = (None, limiter)
        elif not future.cancelled() and future.exception() is None:
            self.give_back(limiter, future.result())

    def give_back(self, limiter: Optional[Limiter], value: object) -> None:
        if isinstance(value, Admission):
            value.undo()
        elif isinstance(value, Decision) and limiter is not None:
            limiter._give_back(self.queue, next(self.tickets), value)


def port_of(loop: asyncio.AbstractEventLoop) -> _Port:
    """The loop's port. It stands in the loop itself, and so ends with it."""
    port: Optional[_Port] = getattr(loop, "_tidegate_port", None)
    if port is None or port.process is not _process:
        port = _Port(loop)
        loop._tidegate_port = port  # type: ignore[attr-defined]
    return port


class AsyncLimiter:
    """A `Limiter` for asyncio: the same names and arguments, and calls are awaited. Any number of loops may use it."""

    def __init__(
        self,
        rules: Optional[_document.Rules] = None,
        *,
        url: Optional[str] = None,
        document: Optional[_document.Document] = None,
        prefix: Optional[str] = None,
        deadline: Optional[float] = None,
    ) -> None:
        self._limiter = Limiter(rules, url=url, document=document, prefix=prefix, deadline=deadline)

    @classmethod
    def from_document(cls: Type[A], document: _document.Document, format: Optional[str] = None) -> A:
        """Of a document: a dictionary, the path of a file, or text of a format (``toml``, ``yaml`` or ``json``)."""
        return cls.of(Limiter.from_document(document, format))

    @classmethod
    def of(cls: Type[A], limiter: Limiter) -> A:
        """The asynchronous face of a limiter: both have the same state."""
        made = cls.__new__(cls)
        made._limiter = limiter
        return made

    @property
    def rules(self) -> "list[str]":
        return self._limiter.rules

    async def check(
        self,
        rule: Any,
        key: Key,
        *,
        cost: int = 1,
        limits: Optional[str] = None,
        request_id: Union[str, bytes, None] = None,
        deadline: Optional[float] = None,
    ) -> Decision:
        loop = asyncio.get_running_loop()
        port, limiter = port_of(loop), self._limiter
        ticket = next(port.tickets)
        decision = limiter._submit_check(port.queue, ticket, rule, key, cost, limits, request_id, deadline)
        if decision is not None:
            return decision
        # As in `answer`, without another coroutine: it is the path that must be fast.
        future = loop.create_future()
        port.calls[ticket] = (future, limiter)
        try:
            return await future  # type: ignore[no-any-return]
        except BaseException:
            port.give_up(limiter, ticket, future)
            raise

    async def peek(
        self,
        rule: Any,
        key: Key,
        *,
        cost: int = 1,
        limits: Optional[str] = None,
        request_id: Union[str, bytes, None] = None,
        deadline: Optional[float] = None,
    ) -> Decision:
        loop = asyncio.get_running_loop()
        port, limiter = port_of(loop), self._limiter
        ticket = next(port.tickets)
        decision = limiter._submit_peek(port.queue, ticket, rule, key, cost, limits, request_id, deadline)
        if decision is not None:
            return decision
        return await port.answer(loop, ticket, self._limiter)  # type: ignore[no-any-return]

    # Both take the name of one rule, or the names of several.
    check_all = check
    peek_all = peek

    async def acquire(
        self,
        rule: str,
        key: Key,
        *,
        cost: int = 1,
        limits: Optional[str] = None,
        deadline: Optional[float] = None,
        timeout: float = 10.0,
    ) -> Decision:
        loop = asyncio.get_running_loop()
        port = port_of(loop)
        ticket = next(port.tickets)
        acquiring = self._limiter._submit_acquire(port.queue, ticket, rule, key, cost, limits, deadline, timeout)
        try:
            return await port.answer(loop, ticket, self._limiter)  # type: ignore[no-any-return]
        except BaseException:
            acquiring.call_off()
            raise

    async def refund(self, receipt: Union[Receipt, Decision]) -> bool:
        loop = asyncio.get_running_loop()
        port = port_of(loop)
        ticket = next(port.tickets)
        self._limiter._submit_refund(port.queue, ticket, receipt)
        return await port.answer(loop, ticket, self._limiter)  # type: ignore[no-any-return]

    async def reset(self, rule: str, key: Key, *, limits: Optional[str] = None) -> None:
        loop = asyncio.get_running_loop()
        port = port_of(loop)
        ticket = next(port.tickets)
        self._limiter._submit_reset(port.queue, ticket, rule, key, limits)
        await port.answer(loop, ticket, self._limiter)

    async def count(self, rule: str, key: Key, window: float, add: int = 0) -> Counted:
        loop = asyncio.get_running_loop()
        port = port_of(loop)
        ticket = next(port.tickets)
        self._limiter._submit_count(port.queue, ticket, rule, key, window, add)
        return await port.answer(loop, ticket, self._limiter)  # type: ignore[no-any-return]

    async def take_back(self, rule: str, key: Key, window: float, units: int, start: int) -> Counted:
        loop = asyncio.get_running_loop()
        port = port_of(loop)
        ticket = next(port.tickets)
        self._limiter._submit_take_back(port.queue, ticket, rule, key, window, units, start)
        return await port.answer(loop, ticket, self._limiter)  # type: ignore[no-any-return]

    async def log(self, rule: str, key: Key, *, limits: Optional[str] = None) -> "list[tuple[int, int]]":
        loop = asyncio.get_running_loop()
        port = port_of(loop)
        ticket = next(port.tickets)
        self._limiter._submit_log(port.queue, ticket, rule, key, limits)
        return await port.answer(loop, ticket, self._limiter)  # type: ignore[no-any-return]

    async def ready(self, timeout: float = 5.0) -> None:
        loop = asyncio.get_running_loop()
        port = port_of(loop)
        ticket = next(port.tickets)
        self._limiter._submit_ready(port.queue, ticket, timeout)
        await port.answer(loop, ticket, self._limiter)

    def metrics(self) -> Metrics:
        return self._limiter.metrics()

    def prometheus(self) -> str:
        return self._limiter.prometheus()

    async def close(self) -> None:
        self._limiter.close()

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.rules)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a limiter cannot be pickled; make one in each process, of the same rules and url")

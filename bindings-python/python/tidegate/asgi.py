"""ASGI middleware: for Starlette, FastAPI, and whatever else speaks ASGI.

    app.add_middleware(RateLimitMiddleware, policy=Policy("tidegate.toml"))

It reads nothing but the scope, needs no framework, and leaves what is not a request (``lifespan``) alone.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any, Awaitable, Callable, Dict, Iterable, List, Mapping, MutableMapping, Optional, Tuple

from . import _web
from ._tidegate import Admission, Request, TidegateError

__all__ = ["RateLimitMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("tidegate.asgi")

# Where a scope has the admissions of its request, in the order in which they were decided.
ADMISSIONS = "tidegate.admissions"
DENIAL = "websocket.http.response"
_CANNOT = 500
POLICY_VIOLATION = 1008


class RateLimitMiddleware:
    """Lets requests pass by a policy, and answers those that may not.

    ``policy`` is a `tidegate.Policy`, a document (a dictionary), or the path of one. ``user``, and what ``values`` and
    ``answers`` have under the names of the document, are called with the scope, where a route needs them and only then:
    functions or coroutine functions. None, or an empty text, is nobody. What they raise is the application's error.

    WebSockets are judged at their handshake, as ``GET``.
    """

    def __init__(
        self,
        app: App,
        policy: Any,
        *,
        user: Optional[_web.Ask] = None,
        values: Optional[Mapping[str, _web.Ask]] = None,
        answers: Optional[Mapping[str, _web.Ask]] = None,
    ) -> None:
        self.app = app
        self.judge = Judge(policy, user, values, answers)
        self.judge.asks.warn(log, self.judge.policy, self.judge.policy.routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        request = self.judge.policy.request(scope.get("method", "GET"), path_of(scope))
        try:
            admission = await self.judge.admit(request, scope, scope)
        except TidegateError as error:
            log.error("a request could not be judged: %s", error)
            await _answer(scope, receive, send, _CANNOT, [], b"")
            return
        if admission.allowed:
            await self._pass(admission, scope, receive, send)
        else:
            body = (admission.body or "").encode()
            await _answer(scope, receive, send, admission.status or 429, _lines(admission), body)

    async def _pass(self, admission: Admission, scope: Scope, receive: Receive, send: Send) -> None:
        admissions: List[Admission] = scope[ADMISSIONS]
        # Those further inside come behind this one. Without a middleware of their own they are settled here; a second
        # settling does nothing.
        first = len(admissions) - 1

        async def tell(message: Message) -> None:
            status = _status(message)
            if status is not None:
                message = {**message, "headers": _told(admissions[-1], message.get("headers", ()))}
                _settle(admissions, first, status)
            await send(message)

        try:
            await self.app(scope, receive, tell)
        except Exception:
            # Where the response has begun its status was settled already.
            _settle(admissions, first, _CANNOT)
            raise


class Judge:
    """A policy, and what it asks the application."""

    def __init__(
        self,
        policy: Any,
        user: Optional[_web.Ask],
        values: Optional[Mapping[str, _web.Ask]],
        answers: Optional[Mapping[str, _web.Ask]],
    ) -> None:
        self.policy = _web.policy_of(policy)
        self.asks = _web.Asks(user, values, answers)

    async def admit(self, request: Request, scope: Scope, asked: Any) -> Admission:
        """Decides, after what was decided of the request before. The callables are called with ``asked``."""
        told = await self._told(request, asked)
        before: List[Admission] = scope.setdefault(ADMISSIONS, [])
        admission = await self.policy.admit_async(
            request,
            peer=peer_of(scope),
            headers=headers_of(scope, request.needs_headers),
            after=before[-1] if before else None,
            **told,
        )
        before.append(admission)
        scope.setdefault("state", {})["ratelimit"] = admission
        return admission

    async def _told(self, request: Request, asked: Any) -> Dict[str, Any]:
        if not (request.needs_user or request.needs_values or request.needs_answers):
            return {}
        asks = self.asks
        user = await _ask(asks.user, asked) if request.needs_user else None
        values = {name: _web.identity(await _ask(asks.values.get(name), asked)) for name in request.needs_values}
        return {
            "user": _web.user(user),
            "values": {name: value for name, value in values.items() if value is not None},
            "answers": [name for name in request.needs_answers if await _ask(asks.answers.get(name), asked)],
        }


async def _ask(ask: Optional[_web.Ask], asked: Any) -> Any:
    answer = None if ask is None else ask(asked)
    return await answer if inspect.isawaitable(answer) else answer


def path_of(scope: Scope) -> str:
    """The path that the outermost application's router sees, encoded again.

    Not `raw_path`: routers take the decoded path, so that `/a%2Fb` is `/a/b` to them. What stands before the
    application (`--root-path`) is taken off as Starlette does; what a mount adds to `root_path` is not.
    """
    path: str = scope["path"]
    root: str = scope.get("app_root_path", scope.get("root_path", ""))
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        path = path[len(root) :]
    return _web.encoded(path or "/")


def peer_of(scope: Scope) -> Optional[str]:
    """The peer's address. A server that listens on a Unix socket tells of none, and has a path without a port."""
    client = scope.get("client")
    if client and client[0]:
        return str(client[0])
    server = scope.get("server")
    return "unix" if server and server[1] is None else None


def headers_of(scope: Scope, names: Tuple[str, ...]) -> List[Tuple[bytes, bytes]]:
    """The lines of these headers, in their order."""
    wanted = {name.encode() for name in names}
    return [(name, value) for name, value in scope["headers"] if name.lower() in wanted]


def _status(message: Message) -> Optional[int]:
    """The status that a message begins a response with: a handshake's too."""
    kind = message["type"]
    if kind in ("http.response.start", "websocket.http.response.start"):
        return int(message["status"])
    return 101 if kind == "websocket.accept" else None


def _lines(admission: Admission) -> List[Tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in admission.headers]


def _told(admission: Admission, headers: Iterable[Tuple[bytes, bytes]]) -> List[Tuple[bytes, bytes]]:
    """A response's headers, and those of the admission that it does not have."""
    headers = list(headers)
    there = {name.lower() for name, _ in headers}
    return headers + [line for line in _lines(admission) if line[0] not in there]


def _settle(admissions: List[Admission], first: int, status: int) -> None:
    for admission in admissions[first:]:
        admission.settle(status)


async def _answer(
    scope: Scope, receive: Receive, send: Send, status: int, headers: List[Tuple[bytes, bytes]], body: bytes
) -> None:
    """Answers in the application's place."""
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()  # the handshake, which servers want to have handed over first
        if DENIAL not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": ""})
            return
        kind = DENIAL
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": b"" if scope.get("method") == "HEAD" else body})

"""A FastAPI dependency: ``Depends(RateLimit("login", policy))``."""

# FastAPI reads the annotations of `__call__` as they are, so they must not be text.

from typing import Any, Mapping, Optional, Union

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket

from ._tidegate import Admission, TidegateError
from ._web import Ask
from .asgi import DENIAL, POLICY_VIOLATION, Judge, log

__all__ = ["RateLimit", "RateLimited"]

_HANDLERS = "starlette.exception_handlers"


class RateLimited(HTTPException):
    """A request may not pass. Where the application has no handler of its own for it, the response is the core's."""

    def __init__(self, admission: Admission) -> None:
        headers = {name: value for name, value in admission.headers if name.lower() != "content-type"}
        super().__init__(admission.status or 429, admission.body or "", headers)
        self.admission = admission


class RateLimit:
    """Judges the requests of one endpoint, router or application by a route of the policy, which is named.

    ``policy`` and the callables are those of `tidegate.asgi.RateLimitMiddleware`; they are called with the request (a
    `starlette.requests.HTTPConnection`, which is the scope as well). The dependency's value is the `Admission`.
    """

    def __init__(
        self,
        route: str,
        policy: Any,
        *,
        user: Optional[Ask] = None,
        values: Optional[Mapping[str, Ask]] = None,
        answers: Optional[Mapping[str, Ask]] = None,
    ) -> None:
        self.route = route
        self.judge = Judge(policy, user, values, answers)
        self.judge.policy.named("GET", route)  # one that is not there is told of now
        self.judge.asks.warn(log, self.judge.policy, [route])

    async def __call__(self, request: HTTPConnection, response: Response) -> Admission:
        named = self.judge.policy.named(request.scope.get("method", "GET"), self.route)
        try:
            admission = await self.judge.admit(named, request.scope, request)
        except TidegateError as error:
            log.error("a request could not be judged: %s", error)
            raise HTTPException(500) from None
        if not admission.allowed:
            _render_here(request)
            raise RateLimited(admission)
        for name, value in admission.headers:
            response.headers[name] = value
        return admission


def _render_here(request: HTTPConnection) -> None:
    """Has the application's Starlette render `RateLimited`, unless the application has a handler for it already.

    FastAPI's own handler would wrap the body into JSON.
    """
    handlers, _ = request.scope.get(_HANDLERS, ({}, {}))
    handlers.setdefault(RateLimited, _render)


async def _render(connection: Union[HTTPConnection, WebSocket], error: RateLimited) -> Optional[Response]:
    if isinstance(connection, WebSocket) and DENIAL not in (connection.scope.get("extensions") or {}):
        await connection.close(POLICY_VIOLATION)
        return None
    response = Response(error.detail, error.status_code)
    for name, value in error.admission.headers:
        response.headers[name] = value
    return response

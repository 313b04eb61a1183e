"""A Flask extension: ``RateLimit(app, policy=...)``."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar

import flask

from . import _web
from ._policy import Policy
from ._tidegate import Admission, Request, TidegateError

__all__ = ["RateLimit"]

F = TypeVar("F", bound=Callable[..., Any])
Ask = Callable[[flask.Request], Any]

log = logging.getLogger("tidegate.flask")

_EXEMPT = "_tidegate_exempt"
_ADMISSIONS = "tidegate.admissions"


class RateLimit:
    """Lets an application's requests pass by a policy, and answers those that may not.

    ``policy`` is a `tidegate.Policy`, a document (a dictionary), or the path of one; without it `init_app` takes
    ``app.config["TIDEGATE"]``. ``user``, and what ``values`` and ``answers`` have under the names of the document, are
    called with the request where a route needs them and only then. None, or an empty text, is nobody.

    ``flask.g.ratelimit`` is the request's `tidegate.Admission`.
    """

    def __init__(
        self,
        app: Optional[flask.Flask] = None,
        policy: Any = None,
        *,
        user: Optional[Ask] = None,
        values: Optional[Mapping[str, Ask]] = None,
        answers: Optional[Mapping[str, Ask]] = None,
    ) -> None:
        self.given = None if policy is None else _web.policy_of(policy)
        self.asks = _web.Asks(user, values, answers)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask) -> None:
        """Puts the limits before an application, which may be one of several."""
        if "tidegate" in app.extensions:
            raise RuntimeError("this application has a RateLimit already; one policy has all of its routes")
        if self.given is None and app.config.get("TIDEGATE") is None:
            raise RuntimeError('say the policy: RateLimit(app, policy=...), or app.config["TIDEGATE"] = ...')
        policy = self.given or _web.policy_of(app.config["TIDEGATE"])
        self.asks.warn(log, policy, policy.routes)
        app.extensions["tidegate"] = policy
        # Before whatever the application does before a request is registered: limits come first.
        app.before_request_funcs.setdefault(None, []).insert(0, self._before)
        app.after_request_funcs.setdefault(None, []).insert(0, self._after)
        app.teardown_request(self._teardown)

    @property
    def policy(self) -> Policy:
        """The policy of the application that is running."""
        policy: Policy = flask.current_app.extensions["tidegate"]
        return policy

    def limit(self, route: str) -> Callable[[F], F]:
        """Judges a view by a route of the policy, which is named, whatever its own path is."""

        def decorate(view: F) -> F:
            @functools.wraps(view)
            def limited(*args: Any, **kwargs: Any) -> Any:
                refused = self._judge(self.policy.named(flask.request.method, route))
                if refused is not None:
                    return refused
                return flask.current_app.ensure_sync(view)(*args, **kwargs)

            return limited  # type: ignore[return-value]

        return decorate

    def exempt(self, view: F) -> F:
        """A view whose path no route of the policy is for. ``limit`` beside it still holds."""
        setattr(view, _EXEMPT, True)
        return view

    def _before(self) -> Optional[flask.Response]:
        request = flask.request
        view = flask.current_app.view_functions.get(request.endpoint or "")
        if getattr(view, _EXEMPT, False):
            return None
        return self._judge(self.policy.request(request.method, path_of(request.environ)))

    def _judge(self, request: Request) -> Optional[flask.Response]:
        """The response, if the request may not pass."""
        # Not in `g`, which requests of one application context share, as tests make them.
        admissions: List[Admission] = flask.request.environ.setdefault(_ADMISSIONS, [])
        told = self._told(request)
        try:
            admission = self.policy.admit(
                request,
                peer=peer_of(flask.request.environ),
                headers=_web.headers_of(flask.request.environ, request.needs_headers),
                after=admissions[-1] if admissions else None,
                **told,
            )
        except TidegateError as error:
            log.error("a request could not be judged: %s", error)
            return flask.Response(status=500)
        admissions.append(admission)
        flask.g.ratelimit = admission
        if admission.allowed:
            return None
        return flask.Response(admission.body or "", admission.status, list(admission.headers))

    def _told(self, request: Request) -> Dict[str, Any]:
        if not (request.needs_user or request.needs_values or request.needs_answers):
            return {}
        asks = self.asks
        values = {name: _web.identity(_ask(asks.values.get(name))) for name in request.needs_values}
        return {
            "user": _web.user(_ask(asks.user)) if request.needs_user else None,
            "values": {name: value for name, value in values.items() if value is not None},
            "answers": [name for name in request.needs_answers if _ask(asks.answers.get(name))],
        }

    def _after(self, response: flask.Response) -> flask.Response:
        admissions: List[Admission] = flask.request.environ.get(_ADMISSIONS, [])
        if admissions:
            for name, value in admissions[-1].headers:
                response.headers.setdefault(name, value)
        for admission in admissions:
            admission.settle(response.status_code)
        return response

    def _teardown(self, error: Optional[BaseException] = None) -> None:
        """Where there was no response to settle by, since an error went through."""
        if error is not None:
            for admission in flask.request.environ.get(_ADMISSIONS, []):
                admission.settle(500)


def _ask(ask: Optional[Ask]) -> Any:
    return None if ask is None else _web.plain(ask(flask.request), ask)


def path_of(environ: Mapping[str, Any]) -> str:
    """The path that the application's router sees, encoded again: it is decoded here, its bytes as Latin-1."""
    return _web.encoded(environ.get("PATH_INFO", "").encode("latin-1", "replace") or b"/")


def peer_of(environ: Mapping[str, Any]) -> Optional[str]:
    """The peer's address. It is empty where the server listens on a Unix socket."""
    return environ.get("REMOTE_ADDR")

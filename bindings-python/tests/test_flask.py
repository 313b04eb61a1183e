"""The Flask extension: real applications, a real gunicorn."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import flask
import pytest
from conftest import ROOT
from tidegate import Policy, _web
from tidegate.flask import RateLimit, path_of, peer_of
from tidegate.testing import MemoryPolicy

LOGIN = {"name": "login", "path": "/login", "rules": "login", "key": "ip", "refund_status": ["5xx"]}


def document(*routes, rules=None, **more):
    return {"version": 1, "rules": rules or {"login": "2/m"}, "routes": list(routes or [LOGIN]), **more}


def application(policy=None, **asks):
    app = flask.Flask(__name__)
    limiter = RateLimit(app, MemoryPolicy(document()) if policy is None else policy, **asks)

    @app.route("/login", methods=["GET", "POST"])
    def login():
        return flask.g.ratelimit.outcome

    @app.route("/sign-in")
    @limiter.limit(route="login")
    def sign_in():
        return "in"

    return app


def codes(app, path, times, **options):
    http = app.test_client()
    return [http.get(path, **options).status_code for _ in range(times)]


def test_a_refusal_is_the_cores():
    http = application().test_client()
    first = http.post("/login")
    assert (first.status_code, first.text) == (200, "allowed")
    assert first.headers["RateLimit"] == '"login";r=1;t=60'
    http.get("/login")
    refused = http.get("/login", headers={"Accept": "application/json"})
    assert refused.status_code == 429
    assert refused.headers.getlist("Retry-After") == ["60"]
    assert refused.headers.getlist("Content-Type") == ["application/json"]
    assert refused.json == {"error": "Too Many Requests", "retry_after_seconds": 60}
    assert http.get("/other").status_code == 404
    assert http.get("/login", environ_base={"REMOTE_ADDR": "203.0.113.8"}).status_code == 200


def test_the_policy_may_stand_in_the_configuration(tmp_path):
    (tmp_path / "tidegate.json").write_text(json.dumps(document()))
    limiter = RateLimit()
    for policy in (document(), str(tmp_path / "tidegate.json"), MemoryPolicy(document())):
        app = flask.Flask(__name__)
        app.config["TIDEGATE"] = policy
        limiter.init_app(app)
        assert codes(app, "/login", 3) == [404, 404, 429]
        with app.app_context():
            assert isinstance(limiter.policy, Policy)
        with pytest.raises(RuntimeError, match="already"):
            limiter.init_app(app)
    with pytest.raises(RuntimeError, match="TIDEGATE"):
        limiter.init_app(flask.Flask(__name__))


def test_decorated_views_share_the_charge_of_their_request():
    app = application()
    assert codes(app, "/sign-in", 3) == [200, 200, 429]
    assert codes(app, "/login", 1) == [429]
    app = application(MemoryPolicy(document({**LOGIN, "path": "/sign-in"})))
    answers = [app.test_client().get("/sign-in") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["RateLimit"] == '"login";r=1;t=60'


def test_requests_of_one_context_are_each_their_own():
    app = application()
    with app.app_context():
        assert codes(app, "/login", 3) == [200, 200, 429]


def test_exempt_views_and_routes_that_are_not_there():
    app = application(MemoryPolicy(document(http={"default": {"rules": "login", "key": "ip"}})))
    limiter = RateLimit()

    @app.route("/health")
    @limiter.exempt
    def health():
        return "well"

    @app.route("/later")
    @limiter.exempt
    @limiter.limit(route="login")
    async def later():
        return "later"

    @app.route("/wrong")
    @limiter.limit(route="nope")
    def wrong():
        return ""

    assert codes(app, "/health", 4) == [200] * 4
    assert codes(app, "/wrong", 1) == [500]
    assert codes(app, "/later", 2) == [200, 429]


def test_the_application_is_asked_only_what_a_route_needs(caplog):
    asked = []

    def ask(name, value):
        def asking(request):
            assert request.path
            asked.append(name)
            return value(request) if callable(value) else value

        return asking

    upload = {"path": "/upload", "rules": "upload", "key": ["user", "app:tenant"], "cost": "app:units"}
    upload.update({"without_identity": "refuse", "exempt": {"app": ["is_staff"]}})
    app = application(
        MemoryPolicy(document(LOGIN, upload, rules={"login": "2/m", "upload": "5/m"})),
        user=ask("user", 7),
        values={"tenant": ask("tenant", "\ud800"), "units": ask("units", 2)},
        answers={"is_staff": ask("is_staff", lambda request: "staff" in request.args)},
    )
    assert codes(app, "/login", 1) == [200]
    assert asked == []
    assert codes(app, "/upload", 3) == [404, 404, 429]
    assert sorted(set(asked)) == ["is_staff", "tenant", "units", "user"]
    assert codes(app, "/upload?staff=1", 1) == [404]
    assert not caplog.records


def test_what_is_missing_is_told_of_at_start_and_a_cost_is_an_error(caplog):
    route = {"path": "/login", "rules": "login", "key": "user", "cost": "app:units", "without_identity": "skip"}
    app = application(MemoryPolicy(document(route)), user=lambda request: "alice")
    assert codes(app, "/login", 1) == [500]
    assert {record.name for record in caplog.records} >= {"tidegate.flask"}
    assert "values['units']" in caplog.text
    assert "could not be judged" in caplog.text
    assert "alice" not in caplog.text
    with pytest.raises(TypeError, match="user is to be a callable"):
        RateLimit(user="alice")


@pytest.mark.parametrize("propagate", [True, False])
def test_errors_give_back_and_the_applications_headers_stand(propagate):
    app = application(MemoryPolicy(document({**LOGIN, "path": "/{any}", "rules": "once"}, rules={"once": "1/m"})))
    app.config["PROPAGATE_EXCEPTIONS"] = propagate

    @app.route("/fails")
    def fails():
        raise LookupError("the application's own")

    @app.route("/own")
    def own():
        return "", 200, {"X-RateLimit-Limit": "mine"}

    for _ in range(3):
        if propagate:
            with pytest.raises(LookupError, match="own"):
                app.test_client().get("/fails")
        else:
            assert codes(app, "/fails", 1) == [500]
    answer = app.test_client().get("/own")
    assert answer.headers.getlist("X-RateLimit-Limit") == ["mine"]
    assert "RateLimit" in answer.headers
    assert codes(app, "/own", 1) == [429]


@pytest.mark.parametrize("path", ["/login", "/log%69n", "/%6Cogin", "/%2Flogin", "/LOGIN"])
def test_no_spelling_walks_past_a_limit(path):
    app = application(MemoryPolicy(document({**LOGIN, "rules": "none"}, rules={"none": "0/m"})))
    assert codes(app, path, 1) == [429]


@pytest.mark.parametrize("path", ["", "*", "/\ud800", "/\x00", "/\xfc", "/%", "/?", "/\U0001f600", "/" + "x" * 70_000])
def test_strange_paths_are_judged(path):
    policy = MemoryPolicy(document(http={"default": {"rules": "login", "key": "ip"}}))
    encoded = path_of({"PATH_INFO": path})
    assert encoded.isascii()
    assert policy.admit(policy.request("GET", encoded), peer="203.0.113.7")


def test_a_coroutine_exempts_nobody_and_is_nobody():
    async def spared(request):
        return False

    app = application(MemoryPolicy(document({**LOGIN, "exempt": {"app": ["spared"]}})), answers={"spared": spared})
    assert codes(app, "/login", 3) == [500] * 3
    route = {**LOGIN, "key": "user", "without_identity": "refuse"}
    assert codes(application(MemoryPolicy(document(route)), user=spared), "/login", 3) == [500] * 3


def test_an_object_without_a_text_of_its_own_is_nobody():
    route = {**LOGIN, "key": "user", "without_identity": "refuse"}
    app = application(MemoryPolicy(document(route)), user=lambda request: object())
    assert codes(app, "/login", 2) == [500] * 2


def test_what_is_read_of_an_environment():
    assert path_of({}) == "/"
    assert path_of({"PATH_INFO": "/\xc3\xbc %"}) == "/%C3%BC%20%25"
    assert peer_of({"REMOTE_ADDR": "203.0.113.7"}) == "203.0.113.7"
    assert peer_of({}) is None
    environ = {"HTTP_X_KEY": "a,b", "CONTENT_TYPE": "text/plain", "HTTP_COOKIE": "c"}
    assert _web.headers_of(environ, ("x-key", "content-type", "accept")) == [
        ("x-key", "a,b"),
        ("content-type", "text/plain"),
    ]


def test_h1_a_forged_header_changes_nothing():
    forged = [{"X-Forwarded-For": f"198.51.100.{n}"} for n in range(3)]
    http = application().test_client()
    assert [http.get("/login", headers=headers).status_code for headers in forged] == [200, 200, 429]
    app = application(MemoryPolicy(document(http={"trusted_proxies": ["loopback"]})))
    behind = [{"X-Forwarded-For": f"198.51.100.{n}, 203.0.113.7"} for n in range(3)]
    assert [app.test_client().get("/login", headers=headers).status_code for headers in behind] == [200, 200, 429]


def test_a_store_that_is_gone_is_503_where_the_document_denies(own_redis):
    own_redis.do("kill")
    rules = {"login": {"limits": "2/m", "on_error": "deny"}}
    answer = application(document(rules=rules, store={"url": own_redis.url})).test_client().get("/login")
    own_redis.do("restart")
    assert answer.status_code == 503
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["status"] == 503


def test_the_page_is_true():
    names = {"__name__": "page"}
    for snippet in re.findall(r"```python\n(.*?)```", (ROOT / "docs/flask.md").read_text(), re.DOTALL):
        exec(compile(snippet, "docs/flask.md", "exec"), names)
    app = names["app"]
    app.secret_key = "of this test"
    http = app.test_client()
    assert http.post("/login").text == "allowed"
    assert http.post("/sign-in").text == "in"
    assert [http.post("/login").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert http.post("/sign-in").status_code == 429
    assert http.get("/api/").status_code == 403
    assert http.get("/api/health").text == "well"


SERVICE = """
import os
import flask
from tidegate.flask import RateLimit

app = flask.Flask(__name__)
app.config["TIDEGATE"] = {
    "version": 1,
    "store": {"url": os.environ["URL"], "prefix": os.environ["PREFIX"], "deadline": "20s"},
    "rules": {"login": {"limits": "99/h", "on_error": "deny"}},
    "routes": [{"path": "/login", "rules": "login", "key": "ip"}],
}
limiter = RateLimit(app)
app.extensions["tidegate"].ready()  # its connections are there before the fork

@app.route("/login")
def login():
    return flask.g.ratelimit.decisions[0].origin
"""


def test_gunicorn_with_threads_that_preloads_admits_exactly_the_limit(redis, prefix, tmp_path):
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "gunicorn.conf.py").touch()
    options = ["--preload", "--bind=127.0.0.1:0", "--workers=2", "--threads=4", "--no-control-socket"]
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "service:app"],
        cwd=tmp_path,
        env={**os.environ, "URL": redis.url, "PREFIX": prefix},
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = iter(server.stderr.readline, "")
    try:
        address = next(found[1] for line in lines if (found := re.search(r"Listening at: (http://\S+)", line)))
        reader = threading.Thread(target=lambda: list(lines))
        reader.start()
        answers = asyncio.run(ask(address + "/login", 160))
    finally:
        server.terminate()
        assert server.wait(60) == 0
    reader.join()
    server.stderr.close()
    assert sum(status == 200 for status, _ in answers) == 99
    assert {body for status, body in answers if status == 200} == {"store"}
    assert {status for status, _ in answers} == {200, 429}


async def ask(url, times):
    def one():
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    return await asyncio.gather(*(asyncio.to_thread(one) for _ in range(times)))

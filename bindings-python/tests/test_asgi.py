"""The ASGI middleware and FastAPI's dependency: real applications, real servers, real sockets."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import fastapi
import httpx2 as httpx
import pytest
from conftest import ROOT
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect
from test_asyncio import Pauses
from tidegate import InvalidRequest, Policy
from tidegate.asgi import RateLimitMiddleware, path_of, peer_of
from tidegate.fastapi import RateLimit, RateLimited
from tidegate.testing import MemoryPolicy

LOGIN = {"name": "login", "path": "/login", "rules": "login", "key": "ip", "refund_status": ["5xx"]}


def document(*routes, rules=None, **more):
    return {"version": 1, "rules": rules or {"login": "2/m"}, "routes": list(routes or [LOGIN]), **more}


async def hello(request):
    return PlainTextResponse("hello")


async def fail(request):
    raise RuntimeError("the application's own")


def application(policy, *routes, **asks):
    app = Starlette(routes=routes or [Route("/login", hello, methods=["GET", "POST"])])
    app.add_middleware(RateLimitMiddleware, policy=policy, **asks)
    return app


def client(app, address="203.0.113.7", **options):
    return TestClient(app, client=(address, 4000), **options)


def test_a_refusal_is_the_cores():
    http = client(application(MemoryPolicy(document())))
    first = http.post("/login")
    assert (first.status_code, first.text) == (200, "hello")
    assert first.headers["ratelimit"] == '"login";r=1;t=60'
    http.post("/login")
    refused = http.post("/login", headers={"Accept": "application/json"})
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "60"
    assert refused.headers["content-type"] == "application/json"
    assert refused.headers["cache-control"] == "no-store"
    assert refused.json() == {"error": "Too Many Requests", "retry_after_seconds": 60}
    assert int(refused.headers["content-length"]) == len(refused.content)
    assert http.head("/login").content == b""
    assert http.post("/other").status_code == 404
    assert client(http.app, "203.0.113.8").post("/login").status_code == 200


def test_a_document_or_its_path_will_do(tmp_path):
    (tmp_path / "tidegate.json").write_text(json.dumps(document()))
    for policy in (document(), tmp_path / "tidegate.json", str(tmp_path / "tidegate.json")):
        http = client(application(policy))
        assert [http.post("/login").status_code for _ in range(3)] == [200, 200, 429]


def test_what_is_no_request_is_left_alone():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope, receive, send))

    scope = {"type": "lifespan", "asgi": {}}
    asyncio.run(RateLimitMiddleware(app, document())(scope, 1, 2))
    assert seen == [(scope, 1, 2)]
    assert seen[0][0] is scope
    assert set(scope) == {"type", "asgi"}


def test_the_application_is_asked_only_what_a_route_needs(caplog):
    asked = []

    def user(scope):
        asked.append("user")
        return scope["headers"] and 7

    async def units(scope):
        asked.append("units")
        return 2

    def is_staff(scope):
        asked.append("is_staff")
        return b"staff" in scope["query_string"]

    upload = {"path": "/upload", "rules": "upload", "key": "user", "cost": "app:units", "without_identity": "refuse"}
    routes = [LOGIN, {**upload, "exempt": {"app": ["is_staff"]}}]
    policy = MemoryPolicy(document(*routes, rules={"login": "2/m", "upload": "5/m"}))
    app = application(
        policy,
        Route("/login", hello),
        Route("/upload", hello),
        user=user,
        values={"units": units},
        answers={"is_staff": is_staff},
    )
    http = client(app)
    assert http.get("/login").status_code == 200
    assert asked == []
    assert http.get("/upload").headers["x-ratelimit-remaining"] == "3"
    assert asked == ["user", "units", "is_staff"]
    assert [http.get("/upload").status_code for _ in range(2)] == [200, 429]
    assert "ratelimit" not in http.get("/upload?staff").headers
    assert not caplog.records


def test_what_is_missing_is_told_of_at_start_and_a_cost_is_an_error(caplog):
    route = {"path": "/login", "rules": "login", "key": "user", "cost": "app:units", "without_identity": "skip"}
    http = client(application(MemoryPolicy(document(route)), user=lambda scope: "alice"))
    answer = http.get("/login")
    assert (answer.status_code, answer.content) == (500, b"")
    assert {record.name for record in caplog.records} >= {"tidegate.asgi"}
    assert "values['units']" in caplog.text
    assert "could not be judged" in caplog.text
    assert "alice" not in caplog.text
    with pytest.raises(TypeError, match="user is to be a callable"):
        RateLimitMiddleware(http.app, document(), user="alice")


@pytest.mark.parametrize("cost", [0, -1, 2**70, "many", 10_000_001, "\ud800"])
def test_a_cost_that_is_none_is_an_error(cost, caplog):
    route = {**LOGIN, "cost": "app:units"}
    http = client(application(MemoryPolicy(document(route)), values={"units": lambda scope: cost}))
    assert http.get("/login").status_code == 500
    assert "could not be judged" in caplog.text


def test_statuses_give_back_and_errors_do():
    once = {**LOGIN, "rules": "once"}
    policy = MemoryPolicy(document(once, rules={"once": "1/m"}))
    http = client(application(policy, Route("/login", fail)))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="own"):
            http.get("/login")

    async def unavailable(request):
        return PlainTextResponse("", 503)

    http = client(application(policy, Route("/login", unavailable)))
    assert [http.get("/login").status_code for _ in range(3)] == [503] * 3
    http = client(application(policy))
    assert [http.get("/login").status_code for _ in range(2)] == [200, 429]


def test_the_applications_own_headers_stand_and_stacked_rules_are_charged_once():
    async def own(request):
        return PlainTextResponse(request.state.ratelimit.outcome, headers={"X-RateLimit-Limit": "mine"})

    outer = MemoryPolicy(document(rules={"login": "2/m"}))
    inner = outer.beside(document({**LOGIN, "rules": ["login", "more"]}, rules={"login": "2/m", "more": "9/m"}))
    http = client(RateLimitMiddleware(application(inner, Route("/login", own)), outer))
    answer = http.get("/login")
    assert answer.text == "allowed"
    assert answer.headers.get_list("x-ratelimit-limit") == ["mine"]
    assert answer.headers.get_list("ratelimit") == ['"login";r=1;t=60, "more";r=8;t=60']
    assert [http.get("/login").status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("path", ["/login", "/log%69n", "/LOGIN", "/login/", "//login", "/%6Cogin?x=1", "/%2Flogin"])
def test_no_spelling_walks_past_a_limit(path):
    app = application(MemoryPolicy(document({**LOGIN, "rules": "none"}, rules={"none": "0/m"})))
    assert client(app).get("http://testserver" + path).status_code == 429


@pytest.mark.parametrize("path", ["/a/login", "/a%2Flogin", "/base/a/login", "/%62ase/a/login", "/base%2Fa%2Flogin"])
def test_what_the_router_takes_for_a_path_the_limit_does(path):
    root = "/base" if "ase" in path else ""
    routes = [Mount("/a", routes=[Route("/login", hello)])]
    assert client(Starlette(routes=routes), root_path=root).get(path).status_code == 200
    nothing = document({**LOGIN, "path": "/a/login", "rules": "none"}, rules={"none": "0/m"})
    assert client(application(MemoryPolicy(nothing), *routes), root_path=root).get(path).status_code == 429


def test_a_mounted_application_has_the_paths_of_the_whole():
    inner = application(MemoryPolicy(document({**LOGIN, "path": "/sub/login"})), Route("/login", hello))
    for root in ("", "/base"):
        http = client(Starlette(routes=[Mount("/sub", inner)]), root_path=root)
        assert "ratelimit" in http.get(root + "/sub/login").headers


def test_peers():
    assert peer_of({"client": ("203.0.113.7", 1)}) == "203.0.113.7"
    assert peer_of({"client": None, "server": ("/run/app.sock", None)}) == "unix"
    assert peer_of({"client": None, "server": ("127.0.0.1", 80)}) is None
    assert peer_of({}) is None


@pytest.mark.parametrize(
    "path", ["", "*", "/\ud800", "/\x00", "/ü", "/%", "/?", "/\udcff/\U0001f600", "/" + "x" * 70_000]
)
def test_strange_paths_and_identities_are_judged(path):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    default = {"rules": "login", "key": ["user", "header:x-key"], "without_identity": "skip"}
    middleware = RateLimitMiddleware(
        app, MemoryPolicy(document(http={"default": default})), user=lambda scope: "\ud800" + scope["path"]
    )
    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"x-key", b"\xff\xfe"), (b"X-Key\xff", b"")]
    scope = {"type": "http", "method": "G\u00c9T", "path": path, "headers": headers, "client": ("nobody", 0)}
    for _ in range(3):
        asyncio.run(middleware({**scope}, None, send))
    assert [message["status"] for message in sent if "status" in message] == [200, 200, 429]
    assert path_of(scope).isascii()


def test_h1_a_forged_header_changes_nothing():
    app = application(MemoryPolicy(document()))
    answers = [client(app).get("/login", headers={"X-Forwarded-For": f"198.51.100.{n}"}) for n in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    app = application(MemoryPolicy(document(http={"trusted_proxies": ["10.0.0.0/8"]})))
    answers = [
        client(app, "10.0.0.1").get("/login", headers={"X-Forwarded-For": f"198.51.100.{n}, 203.0.113.7"})
        for n in range(3)
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 429]


def without_denials(app):
    async def server(scope, receive, send):
        await app({**scope, "extensions": None}, receive, send)

    return server


def test_handshakes_of_websockets():
    async def chat(websocket):
        await websocket.accept()
        await websocket.send_text(websocket.state.ratelimit.outcome)
        await websocket.close()

    app = application(MemoryPolicy(document()), WebSocketRoute("/login", chat))
    http = client(app)
    for _ in range(2):
        with http.websocket_connect("/login") as websocket:
            assert websocket.receive_text() == "allowed"
            assert b"ratelimit" in dict(websocket.extra_headers)
    with pytest.raises(WebSocketDenialResponse) as refused, http.websocket_connect("/login"):
        pass
    assert refused.value.status_code == 429
    assert refused.value.headers["retry-after"] == "60"
    assert refused.value.json()["status"] == 429

    http = client(without_denials(app))
    with pytest.raises(WebSocketDisconnect) as refused, http.websocket_connect("/login"):
        pass
    assert refused.value.code == 1008


def fast(policy, **options):
    app = fastapi.FastAPI(**options)
    limited = fastapi.Depends(RateLimit("login", policy))

    @app.post("/sign-in", dependencies=[limited])
    async def sign_in():
        return {"in": True}

    @app.post("/fails")
    async def fails(admission=limited):
        return JSONResponse({"outcome": admission.outcome}, 503)

    @app.websocket("/chat")
    async def chat(websocket: fastapi.WebSocket, admission=limited):
        await websocket.accept()
        await websocket.close()

    return app


def test_a_dependency_of_fastapi():
    http = client(fast(MemoryPolicy(document())))
    first = http.post("/sign-in")
    assert first.json() == {"in": True}
    assert first.headers["ratelimit"] == '"login";r=1;t=60'
    assert first.headers["content-type"] == "application/json"
    with http.websocket_connect("/chat"):
        pass
    refused = http.post("/sign-in", headers={"Accept": "text/plain"})
    assert refused.status_code == 429
    assert refused.text == "Too many requests. Try again in 60 seconds.\n"
    assert refused.headers.get_list("content-type") == ["text/plain; charset=utf-8"]
    assert refused.headers["retry-after"] == "60"
    problem = http.post("/sign-in")
    assert problem.headers.get_list("content-type") == ["application/problem+json"]
    assert problem.json()["violated-policies"] == ["login"]
    with pytest.raises(WebSocketDenialResponse) as denied, http.websocket_connect("/chat"):
        pass
    assert denied.value.status_code == 429
    http = client(without_denials(http.app))
    with pytest.raises(WebSocketDisconnect) as closed, http.websocket_connect("/chat"):
        pass
    assert closed.value.code == 1008
    with pytest.raises(InvalidRequest, match="nope"):
        RateLimit("nope", document())


def test_a_dependency_beside_the_middleware_is_settled_and_told_by_it():
    policy = MemoryPolicy(document())
    app = fast(policy)
    app.add_middleware(RateLimitMiddleware, policy=policy)
    http = client(app)
    for _ in range(5):
        answer = http.post("/fails")
        assert answer.json() == {"outcome": "allowed"}
        assert answer.headers["ratelimit"] == '"login";r=1;t=60'
    assert [http.post("/sign-in").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("handled", [RateLimited, 429])
def test_an_application_may_render_refusals_itself(handled):
    app = fast(MemoryPolicy(document()))

    @app.exception_handler(handled)
    async def own(request, error):
        return JSONResponse({"slow down": error.admission.route}, error.status_code, error.headers)

    http = client(app)
    answers = [http.post("/sign-in") for _ in range(3)]
    assert answers[-1].status_code == 429
    assert answers[-1].json() == {"slow down": "login"}
    assert answers[-1].headers["retry-after"] == "60"


def test_the_page_is_true(tmp_path, monkeypatch):
    page = (ROOT / "docs/asgi.md").read_text()
    (tmp_path / "tidegate.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    names = {}
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(snippet, "docs/asgi.md", "exec"), names)
    http = client(names["app"])
    assert http.post("/login").json() == "allowed"
    assert http.post("/sign-in").json() == {"in": True}
    assert [http.post("/login").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert http.post("/sign-in").status_code == 429
    assert http.get("/api/").status_code == 403
    assert names["user"]({"state": {"user": "alice"}}) == "alice"


SERVICE = """
import contextlib
import os
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tidegate.asgi import RateLimitMiddleware

async def hello(request):
    if "slow" in request.query_params:
        with contextlib.suppress(ClientDisconnect):
            await request.body()
    return PlainTextResponse(request.state.ratelimit.decisions[0].origin)

app = Starlette(routes=[Route("/login", hello, methods=["GET", "POST"])])
app.add_middleware(RateLimitMiddleware, policy={
    "version": 1,
    "store": {"url": os.environ["URL"], "prefix": os.environ["PREFIX"], "deadline": "20s"},
    "rules": {"login": {"limits": "150/h", "on_error": "deny"}},
    "routes": [{"path": "/login", "rules": "login", "key": "ip"}],
    "http": {"trusted_proxies": ["unix"]},
})
"""


class Uvicorn:
    def __init__(self, folder, url, prefix, listen="--port=0"):
        (folder / "service.py").write_text(SERVICE)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", listen, "--no-proxy-headers", "--no-access-log", "service:app"],
            cwd=folder,
            env={**os.environ, "URL": url, "PREFIX": prefix},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = []
        lines = iter(self.process.stderr.readline, "")
        found = next(found for line in lines if (found := re.search(r"running on (unix|http://\S+:(\d+))", line)))
        self.port = int(found[2] or 0)
        self.reader = threading.Thread(target=lambda: self.log.extend(lines))
        self.reader.start()

    def end(self):
        self.process.terminate()
        assert self.process.wait(60) in (0, -15)
        self.reader.join()
        self.process.stderr.close()
        assert "Traceback" not in "".join(self.log)


@pytest.fixture
def services(redis, prefix, tmp_path):
    started = []
    try:
        for _ in range(2):
            started.append(Uvicorn(tmp_path, redis.url, prefix))
        yield started
    finally:
        for service in started:
            service.end()


def test_two_servers_admit_exactly_the_limit_together(services):
    async def ask():
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=32)) as http:
            urls = [f"http://127.0.0.1:{services[n % 2].port}/login" for n in range(400)]
            forged = [{"X-Forwarded-For": f"198.51.100.{n % 200}"} for n in range(400)]
            return await asyncio.gather(*(http.get(url, headers=one) for url, one in zip(urls, forged)))

    answers = asyncio.run(ask())
    assert sum(answer.status_code == 200 for answer in answers) == 150
    assert sum(answer.status_code == 429 for answer in answers) == 250
    assert {answer.text for answer in answers if answer.status_code == 200} == {"store"}


def test_a_proxy_on_a_unix_socket_is_believed_if_the_document_says_so(redis, prefix, tmp_path):
    service = Uvicorn(tmp_path, redis.url, prefix, f"--uds={tmp_path}/socket")
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=f"{tmp_path}/socket"), timeout=60) as http:
            addresses = ["203.0.113.7", "203.0.113.7", "203.0.113.8"]
            answers = [http.get("http://a/login", headers={"X-Forwarded-For": address}) for address in addresses]
    finally:
        service.end()
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["149", "148", "149"]


def test_clients_that_go_away_do_no_harm(services):
    port = services[0].port
    for n in range(50):
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(b"POST /login?slow HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n" + b"x" * (n % 3))
    codes = [httpx.get(f"http://127.0.0.1:{port}/login").status_code for _ in range(151)]
    assert 100 <= codes.count(200) <= 150
    assert codes[-1] == 429


def test_a_store_that_is_gone_is_503_where_the_document_denies(own_redis):
    own_redis.do("kill")
    rules = {"login": {"limits": "2/m", "on_error": "deny"}}
    app = application(Policy(document(rules=rules, store={"url": own_redis.url})))
    answer = client(app).get("/login")
    own_redis.do("restart")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 503


def test_p2_a_hung_server_does_not_stop_the_loop(own_redis):
    rules = {"login": {"limits": "100000/s", "on_error": "allow"}}
    policy = Policy(document(rules=rules, store={"url": own_redis.url, "deadline": "500ms"}))
    transport = httpx.ASGITransport(application(policy), client=("203.0.113.7", 1))

    async def check():
        gaps, stop = [], False
        await asyncio.get_running_loop().run_in_executor(None, policy.ready)

        async def tick():
            last = time.perf_counter()
            while not stop:
                await asyncio.sleep(0.001)
                last, before = time.perf_counter(), last
                gaps.append(last - before)

        async def load():
            while not stop:
                assert (await http.get("/login")).status_code == 200
                await asyncio.sleep(0.01)

        async with httpx.AsyncClient(transport=transport, base_url="http://a") as http:
            tasks = [asyncio.create_task(tick()), *(asyncio.create_task(load()) for _ in range(4))]
            await asyncio.sleep(0.3)
            gaps.clear()
            with Pauses() as machine:
                await asyncio.get_running_loop().run_in_executor(None, own_redis.do, "pause")
                await asyncio.sleep(1)
                largest = max(gaps)
            await asyncio.get_running_loop().run_in_executor(None, own_redis.do, "resume")
            stop = True
            await asyncio.gather(*tasks)
        assert len(gaps) > 20
        assert largest < 0.1 + machine.longest

    asyncio.run(check())

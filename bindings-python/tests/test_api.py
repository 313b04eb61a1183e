"""What crosses the border, and how it looks there."""

import pickle
import threading
from itertools import zip_longest

import pytest
import tidegate
from tidegate import AsyncLimiter, Limiter, _tidegate
from tidegate.testing import MemoryLimiter

RULES = {"login": "2/m", "api": ["5/s burst 9", {"limit": 100, "window": "1h", "name": "hourly"}]}


def test_a_decision_says_how_things_stand():
    limiter = MemoryLimiter(RULES)
    first, _, refused = (limiter.check("login", "alice") for _ in range(3))
    assert first
    assert first.allowed
    assert (first.limit, first.remaining, first.retry_after, first.origin) == (2, 1, None, "store")
    assert not refused
    assert not refused.allowed
    assert (refused.retry_after, refused.retry_after_ms) == (60.0, 60_000)
    assert (refused.reset_after, refused.reset_after_ms) == (60.0, 60_000)
    assert refused.failure is None
    assert not refused.repeat
    assert repr(refused) == "<Decision refused by store: login, 0 remaining, limit 2, retry after 60 s>"


def test_milliseconds_are_rounded_up_and_seconds_are_the_same():
    limiter = MemoryLimiter({"a": "3/s token_bucket"})
    refused = [limiter.check("a", "x") for _ in range(4)][-1]
    assert (refused.retry_after_ms, refused.retry_after) == (334, 0.334)


def test_each_limit_has_its_own_figures():
    decision = MemoryLimiter(RULES).check("api", "alice")
    bucket, hourly = decision.limits
    assert (bucket.algorithm, bucket.limit, bucket.burst, bucket.window, bucket.remaining) == (
        "token_bucket",
        5,
        9,
        1,
        8,
    )
    assert (hourly.name, hourly.window_ms, hourly.remaining, hourly.precision_ms) == ("hourly", 3_600_000, 99, None)
    assert decision.binding == bucket
    assert bucket.rule == "api"
    assert bucket.enforced
    assert bucket.allowed


def test_nothing_of_a_decision_can_be_changed():
    decision = MemoryLimiter(RULES).check("login", "alice")
    for thing, name in [(decision, "allowed"), (decision, "new"), (decision.binding, "limit"), (decision.receipt, "x")]:
        with pytest.raises(AttributeError):
            setattr(thing, name, 1)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_what_is_pickled_comes_back_the_same(protocol):
    limiter = MemoryLimiter(RULES)
    for decision in [limiter.check_all(["login", "api"], "alice", cost=2), limiter.check("login", "alice")]:
        again = pickle.loads(pickle.dumps(decision, protocol))
        assert again == decision
        assert repr(again) == repr(decision)
        assert (again.limits, again.binding, again.receipt) == (decision.limits, decision.binding, decision.receipt)
        assert pickle.loads(pickle.dumps(again, protocol)) == decision
        limit = decision.limits[0]
        assert pickle.loads(pickle.dumps(limit, protocol)) == limit


def test_a_failure_is_the_exception_that_others_raise():
    limiter = Limiter({"login": "2/m"}, url="redis://127.0.0.1:1", deadline=0.05)
    decision = limiter.check("login", "alice")
    assert decision.allowed
    assert decision.origin == "open"
    assert decision.remaining == 0
    assert decision.reset_after is None
    assert isinstance(decision.failure, (tidegate.StoreUnavailable, tidegate.Timeout))
    again = pickle.loads(pickle.dumps(decision))
    assert again == decision
    assert type(again.failure) is type(decision.failure)
    assert str(again.failure) == str(decision.failure)
    with pytest.raises(tidegate.TidegateError):
        limiter.reset("login", "alice")


def test_receipts_are_text_bytes_and_can_be_kept():
    limiter = MemoryLimiter(RULES)
    receipt = limiter.check("api", ("tenant", b"alice")).receipt
    for kept in [tidegate.Receipt(str(receipt)), tidegate.Receipt(bytes(receipt)), pickle.loads(pickle.dumps(receipt))]:
        assert kept == receipt
        assert hash(kept) == hash(receipt)
    assert receipt.charged_at == (1_893_456_000_000_000,) * 2
    assert not receipt.is_empty
    assert limiter.refund(tidegate.Receipt(str(receipt)))
    with pytest.raises(tidegate.InvalidReceipt, match="refund each once"):
        limiter.refund(receipt)
    with pytest.raises(tidegate.InvalidReceipt):
        tidegate.Receipt("not one of ours")


def test_a_decision_is_refunded_as_its_receipt_is():
    limiter = MemoryLimiter(RULES)
    assert limiter.refund(limiter.check("login", "alice"))
    assert limiter.peek("login", "alice").remaining == 2
    limiter.check("login", "alice", cost=2)
    assert not limiter.refund(limiter.check("login", "alice"))


def test_calls_take_what_the_core_takes():
    limiter = MemoryLimiter({"export": "10/h sliding_window_log", "login": "2/m"})
    assert limiter.check("export", "alice", cost=4, request_id="job 17").remaining == 6
    again = limiter.check("export", "alice", cost=4, request_id=b"job 17", deadline=1)
    assert again.repeat
    assert again.remaining == 6
    assert limiter.check("login", "alice", limits="100/m").remaining == 99
    limiter.reset("login", "alice", limits="100/m")
    assert limiter.peek("login", "alice", limits="100/m").remaining == 100
    assert limiter.peek_all(("login", "export"), "alice").remaining == 2
    limiter.ready()
    assert limiter.rules == ["export", "login"]


def test_keys_of_parts_stay_apart():
    limiter = MemoryLimiter({"login": "1/m"})
    assert all(limiter.check("login", key) for key in ["a", ("a", "b"), ("a,b",), ("a", b"b", "c"), b"\xff", "ü"])
    assert not limiter.check("login", b"\xc3\xbc"), "text is UTF-8"
    assert not limiter.check("login", ("a", b"b"))


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (lambda it: it.check("nope", "a"), tidegate.UnknownRule, "the rules are: api, login"),
        (lambda it: it.check("login", ""), tidegate.InvalidRequest, "the key is empty"),
        (lambda it: it.check("login", "\ud800"), tidegate.InvalidRequest, "lone surrogate"),
        (lambda it: it.check("login", ("a", "\ud800")), tidegate.InvalidRequest, "lone surrogate"),
        (lambda it: it.check("login", 5), TypeError, r"pass str\(...\)"),
        (lambda it: it.check("login", None), TypeError, "neither str nor bytes"),
        (lambda it: it.check("login", "a", cost=0), tidegate.InvalidRequest, "cost"),
        (lambda it: it.check("login", "a", cost=-1), tidegate.InvalidRequest, "cost -1"),
        (lambda it: it.check("login", "a", cost=2**70), tidegate.InvalidRequest, "cost"),
        (lambda it: it.check("login", "a", cost=1.5), tidegate.InvalidRequest, "cost 1.5"),
        (lambda it: it.check("login", "a", deadline=-1), tidegate.InvalidRequest, "seconds"),
        (lambda it: it.check("login", "a", deadline=float("nan")), tidegate.InvalidRequest, "seconds"),
        (lambda it: it.check("login", "a", deadline=0), tidegate.InvalidRequest, "1 ms to 60 s"),
        (lambda it: it.check("login", "a", request_id="1"), tidegate.InvalidRequest, "log"),
        (lambda it: it.check("login", "a", limits="5/x"), tidegate.InvalidRule, "no unit"),
        (lambda it: it.check_all(["login", "login"], "a"), tidegate.InvalidRequest, "twice"),
        (lambda it: pickle.dumps(it), TypeError, "make one in each process"),
        (lambda it: it.refund("text"), TypeError, "Receipt"),
    ],
)
def test_what_cannot_be_meant_says_what_to_write(call, kind, match):
    with pytest.raises(kind, match=match) as raised:
        call(MemoryLimiter(RULES))
    if issubclass(kind, tidegate.TidegateError):
        assert raised.value.code in _tidegate.ERROR_CODES


def test_there_is_a_class_for_each_kind_of_error():
    classes = {code: getattr(tidegate, "".join(map(str.title, code.split("_")))) for code in _tidegate.ERROR_CODES}
    for code, kind in classes.items():
        assert (kind.code, kind.__module__, kind.__bases__) == (code, "tidegate", (tidegate.TidegateError,))
        assert kind.__name__ in tidegate.__all__, f"write {kind.__name__} into tidegate/__init__.py and _tidegate.pyi"
    assert pickle.loads(pickle.dumps(classes["timeout"]("late"))).code == "timeout"


def test_documents_come_as_dicts_text_and_files(tmp_path):
    text = 'version = 1\n[rules]\nlogin = "2/m"\n'
    path = tmp_path / "rules.toml"
    path.write_text(text)
    made = [
        Limiter.from_document({"version": 1, "rules": {"login": "2/m"}}),
        Limiter.from_document(text, "toml"),
        Limiter.from_document("version: 1\nrules: {login: 2/m}", format="yaml"),
        Limiter.from_document('{"version": 1, "rules": {"login": "2/m"}}', "json"),
        Limiter.from_document(path),
        Limiter.from_document(str(path)),
        Limiter(document=path),
        AsyncLimiter.from_document(path),
        AsyncLimiter(document=path),
    ]
    assert [limiter.rules for limiter in made] == [["login"]] * len(made)
    with pytest.raises(tidegate.InvalidDocument, match="cannot be read"):
        Limiter.from_document(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="'toml', 'yaml' or 'json'"):
        Limiter.from_document(text, "ini")
    with pytest.raises(TypeError, match="the document says everything"):
        Limiter({"login": "2/m"}, document=path)
    with pytest.raises(tidegate.InvalidDocument, match="nope"):
        Limiter.from_document({"version": 1, "nope": 1})


def test_a_url_from_the_environment_comes_before_all_others(monkeypatch):
    monkeypatch.setenv("TIDEGATE_URL", "redis://127.0.0.1:1")
    for limiter in [Limiter({"a": "5/m"}), Limiter({"a": "5/m"}, url="redis://127.0.0.1:2")]:
        assert limiter.check("a", "x", deadline=0.05).origin == "open"
        with pytest.raises(tidegate.TidegateError, match=r"127\.0\.0\.1:1\b"):
            limiter.ready(0.5)
    assert MemoryLimiter({"a": "5/m"}).check("a", "x").origin == "store", "but tests stay in memory"


def test_no_password_is_shown():
    with pytest.raises(tidegate.InvalidDocument) as raised:
        Limiter({"a": "5/m"}, url="http://user:hunter2@host")
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(Limiter({"a": "5/m"}, url="redis://:hunter2@127.0.0.1:1"))


def test_a_limiter_is_closed_once_and_for_all():
    with Limiter(RULES) as limiter:
        limiter.check("login", "alice")
    limiter.close()
    with pytest.raises(RuntimeError, match="make another"):
        limiter.check("login", "alice")


def test_what_was_counted_is_told():
    limiter = MemoryLimiter({"login": "1/m"})
    limiter.check("login", "alice")
    limiter.check("login", "alice")
    with pytest.raises(tidegate.InvalidRequest):
        limiter.check("login", "")
    metrics = limiter.metrics()
    assert [(row["rule"], row["origin"], row["allowed"], row["count"]) for row in metrics["decisions"]] == [
        ("login", "store", True, 1),
        ("login", "store", False, 1),
    ]
    assert [row["kind"] for row in metrics["errors"]] == _tidegate.ERROR_CODES
    assert {row["kind"]: row["count"] for row in metrics["errors"]}["invalid_request"] == 1
    assert metrics["keys"] == 1
    assert 'tidegate_decisions_total{rule="login",origin="store",outcome="refused"} 1' in limiter.prometheus()


def test_what_the_core_logs_comes_to_logging(caplog):
    Limiter({"login": "5/m"}, url="redis://127.0.0.1:1")
    [record] = caplog.records
    assert record.name.startswith("tidegate.")
    assert record.levelname == "WARNING"
    assert "requests pass under login" in record.getMessage()


def test_what_the_io_thread_logs_is_told_by_the_next_call(caplog):
    limiter = Limiter({"login": "5/m"}, url="redis://127.0.0.1:1", deadline=0.05)
    for _ in range(20):
        limiter.check("login", "alice")
    told = [record for record in caplog.records if "is left alone" in record.getMessage()]
    assert told
    assert all(record.threadName == threading.current_thread().name for record in told)


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_threads_admit_exactly_the_limit(store, redis, prefix):
    limiter = Limiter({"a": "100/h"}, url=redis.url if store == "redis" else None, prefix=prefix, deadline=20)
    admitted = []

    def check():
        admitted.extend(limiter.check("a", "x").allowed for _ in range(30))

    threads = [threading.Thread(target=check) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), sum(admitted)) == (480, 100)


def test_both_faces_have_the_same_names_and_arguments():
    import inspect

    for name in ["check", "check_all", "peek", "peek_all", "acquire", "refund", "reset", "ready", "metrics", "close"]:
        here, there = (inspect.signature(getattr(kind, name)) for kind in (Limiter, AsyncLimiter))
        for one, other in zip_longest(here.parameters.values(), there.parameters.values()):
            assert (one.name, one.default) == (other.name, other.default), name


def test_another_interpreter_in_the_process_is_refused_clearly():
    interpreters = pytest.importorskip("_xxsubinterpreters")
    other = interpreters.create()
    try:
        with pytest.raises(interpreters.RunFailedError, match="subinterpreters"):
            interpreters.run_string(other, "import tidegate")
    finally:
        interpreters.destroy(other)

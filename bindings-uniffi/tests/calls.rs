//! The three ways to the same calls, in Rust: what blocks, what is awaited, and many at once.

use std::sync::Arc;

use futures_executor::block_on;
use futures_util::FutureExt as _;
use tidegate_tests::servers::{Server, shared_server};
use tidegate_uniffi::{
    AdmissionOutcome, Answer, Ask, Call, Decision, HeaderLine, Key, Limiter, NamedRule, Options, Origin, Policy, Queue,
    Source, TidegateError, Told,
};

fn source(limits: &str) -> Source {
    Source::Rules { rules: vec![NamedRule { name: "r".into(), limits: limits.into() }], url: None }
}

fn on_server(limits: &str, prefix: &str) -> Source {
    let url = shared_server().url();
    let text = format!(
        "version = 1\n[store]\nurl = \"{url}\"\nprefix = \"uniffi{prefix}\"\ndeadline = \"20s\"\n[rules]\nr = \"{limits}\""
    );
    Source::Toml { text }
}

fn key(name: &str) -> Key {
    Key::Whole { bytes: name.into() }
}

fn options(cost: i64) -> Options {
    Options { cost, limits: None, request_id: None, deadline_ms: None }
}

fn rules() -> Vec<String> {
    vec!["r".into()]
}

fn code<T>(result: Result<T, TidegateError>) -> Option<String> {
    result.err().and_then(|error| error.to_string().split_once(':').map(|(code, _)| code.to_owned()))
}

#[test]
fn calls_that_block_and_calls_that_are_awaited_say_the_same() -> Result<(), TidegateError> {
    for source in [source("5/h"), on_server("5/h", "same")] {
        let blocking = Limiter::new(source)?;
        let awaited = blocking.asynchronous();
        block_on(async {
            awaited.ready(20_000).await?;
            awaited.reset("r".into(), key("alice"), None).await?;
            let first = awaited.check(rules(), key("alice"), options(2)).await?;
            assert_eq!((first.allowed, first.remaining, first.origin), (true, 3, Origin::Store));
            // A millisecond may pass between the two.
            let same = |peeked: Decision| (peeked.allowed, peeked.remaining, peeked.limits.len(), peeked.origin);
            let peeked = blocking.peek(rules(), key("alice"), options(1))?;
            assert_eq!(same(peeked), same(awaited.peek(rules(), key("alice"), options(1)).await?));
            let refused = awaited.check(rules(), key("alice"), options(4)).await?;
            assert!(!refused.allowed && refused.receipt.is_empty() && refused.retry_after_ms > Some(3_590_000));
            assert!(awaited.refund(first.receipt.clone()).await?);
            assert_eq!(code(awaited.refund(first.receipt).await).as_deref(), Some("invalid_receipt"));
            assert!(!awaited.refund(String::new()).await?, "nothing was charged");
            let last = awaited.acquire("r".into(), key("alice"), options(5), 1_000).await?;
            assert_eq!((last.allowed, last.remaining), (true, 0));
            let late = awaited.acquire("r".into(), key("alice"), options(1), 10).await?;
            assert!(!late.allowed, "its turn is in an hour");
            awaited.reset("r".into(), key("alice"), None).await?;
            assert_eq!(blocking.check(rules(), key("alice"), options(5))?.remaining, 0);
            let counted = awaited.count("r".into(), key("bob"), 60_000, 3).await?;
            assert_eq!(counted.total, 3);
            assert_eq!(awaited.take_back("r".into(), key("bob"), 60_000, 2, counted.start).await?.total, 1);
            blocking.reset("r".into(), key("alice"), None)
        })?;
        blocking.close();
        assert_eq!(code(blocking.check(rules(), key("alice"), options(1))).as_deref(), Some("invalid_request"));
        assert_eq!(
            code(block_on(awaited.check(rules(), key("alice"), options(1)))).as_deref(),
            Some("invalid_request")
        );
    }
    Ok(())
}

#[test]
fn a_future_that_is_dropped_gives_back_what_it_charged() -> Result<(), TidegateError> {
    let limiter = Limiter::new(on_server("1000/h", "dropped"))?;
    limiter.reset("r".into(), key("alice"), None)?;
    let awaited = limiter.asynchronous();
    for _ in 0..200 {
        let mut check = Box::pin(awaited.check(rules(), key("alice"), options(1)));
        assert!((&mut check).now_or_never().is_none(), "it is on its way");
    }
    tidegate_tests::servers::eventually(std::time::Duration::from_secs(20), || {
        limiter.peek(rules(), key("alice"), options(1)).is_ok_and(|decision| decision.remaining == 1_000)
    });
    Ok(())
}

#[test]
fn an_acquire_waits_in_slices_and_can_be_called_off() -> Result<(), TidegateError> {
    let limiter = Limiter::new(source("1/h"))?;
    limiter.check(rules(), key("alice"), options(1))?;
    let acquiring = limiter.acquire("r".into(), key("alice"), options(1), 7_200_000)?;
    assert_eq!(acquiring.wait(10)?, None);
    limiter.reset("r".into(), key("alice"), None)?;
    assert_eq!(acquiring.call_off(), "", "nothing was decided");
    assert_eq!(code(acquiring.wait(10)).as_deref(), Some("invalid_request"));
    assert_eq!(limiter.peek(rules(), key("alice"), options(1))?.remaining, 1, "it charged nothing");

    let acquiring = limiter.acquire("r".into(), key("alice"), options(1), 1_000)?;
    let decision = acquiring.wait(1_000)?.expect("it is decided at once");
    assert_eq!(acquiring.call_off(), decision.receipt, "for a caller who did not come to know of it");
    assert!(limiter.refund(decision.receipt)?);
    assert_eq!(acquiring.call_off(), "");
    Ok(())
}

#[test]
fn a_queue_answers_every_ticket_once() -> Result<(), TidegateError> {
    const CALLS: i64 = 500;
    let (limiter, queue) = (Limiter::new(on_server("100/h", "queue"))?, Queue::new());
    limiter.reset("r".into(), key("alice"), None)?;
    let ask = |cost| Ask::Check { rules: rules(), key: key("alice"), options: options(cost) };
    let calls = (0..CALLS).map(|ticket| Call { ticket, ask: ask(1) }).collect();
    let mut completed = limiter.submit(&queue, calls);
    while completed.len() < 500 {
        let came = queue.wait(20_000)?;
        assert!(!came.is_empty(), "only {} have come", completed.len());
        completed.extend(came);
    }
    completed.sort_by_key(|done| done.ticket);
    assert!(completed.iter().map(|done| done.ticket).eq(0..CALLS));
    let decisions = completed.into_iter().map(|done| match done.answer {
        Answer::Decided { decision } => decision,
        other => panic!("{other:?}"),
    });
    let (allowed, refused): (Vec<_>, Vec<_>) = decisions.partition(|decision| decision.allowed);
    assert_eq!(allowed.len(), 100);
    for decision in refused {
        let may_repeat = decision.origin == Origin::Store;
        assert_eq!(decision.repeats_ms > 0 && decision.repeats_ms <= 1_000, may_repeat, "{decision:?}");
    }
    assert!(allowed.iter().all(|decision| decision.repeats_ms == 0));

    // What cannot be meant is answered, and so is what is asked of the wrong one.
    let mut failed = limiter.submit(&queue, vec![Call { ticket: 1, ask: ask(-1) }]);
    let admit = Ask::Admit { method: "GET".into(), path: "/".into(), told: Told::default(), asked: true };
    failed.extend(limiter.submit(&queue, vec![Call { ticket: 2, ask: admit }]));
    limiter.close();
    failed.extend(limiter.submit(&queue, vec![Call { ticket: 3, ask: ask(1) }]));
    for done in failed {
        assert!(
            matches!(done.answer, Answer::Failed { failure } if failure.code == "invalid_request"),
            "{}",
            done.ticket
        );
    }
    assert!(queue.wait(0)?.is_empty());
    Ok(())
}

#[test]
fn an_acquire_of_a_queue_is_called_off() -> Result<(), TidegateError> {
    let (limiter, queue) = (Limiter::new(source("1/h"))?, Queue::new());
    limiter.check(rules(), key("alice"), options(1))?;
    let ask = Ask::Acquire { rule: "r".into(), key: key("alice"), options: options(1), timeout_ms: 7_200_000 };
    assert!(limiter.submit(&queue, vec![Call { ticket: 7, ask }]).is_empty());
    queue.call_off(7);
    let came = queue.wait(20_000)?;
    assert!(
        matches!(&came[..], [done] if done.ticket == 7 && matches!(done.answer, Answer::Failed { .. })),
        "{came:?}"
    );
    Ok(())
}

const SITE: &str = r#"
version = 1
[rules]
login = "2/h"
[http]
trusted_proxies = ["10.0.0.0/8"]
[[routes]]
path = "/login"
rules = "login"
key = "ip"
refund_status = [500]
[[routes]]
path = "/me"
without_identity = "refuse"
rules = "login"
key = "user"
"#;

fn told(peer: &str) -> Told {
    Told { peer: Some(peer.into()), ..Told::default() }
}

#[test]
fn a_policy_admits_and_settles() -> Result<(), TidegateError> {
    let policy = Policy::new(Source::Toml { text: SITE.into() })?;
    let admit = |told| policy.admit("POST".into(), "/login".into(), told);
    let line = HeaderLine { name: "X-Forwarded-For".into(), value: b"203.0.113.7".to_vec() };
    let first = admit(Told { headers: vec![line.clone()], ..told("10.0.0.1") })?;
    assert_eq!((first.allowed, first.outcome, first.status), (true, AdmissionOutcome::Allowed, None));
    let by_proxy =
        policy.client_address("POST".into(), "/login".into(), Told { headers: vec![line], ..told("10.0.0.1") })?;
    assert_eq!(by_proxy.as_deref(), Some("203.0.113.7"));
    let second = block_on(policy.asynchronous().admit("POST".into(), "/login".into(), told("203.0.113.7")))?;
    let refused = admit(told("203.0.113.7"))?;
    assert_eq!((refused.allowed, refused.status), (false, Some(429)));
    assert!(
        refused.headers.iter().any(|header| header.name.eq_ignore_ascii_case("retry-after")) && refused.body.is_some()
    );
    assert!(!second.charge.settle_and_wait(200)?);
    assert!(second.may_refund && first.charge.settle_and_wait(500)?, "its status gives it back");
    assert!(admit(told("203.0.113.7"))?.allowed);
    assert_eq!(refused.charge.decisions().len(), 1);
    assert_eq!(code(first.charge.settle(70_000)).as_deref(), Some("invalid_request"));
    Ok(())
}

#[test]
fn a_request_that_needs_the_application_says_what() -> Result<(), TidegateError> {
    let (policy, queue) = (Policy::new(Source::Toml { text: SITE.into() })?, Queue::new());
    let submit = |ticket, path: &str, told, asked| {
        let ask = Ask::Admit { method: "GET".into(), path: path.into(), told, asked };
        policy.submit(&queue, vec![Call { ticket, ask }]).pop().expect("memory answers at once").answer
    };
    let Answer::Needing { needs } = submit(1, "/me", told("203.0.113.7"), false) else { panic!("it needs the user") };
    assert!(needs.user && needs.route.is_some());
    let known = Told { user: Some(b"alice".to_vec()), ..told("203.0.113.7") };
    for (asked, allowed) in [(known.clone(), true), (known.clone(), true), (known, false)] {
        let Answer::Admitted { admission } = submit(2, "/me", asked, true) else { panic!("it is known") };
        assert_eq!(admission.allowed, allowed);
    }
    let Answer::Admitted { admission } = submit(3, "/login", told("203.0.113.7"), false) else {
        panic!("it needs nobody")
    };
    assert!(admission.allowed);
    Ok(())
}

#[test]
fn a_server_that_hangs_is_answered_for_by_the_deadline() -> Result<(), TidegateError> {
    let server = Server::start();
    let text = format!("version = 1\n[store]\nurl = \"{}\"\ndeadline = \"100ms\"\n[rules]\nr = \"5/h\"", server.url());
    let limiter = Limiter::new(Source::Toml { text })?;
    limiter.ready(20_000)?;
    server.pause();
    let queue = Queue::new();
    let ask = Ask::Check { rules: rules(), key: key("alice"), options: options(1) };
    assert!(limiter.submit(&queue, vec![Call { ticket: 1, ask }]).is_empty());
    let came = queue.wait(20_000)?;
    server.resume();
    let [done] = &came[..] else { panic!("{came:?}") };
    let Answer::Decided { decision } = &done.answer else { panic!("{done:?}") };
    assert_eq!((decision.allowed, decision.origin), (true, Origin::Open));
    assert_eq!(decision.failure.as_ref().map(|failure| failure.code.as_str()), Some("timeout"));
    Ok(())
}

#[test]
fn a_number_stands_where_it_says_while_the_limiter_is_there() -> Result<(), TidegateError> {
    let limiter: Arc<Limiter> = Limiter::new(on_server("1/h", "number"))?;
    assert_ne!(limiter.refusals_ended(), 0);
    assert_eq!(Limiter::new(source("1/h"))?.refusals_ended(), 0, "memory remembers nothing");
    limiter.repeated(rules(), 3)?;
    assert!(limiter.metrics()?.contains("\"deny_cache_hits\":3"), "{}", limiter.metrics()?);
    assert_eq!(code(limiter.repeated(vec!["nobody".into()], 1)).as_deref(), Some("unknown_rule"));
    Ok(())
}

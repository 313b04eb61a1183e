//! What a process remembers of refusals: lossless as far as one process can know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::{Builder, Limiter, Origin};
use tidegate_tests::limiters::{Sure as _, build, drain};
use tidegate_tests::servers::{Server, eventually, shared_server};

const SOON: Duration = Duration::from_secs(20);

fn builder(prefix: &str) -> Builder {
    Limiter::builder().url(&shared_server().url()).prefix(format!("deny{prefix}")).deadline(SOON)
}

/// Who refuses a check; nothing where it is allowed.
fn refused_by(limiter: &Limiter, rule: &str, cost: u64) -> Option<Origin> {
    let decision = limiter.check(rule, "k").cost(cost).sure();
    (!decision.allowed()).then(|| decision.origin())
}

#[test]
fn a_refusal_is_remembered_and_counts_down() {
    let limiter = build(builder("down").deny_cache_max(Duration::from_secs(60)), &[("r", "5/h")]);
    assert_eq!(drain(&limiter, "r", "k", 5), 5);
    let first = limiter.check("r", "k").sure();
    assert_eq!((first.allowed(), first.origin()), (false, Origin::Store));
    for hit in 1..=100 {
        let again = limiter.check("r", "k").sure();
        assert_eq!((again.allowed(), again.origin(), again.remaining()), (false, Origin::DenyCache, 0));
        assert!(again.retry_after() <= first.retry_after() && again.retry_after() > Some(Duration::from_secs(3_000)));
        assert!(again.reset_after() <= first.reset_after() && again.receipt().is_empty());
        assert_eq!(limiter.metrics().deny_cache_hits, hit);
    }
    let sooner = first.retry_after().map(|wait| wait.saturating_sub(Duration::from_millis(20)));
    eventually(SOON, || {
        let later = limiter.check("r", "k").sure();
        later.origin() == Origin::DenyCache && later.retry_after() <= sooner
    });
    assert_eq!(limiter.peek("r", "k").sure().origin(), Origin::Store, "a peek asks");
}

#[test]
fn what_a_peek_was_refused_a_check_is_refused_from_memory() {
    let server = Server::start();
    let builder = Limiter::builder().url(&server.url()).deadline(SOON).deny_cache_max(Duration::from_secs(60));
    let limiter = build(builder, &[("r", "5/h"), ("other", "9/h"), ("log", "1/h sliding_window_log")]);
    let asked = || server.info("cmdstat_evalsha").expect("it was asked");
    let peek = || limiter.peek("r", "k").cost(3).sure();
    assert!(peek().allowed() && limiter.check("r", "k").cost(3).remembered_refusal().is_none(), "it might pass");
    let receipt = limiter.check("r", "k").cost(3).sure().receipt();
    let first = peek();
    assert_eq!((first.allowed(), first.origin()), (false, Origin::Store));
    assert_eq!([(); 2].map(|()| peek().origin()), [Origin::Store; 2], "a peek asks, whatever is remembered");
    assert!(limiter.peek("r", "k").cost(3).remembered_refusal().is_none());

    let before = asked();
    let calls =
        [limiter.check("r", "k").cost(3).sure(), limiter.check("r", "k").cost(3).remembered_refusal().expect("known")];
    for decision in &calls {
        assert_eq!((decision.allowed(), decision.origin(), decision.remaining()), (false, Origin::DenyCache, 2));
        assert!(
            decision.retry_after() <= first.retry_after() && decision.retry_after() > Some(Duration::from_secs(3_000))
        );
        assert!(decision.receipt().is_empty());
    }
    assert_eq!(asked(), before, "the server is not asked");
    let metrics = limiter.metrics();
    let row = metrics.decisions.iter().find(|row| row.rule == "r" && row.origin == Origin::DenyCache);
    assert_eq!((metrics.deny_cache_hits, row.map(|row| row.count)), (2, Some(2)));

    assert!(limiter.check("r", "k").cost(2).remembered_refusal().is_none(), "another cost");
    assert!(limiter.check("other", "k").cost(3).remembered_refusal().is_none(), "another rule");
    assert!(limiter.check("r", "other").cost(3).remembered_refusal().is_none(), "another key");
    assert!(limiter.check("r", "k").cost(3).limits("9/h").remembered_refusal().is_none(), "other limits");
    assert!(
        limiter.check("nobody", "k").remembered_refusal().is_none()
            && limiter.check("r", "").remembered_refusal().is_none()
    );

    assert!(limiter.refund(&receipt).wait().expect("it is fresh"));
    assert!(limiter.check("r", "k").cost(3).remembered_refusal().is_none(), "a refund drops it");
    assert_eq!(refused_by(&limiter, "r", 5), None);
    assert!(!peek().allowed() && limiter.check("r", "k").cost(3).remembered_refusal().is_some());
    limiter.reset("r", "k").wait().expect("the server is up");
    assert!(limiter.check("r", "k").cost(3).remembered_refusal().is_none(), "a reset drops it");

    // A request that was seen passes by, and so nothing is remembered for an id.
    assert!(limiter.check("log", "k").request_id("one").sure().allowed());
    let with_id = |id: &str| limiter.peek("log", "k").request_id(id).sure().allowed();
    assert!(with_id("one") && !with_id("two"));
    assert!(limiter.check("log", "k").remembered_refusal().is_none());
    assert!(!limiter.peek("log", "k").sure().allowed() && limiter.check("log", "k").remembered_refusal().is_some());
    assert!(limiter.check("log", "k").request_id("one").remembered_refusal().is_none());
}

#[test]
fn only_the_same_call_is_answered() {
    let limiter = build(builder("same"), &[("r", "5/h"), ("other", "5/h"), ("log", "1/h sliding_window_log")]);
    assert_eq!(drain(&limiter, "r", "k", 3), 3);
    assert_eq!(refused_by(&limiter, "r", 3), Some(Origin::Store));
    assert_eq!(refused_by(&limiter, "r", 3), Some(Origin::DenyCache));
    assert_eq!(refused_by(&limiter, "r", 4), Some(Origin::Store), "another cost");
    assert_eq!(refused_by(&limiter, "other", 3), None, "another rule");
    assert!(limiter.check("r", "another").cost(3).sure().allowed(), "another key");
    assert!(limiter.check("r", "k").cost(3).limits("9/h").sure().allowed(), "a raised limit");
    assert_eq!(refused_by(&limiter, "r", 3), Some(Origin::Store), "which may have freed what it had refused");
    assert_eq!(refused_by(&limiter, "r", 3), Some(Origin::DenyCache));

    assert!(limiter.check("log", "k").request_id("one").sure().allowed());
    assert_eq!([(); 2].map(|()| refused_by(&limiter, "log", 1)), [Some(Origin::Store), Some(Origin::DenyCache)]);
    assert!(limiter.check("log", "k").request_id("one").sure().is_repeat(), "a request that was seen passes by");
}

#[test]
fn what_this_process_gives_back_or_resets_shows_at_once() {
    let limiter = build(builder("drop"), &[("r", "2/h")]);
    let receipt = limiter.check("r", "k").cost(2).sure().receipt();
    assert_eq!([(); 2].map(|()| refused_by(&limiter, "r", 1)), [Some(Origin::Store), Some(Origin::DenyCache)]);
    assert!(limiter.refund(&receipt).wait().expect("it is fresh"));
    assert_eq!(refused_by(&limiter, "r", 2), None);
    assert_eq!([(); 2].map(|()| refused_by(&limiter, "r", 1)), [Some(Origin::Store), Some(Origin::DenyCache)]);
    limiter.reset("r", "k").wait().expect("the server is up");
    assert_eq!(refused_by(&limiter, "r", 2), None);
    // Limiters of one store share what is remembered, and what is dropped.
    let other = build(builder("drop"), &[("r", "2/h")]);
    assert_eq!([(); 2].map(|()| refused_by(&limiter, "r", 1)), [Some(Origin::Store), Some(Origin::DenyCache)]);
    other.reset("r", "k").wait().expect("the server is up");
    assert_eq!(refused_by(&limiter, "r", 2), None);
}

#[test]
fn an_entry_ends_with_its_wait_or_its_bound() {
    let limiter = build(builder("end").deny_cache_max(Duration::from_millis(50)), &[("r", "1/h"), ("short", "1/60ms")]);
    assert_eq!(refused_by(&limiter, "r", 1), None);
    assert_eq!(refused_by(&limiter, "r", 1), Some(Origin::Store));
    eventually(SOON, || refused_by(&limiter, "r", 1) == Some(Origin::Store));
    // Whoever polls is admitted as soon as it should be.
    assert_eq!(refused_by(&limiter, "short", 1), None);
    eventually(SOON, || refused_by(&limiter, "short", 1).is_none());

    let off = build(builder("off").deny_cache_max(Duration::ZERO), &[("r", "1/h")]);
    assert_eq!(refused_by(&off, "r", 1), None);
    assert_eq!([(); 3].map(|()| refused_by(&off, "r", 1)), [Some(Origin::Store); 3]);
}

#[test]
fn a_reset_beside_many_checks_is_never_forgotten() {
    let limiter = build(builder("race").deny_cache_max(Duration::from_secs(60)), &[("r", "1/h")]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    limiter.check("r", "k").sure();
                }
            });
        }
        for _ in 0..200 {
            limiter.reset("r", "k").wait().expect("the server is up");
            // Somebody is admitted after each reset: were an old refusal remembered, nobody would be for a minute.
            eventually(SOON, || limiter.peek("r", "k").sure().remaining() == 0);
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_flood_on_limited_keys_costs_the_server_nothing_and_little_memory() {
    let server = Server::start();
    let limiter = build(Limiter::builder().url(&server.url()).deadline(SOON), &[("r", "0/h")]);
    for user in 0..100_000 {
        assert!(!limiter.check("r", format!("user {}", user % 70_000)).sure().allowed());
    }
    let calls =
        || server.info("total_commands_processed").and_then(|calls| calls.parse::<u64>().ok()).expect("a count");
    limiter.check("r", "hot").sure();
    let before = calls();
    (0..10_000).for_each(|_| assert!(!limiter.check("r", "hot").sure().allowed()));
    assert!(calls() - before < 1_000, "a refusal a second at the most");
}

#[test]
fn a_faster_rate_given_at_a_call_ends_what_it_has_raised() {
    let limiter = build(builder("raise").deny_cache_max(Duration::from_secs(60)), &[("r", "1/h gcra")]);
    assert_eq!(drain(&limiter, "r", "k", 1), 1);
    assert_eq!([(); 2].map(|()| refused_by(&limiter, "r", 1)), [Some(Origin::Store), Some(Origin::DenyCache)]);
    // The bucket is refilled by the faster of the stored and the asked rate, and this one is stored.
    assert!(limiter.check("r", "k").limits("3600000/h gcra").sure().allowed());
    eventually(SOON, || refused_by(&limiter, "r", 1).is_none());
}

#[test]
fn a_binding_may_repeat_a_refusal_for_as_long_as_it_is_remembered() {
    const MAX: Duration = Duration::from_secs(60);
    let limiter = build(
        builder("repeat").deny_cache_max(MAX),
        &[("r", "5/h"), ("soon", "1/2s"), ("log", "1/h sliding_window_log"), ("shadow", "1/h shadow")],
    );
    let ended = limiter.refusals_ended().expect("a server's refusals are remembered");
    let check = |rule: &str| limiter.check(rule, "k").sure();
    assert_eq!(limiter.may_repeat(&check("r")), None, "it was allowed");
    assert_eq!(drain(&limiter, "r", "k", 5), 4);
    let began = ended.load(Ordering::Acquire);
    let first = limiter.check("r", "k").cost(2).sure();
    assert_eq!((first.origin(), limiter.may_repeat(&first)), (Origin::Store, Some(MAX)));
    let again = limiter.check("r", "k").cost(2).sure();
    assert_eq!((again.origin(), limiter.may_repeat(&again)), (Origin::DenyCache, None), "from when it was asked");
    assert_eq!(ended.load(Ordering::Acquire), began, "nothing has ended it");

    // No longer than it holds by itself.
    check("soon");
    let wait = limiter.may_repeat(&check("soon")).expect("the second is refused");
    assert!(wait <= Duration::from_secs(2), "{wait:?}");
    limiter.check("log", "k").request_id("one").sure();
    assert_eq!(limiter.may_repeat(&limiter.check("log", "k").request_id("two").sure()), None, "its id may be seen");
    check("shadow");
    assert_eq!(limiter.may_repeat(&check("shadow")), None, "a shadow lets pass");

    // What ends it moves the number, before it is answered.
    let before = ended.load(Ordering::Acquire);
    limiter.reset("r", "k").wait().expect("the server is up");
    let reset = ended.load(Ordering::Acquire);
    assert_ne!(reset, before);
    assert!(limiter.refund(&check("r").receipt()).wait().expect("it is fresh"));
    assert_ne!(ended.load(Ordering::Acquire), reset);

    let hits = limiter.metrics().deny_cache_hits;
    limiter.repeated(["r"], 7).expect("the rule is there");
    let metrics = limiter.metrics();
    let row = metrics.decisions.iter().find(|row| row.rule == "r" && row.origin == Origin::DenyCache);
    assert_eq!((metrics.deny_cache_hits, row.map(|row| row.count)), (hits + 7, Some(8)));
    assert_eq!(limiter.repeated(["nobody"], 1).map_err(|error| error.code()), Err("unknown_rule"));
}

#[test]
fn nothing_is_repeated_where_nothing_is_remembered() {
    let memory = build(Limiter::builder(), &[("r", "1/h")]);
    let off = build(builder("repeatoff").deny_cache_max(Duration::ZERO), &[("r", "1/h")]);
    for limiter in [&memory, &off] {
        assert_eq!(drain(limiter, "r", "k", 1), 1);
        assert_eq!(limiter.may_repeat(&limiter.check("r", "k").sure()), None);
    }
    assert!(memory.refusals_ended().is_none());
}

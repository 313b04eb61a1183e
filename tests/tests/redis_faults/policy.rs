//! The failure policy: servers that are down, silent, full, read-only or closed to us.

use std::time::Duration;

use tidegate::{Decision, ErrorKind, Limiter, OnError, Origin, Rule};
use tidegate_tests::limiters::{Sure, build, drain, timed};
use tidegate_tests::servers::{Server, eventually};

const SOON: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_millis(200);
/// Bounds on answers are generous: the machine may be busy.
const AT_MOST: Duration = Duration::from_secs(2);

/// Rules that allow, that deny, and that only watch, when the store fails.
fn limiter(url: &str, deadline: Duration) -> Limiter {
    let rule = |name: &str, limits: &str| Rule::parse(name, limits).expect("the rule can be meant");
    let rules = [
        rule("allow", "5/h").on_error(OnError::Allow),
        rule("deny", "5/h").on_error(OnError::Deny),
        rule("watch", "5/h shadow").on_error(OnError::Deny),
        rule("unsaid", "5/h"),
    ];
    Limiter::builder().url(url).deadline(deadline).rules(rules).build().expect("the rules can be meant")
}

fn checked(limiter: &Limiter, rules: &[&str]) -> Decision {
    limiter.check_all(rules.iter().copied(), "k").wait().expect("a store that fails is no error")
}

/// That every rule answers by its policy, in time, and says why.
#[track_caller]
fn assert_policies(limiter: &Limiter, kinds: &[ErrorKind]) {
    let cases: [(&[&str], bool); 7] = [
        (&["allow"], true),
        (&["deny"], false),
        (&["watch"], true),
        (&["unsaid"], true),
        (&["allow", "deny"], false),
        (&["deny", "unsaid"], false),
        (&["allow", "unsaid"], true),
    ];
    for (rules, allowed) in cases {
        let (decision, took) = timed(|| checked(limiter, rules));
        assert_eq!(decision.allowed(), allowed, "{rules:?}");
        assert_eq!(decision.origin(), if allowed { Origin::Open } else { Origin::Closed }, "{rules:?}");
        assert_eq!(
            (decision.remaining(), decision.retry_after(), decision.reset_after()),
            (0, None, None),
            "{rules:?}"
        );
        assert!(decision.receipt().is_empty());
        let kind = decision.failure().expect("it says why").kind();
        assert!(kinds.contains(&kind), "{rules:?}: {kind:?}");
        assert!(took < AT_MOST, "{rules:?}: {took:?}");
    }
}

const SILENT: [ErrorKind; 2] = [ErrorKind::Timeout, ErrorKind::StoreUnavailable];

#[test]
fn on_error_decides_where_nobody_listens() {
    for url in ["redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1,127.0.0.1:2", "redis+unix:///nowhere/redis.sock"] {
        let limiter = limiter(url, DEADLINE);
        assert_policies(&limiter, &SILENT);
        let decision = limiter.acquire("deny", "k").timeout(SOON).wait().expect("a store that fails is no error");
        assert_eq!(decision.origin(), Origin::Closed);
        assert!(limiter.reset("deny", "k").wait().is_err_and(|error| SILENT.contains(&error.kind())));
    }
}

#[test]
fn on_error_decides_while_a_server_is_silent_and_the_store_does_afterwards() {
    let server = Server::start();
    let limiter = limiter(&server.url(), DEADLINE);
    limiter.ready(SOON).wait().expect("the server is up");
    server.pause();
    assert_policies(&limiter, &SILENT);
    server.resume();
    // What was charged without our knowing is given back where the call was answered as refused.
    let left = |rule| limiter.peek(rule, "k").deadline(SOON).sure().remaining();
    eventually(SOON, || left("deny") == 5);
    assert!(left("allow") < 5);
}

#[test]
fn a_start_without_redis_works_and_needs_no_restart_later() {
    let server = Server::start();
    server.kill();
    let (limiter, took) = timed(|| limiter(&server.url(), DEADLINE));
    assert!(took < AT_MOST, "{took:?}");
    assert_policies(&limiter, &SILENT);
    server.restart();
    eventually(SOON, || checked(&limiter, &["allow"]).origin() == Origin::Store);
    limiter.ready(SOON).wait().expect("the server is up");
    assert_eq!(drain(&limiter, "deny", "k2", 9), 5);
}

#[test]
fn a_cluster_url_at_a_server_alone_follows_on_error_and_says_so() {
    let server = Server::start();
    let limiter = limiter(&server.url().replacen("://", "+cluster://", 1), DEADLINE);
    let decision = checked(&limiter, &["deny"]);
    assert_eq!(decision.origin(), Origin::Closed);
    let failure = decision.failure().expect("it says why");
    assert!(failure.message().contains("cluster"), "{failure}");
}

#[test]
fn a_server_that_is_full_follows_on_error_and_recovers() {
    let server = Server::start();
    let limiter = limiter(&server.url(), SOON);
    assert_eq!(limiter.check("deny", "k").sure().remaining(), 4);
    server.call::<()>("CONFIG SET maxmemory-policy noeviction");
    server.call::<()>("CONFIG SET maxmemory 1");
    assert_policies(&limiter, &[ErrorKind::StoreRefused]);
    server.call::<()>("CONFIG SET maxmemory 0");
    assert_eq!(limiter.check("deny", "k").sure().remaining(), 3, "nothing was charged while it was full");
}

#[test]
fn a_replica_follows_on_error_and_is_used_once_it_is_promoted() {
    let master = Server::start();
    let replica = Server::builder().config(&format!("replicaof 127.0.0.1 {}", master.port())).start();
    eventually(SOON, || replica.info("master_link_status").as_deref() == Some("up"));
    let limiter = limiter(&replica.url(), SOON);
    assert_policies(&limiter, &[ErrorKind::StoreUnavailable]);
    replica.call::<()>("REPLICAOF NO ONE");
    eventually(SOON, || checked(&limiter, &["allow"]).origin() == Origin::Store);
}

#[test]
fn ready_times_out_with_an_error_that_says_what_and_where() {
    let silent = Server::start();
    silent.pause();
    for (url, place) in [
        ("redis://127.0.0.1:1".to_owned(), "127.0.0.1:1".to_owned()),
        (silent.url(), format!("127.0.0.1:{}", silent.port())),
        ("redis+unix:///nowhere/redis.sock".to_owned(), "/nowhere/redis.sock".to_owned()),
    ] {
        let limiter = build(Limiter::builder().url(&url), &[("r", "5/h")]);
        let (outcome, took) = timed(|| limiter.ready(Duration::from_millis(1_500)).wait());
        let error = outcome.expect_err("nobody is there");
        assert!(SILENT.contains(&error.kind()), "{url}: {error}");
        assert!(error.message().contains(&place), "{url}: {error}");
        assert!(took < 10 * Duration::from_millis(1_500), "{took:?}");
    }
}

#[test]
fn memory_is_ready_at_once() {
    build(Limiter::builder(), &[("r", "5/h")]).ready(Duration::ZERO).wait().expect("there is nothing to wait for");
}

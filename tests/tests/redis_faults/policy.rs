//! The failure policy: servers that are down, silent, full, read-only or closed to us.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::proxy::{Proxy, Replies};
use tidegate::{Decision, ErrorKind, Limiter, OnError, Origin, Rule};
use tidegate_tests::limiters::{Sure, build, drain, timed};
use tidegate_tests::servers::{Cluster, Server, eventually, slot};

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);
/// Bounds on answers are generous: the machine may be busy.
pub(crate) const AT_MOST: Duration = Duration::from_secs(2);

/// Rules that allow, that deny, and that only watch, when the store fails.
pub(crate) fn limiter(url: &str, deadline: Duration) -> Limiter {
    let rule = |name: &str, limits: &str| Rule::parse(name, limits).expect("the rule can be meant");
    let rules = [
        rule("allow", "5/h").on_error(OnError::Allow),
        rule("deny", "5/h").on_error(OnError::Deny),
        rule("watch", "5/h shadow").on_error(OnError::Deny),
        rule("unsaid", "5/h"),
    ];
    Limiter::builder().url(url).deadline(deadline).rules(rules).build().expect("the rules can be meant")
}

pub(crate) fn checked(limiter: &Limiter, rules: &[&str]) -> Decision {
    limiter.check_all(rules.iter().copied(), "k").wait().expect("a store that fails is no error")
}

/// That every rule answers by its policy, in time, and says why.
#[track_caller]
pub(crate) fn assert_policies(limiter: &Limiter, kinds: &[ErrorKind]) {
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

pub(crate) const SILENT: [ErrorKind; 2] = [ErrorKind::Timeout, ErrorKind::StoreUnavailable];

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
    let left = |rule| {
        let decision = limiter.peek(rule, "k").deadline(SOON).wait().expect("a store that fails is no error");
        (decision.origin() == Origin::Store).then(|| decision.remaining())
    };
    eventually(SOON, || left("deny") == Some(5));
    assert!(left("allow").is_some_and(|left| left < 5));
}

#[test]
fn local_decides_here_with_a_share_of_each_limit_while_the_store_fails() {
    let server = Server::start();
    let rule = |name: &str, limits: &str, share| {
        Rule::parse(name, limits).expect("the rule can be meant").on_error(OnError::Local { share })
    };
    let rules = [
        rule("half", "8/h; 9/d burst 6", 2),
        rule("least", "3/h", 100),
        rule("none", "0/h", 1),
        Rule::parse("deny", "9/h").expect("the rule can be meant").on_error(OnError::Deny),
        Rule::parse("allow", "9/h").expect("the rule can be meant"),
    ];
    let limiter = Limiter::builder().url(&server.url()).deadline(DEADLINE).rules(rules).build().expect("they can");
    limiter.ready(SOON).wait().expect("the server is up");
    assert_eq!(limiter.check("half", "k").deadline(SOON).sure().remaining(), 5, "the store decides alone");
    server.kill();
    let local = |rules: &[&str]| {
        let decision = checked(&limiter, rules);
        assert!(decision.failure().is_some() && decision.receipt().is_empty(), "it says why, and charged no store");
        (decision.origin(), decision.allowed(), decision.remaining())
    };
    let half: Vec<_> = (0..4).map(|_| local(&["half"])).collect();
    let (here, closed) = (Origin::Local, Origin::Closed);
    assert_eq!(half, [(here, true, 2), (here, true, 1), (here, true, 0), (here, false, 0)], "three at once of six");
    assert_eq!([local(&["least"]), local(&["least"])], [(here, true, 0), (here, false, 0)], "at least one");
    assert_eq!(local(&["none"]), (here, false, 0), "and none stays none");
    assert_eq!(local(&["half", "deny"]), (closed, false, 0), "deny comes over local");
    assert!(matches!(local(&["half", "allow"]), (Origin::Local, false, 0)), "and local over allow");
    server.restart();
    eventually(SOON, || checked(&limiter, &["allow"]).origin() == Origin::Store);
    assert_eq!(drain(&limiter, "half", "k", 9), 6, "the store knows nothing of it");
}

/// How many scripts a server was asked to run.
fn asked(server: &Server) -> u64 {
    let stats: String = server.call("INFO commandstats");
    let calls = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    calls.filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn a_silent_server_is_left_alone_until_a_probe_is_answered() {
    let server = Server::start();
    let limiter = limiter(&server.url(), Duration::from_millis(20));
    limiter.ready(SOON).wait().expect("the server is up");
    let before = asked(&server);
    server.pause();
    let decisions: Vec<_> = (0..5_000).map(|_| checked(&limiter, &["deny"])).collect();
    assert!(decisions.iter().all(|decision| decision.origin() == Origin::Closed));
    let is_open = |decision: &Decision| {
        decision.failure().is_some_and(|error| error.message().starts_with("the circuit is open: "))
    };
    assert!(!is_open(&decisions[0]) && is_open(&decisions[4_999]));
    server.resume();
    eventually(SOON, || checked(&limiter, &["allow"]).origin() == Origin::Store);
    let sent = asked(&server) - before;
    assert!(sent < 500, "5,000 calls, and {sent} of them were sent");
}

#[test]
fn r9_a_connection_that_hears_nothing_any_more_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::to(server.port(), Replies::Pass);
    let limiter = limiter(&proxy.url(), DEADLINE);
    limiter.ready(SOON).wait().expect("the server is up");
    assert_eq!(limiter.check("deny", "k").deadline(SOON).sure().remaining(), 4);
    proxy.forget_connections();
    assert_eq!(checked(&limiter, &["deny"]).origin(), Origin::Closed);
    eventually(SOON, || checked(&limiter, &["allow"]).origin() == Origin::Store);
}

#[test]
fn a_server_from_before_hello_is_told_to_be_too_old() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut buffer = [0; 1_024];
            while let Ok(1..) = client.read(&mut buffer) {
                let _ = client.write_all(b"-ERR unknown command `HELLO`, with args beginning with: \r\n");
            }
        }
    });
    let limiter = limiter(&format!("redis://127.0.0.1:{port}"), SOON);
    let decision = checked(&limiter, &["deny"]);
    let failure = decision.failure().expect("it says why");
    assert_eq!(failure.kind(), ErrorKind::UnsupportedServer, "{failure}");
    assert!(failure.message().contains("Redis 7.0"), "{failure}");
}

#[test]
fn a_dead_shard_opens_the_circuit_of_no_other() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster.url(), DEADLINE);
    limiter.ready(SOON).wait().expect("the cluster is up");
    let of = |user: usize| cluster.master_of(slot(format!("tidegate:1:{{user{user}}}").as_bytes())).port();
    let dead = of(0);
    let (here, elsewhere): (Vec<usize>, Vec<usize>) = (0..60).partition(|user| of(*user) == dead);
    let master = cluster.nodes().iter().find(|node| node.port() == dead).expect("it is one of the six");
    master.pause();
    let check = |user: &usize| limiter.check("deny", format!("user{user}")).wait().expect("it can be meant");
    let unwell = here.iter().cycle().take(20).map(check).last().expect("it has some");
    assert!(unwell.failure().is_some_and(|error| error.message().starts_with("the circuit is open: ")), "{unwell:?}");
    for decision in elsewhere.iter().map(check) {
        assert_eq!(decision.origin(), Origin::Store, "{:?}", decision.failure());
    }
    master.resume();
    eventually(SOON, || here.first().map(check).is_some_and(|decision| decision.origin() == Origin::Store));
}

#[test]
fn the_last_limiter_takes_its_connections_with_it() {
    let server = Server::start();
    let clients = || server.info("connected_clients").and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
    for round in 0..20 {
        let limiter = build(Limiter::builder().url(&server.url()).prefix(format!("p{round}")), &[("r", "5/h")]);
        limiter.ready(SOON).wait().expect("the server is up");
        assert!(limiter.check("r", "k").deadline(SOON).sure().allowed());
    }
    eventually(SOON, || clients() <= 2);
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

#[test]
fn a_node_that_sends_on_to_a_hung_one_is_not_blamed() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster.url(), DEADLINE);
    limiter.ready(SOON).wait().expect("the cluster is up");
    let of = |user: usize| slot(format!("tidegate:1:{{user{user}}}").as_bytes());
    let home = cluster.master_of(of(0));
    let hung = cluster.masters().into_iter().find(|node| node.port() != home.port()).expect("there are three");
    // Its state is nowhere yet, so its node sends whoever asks for it to the other.
    cluster.begin_move(of(0), hung);
    hung.pause();
    let check = |user: usize| limiter.check("deny", format!("user{user}")).wait().expect("it can be meant");
    (0..8).for_each(|_| assert_eq!(check(0).origin(), Origin::Closed));
    let here = (1..).find(|user| cluster.master_of(of(*user)).port() == home.port() && of(*user) != of(0));
    let decision = check(here.expect("a third of all users"));
    assert_eq!(decision.origin(), Origin::Store, "{:?}", decision.failure());
    hung.resume();
}

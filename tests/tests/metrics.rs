//! What a limiter counts about itself.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate::http::Policy;
use tidegate::{BreakerState, Document, ErrorKind, Limiter, Metrics, OnError, Origin, Rule};
use tidegate_tests::limiters::{Sure as _, build, drain};
use tidegate_tests::servers::{Cluster, Server, eventually};

const SOON: Duration = Duration::from_secs(20);

/// The rows of one rule: who decided, whether it might pass, how often.
fn rows(metrics: &Metrics, rule: &str) -> Vec<(Origin, bool, u64)> {
    let rows = metrics.decisions.iter().filter(|row| row.rule == rule && row.count > 0);
    rows.map(|row| (row.origin, row.allowed, row.count)).collect()
}

/// The kinds of errors that have occurred, and how often.
fn errors(metrics: &Metrics) -> Vec<(ErrorKind, u64)> {
    metrics.errors.iter().filter(|error| error.count > 0).map(|error| (error.kind, error.count)).collect()
}

#[test]
fn every_decision_counts_once_for_each_of_its_rules() {
    let server = Server::start();
    for url in [None, Some(server.url())] {
        let builder = Limiter::builder().deadline(SOON).deny_cache_max(Duration::ZERO);
        let builder = url.iter().fold(builder, |builder, url| builder.url(url));
        let limiter = build(builder, &[("a", "3/h"), ("b", "2/h"), ("shadow", "1/h shadow"), ("idle", "1/h")]);
        assert!(limiter.metrics().decisions.iter().all(|row| row.count == 0), "nothing has been decided");

        assert_eq!(drain(&limiter, "a", "k", 4), 3);
        for allowed in [true, true, false] {
            assert_eq!(limiter.check_all(["a", "b"], "other").sure().allowed(), allowed);
        }
        assert!(limiter.check("a", "k").limits("9/h").sure().allowed(), "limits at the call are the rule's");
        (0..3).for_each(|_| assert!(limiter.check("shadow", "k").sure().allowed()));
        limiter.peek("a", "k").sure();
        limiter.count("a", "k", SOON).add(1).wait().expect("the server is up");

        let metrics = limiter.metrics();
        assert_eq!(rows(&metrics, "a"), [(Origin::Store, true, 6), (Origin::Store, false, 2)], "{url:?}");
        assert_eq!(rows(&metrics, "b"), [(Origin::Store, true, 2), (Origin::Store, false, 1)]);
        assert_eq!(rows(&metrics, "shadow"), [(Origin::Store, true, 3)]);
        assert_eq!((rows(&metrics, "idle"), errors(&metrics)), (vec![], vec![]));
    }
}

#[test]
fn an_acquire_counts_once_however_often_it_asks() {
    let server = Server::start();
    for url in [None, Some(server.url())] {
        let builder = url.iter().fold(Limiter::builder().deadline(SOON), |builder, url| builder.url(url));
        let limiter = build(builder, &[("r", "5/s burst 1")]);
        for _ in 0..3 {
            assert!(limiter.acquire("r", "k").timeout(SOON).wait().expect("it can be meant").allowed());
        }
        assert!(!limiter.acquire("r", "k").timeout(Duration::ZERO).wait().expect("it can be meant").allowed());
        assert!(!limiter.acquire("r", "k").cost(2).timeout(SOON).wait().expect("it can be meant").allowed());
        let counts = rows(&limiter.metrics(), "r").into_iter().map(|(_, allowed, count)| (allowed, count));
        let total = |sought| counts.clone().filter(|(allowed, _)| *allowed == sought).map(|(_, count)| count).sum();
        assert_eq!((total(true), total(false)), (3_u64, 2_u64), "{url:?}");
    }
}

#[test]
fn errors_count_by_kind_whether_they_were_returned_or_answered_by_a_policy() {
    let server = Server::start();
    let rules = [
        Rule::parse("open", "5/h").expect("the rule can be meant"),
        Rule::parse("closed", "5/h").expect("the rule can be meant").on_error(OnError::Deny),
        Rule::parse("local", "1/h").expect("the rule can be meant").on_error(OnError::Local { share: 1 }),
    ];
    let builder = Limiter::builder().url(&server.url()).deadline(SOON).rules(rules);
    let limiter = builder.build().expect("the rules can be meant");
    assert!(limiter.check("nobody", "k").wait().is_err());
    assert!(limiter.check("open", "").wait().is_err());
    assert!(futures_executor::block_on(limiter.check("open", "k").cost(0).into_future()).is_err());
    assert!(limiter.acquire("open", "k").cost(0).wait().is_err());
    assert_eq!(drain(&limiter, "open", "k", 1), 1);
    server.call::<()>(&format!("SET {} rubbish", server.call::<Vec<String>>("KEYS *")[0]));
    let decision = limiter.check("open", "k").wait().expect("a store that fails is no error");
    assert_eq!(decision.failure().map(tidegate::Error::kind), Some(ErrorKind::CorruptState));
    limiter.peek("open", "k").wait().expect("a store that fails is no error");
    assert_eq!(
        errors(&limiter.metrics()),
        [(ErrorKind::InvalidRequest, 3), (ErrorKind::UnknownRule, 1), (ErrorKind::CorruptState, 2)]
    );

    server.kill();
    let away = |rule: &str| limiter.check(rule, "k").wait().expect("a store that fails is no error").allowed();
    assert_eq!([away("open"), away("closed"), away("local"), away("local")], [true, false, true, false]);
    limiter.reset("open", "k").wait().expect_err("there is no server");
    let metrics = limiter.metrics();
    assert_eq!(rows(&metrics, "open"), [(Origin::Store, true, 1), (Origin::Open, true, 2)]);
    assert_eq!(rows(&metrics, "closed"), [(Origin::Closed, false, 1)]);
    assert_eq!(rows(&metrics, "local"), [(Origin::Local, true, 1), (Origin::Local, false, 1)]);
    assert_eq!(errors(&metrics).last(), Some(&(ErrorKind::CorruptState, 2)));
    assert!(errors(&metrics).contains(&(ErrorKind::StoreUnavailable, 5)), "{metrics:?}");
}

#[test]
fn what_goes_to_servers_is_timed_and_batches_are_sized() {
    let cluster = Cluster::start();
    let builder = Limiter::builder().url(&cluster.url()).deadline(SOON).deny_cache_max(SOON);
    let limiter = build(builder, &[("r", "5/h")]);
    limiter.ready(SOON).wait().expect("the cluster is up");
    let calls = (0..500).map(|key| limiter.check("r", format!("secret {key}")).into_future());
    let decisions = futures_executor::block_on(futures_util::future::join_all(calls));
    assert!(decisions.into_iter().all(|decision| decision.is_ok_and(|decision| decision.allowed())));
    let allowed = (0..105).filter(|_| limiter.check("r", "k").sure().allowed());
    assert_eq!(allowed.count(), 5);

    let metrics = limiter.metrics();
    assert_eq!((metrics.deny_cache_hits, metrics.late_refunds, metrics.keys), (99, 0, None));
    assert_eq!(rows(&metrics, "r").last(), Some(&(Origin::DenyCache, false, 99)));
    assert_eq!((metrics.latency.count(), metrics.batch_sizes.sum), (506, 506));
    assert!(metrics.batch_sizes.count() < 506 && metrics.batch_sizes.counts[1..].iter().sum::<u64>() > 0);
    assert!(metrics.latency.sum > 0);
    let mut masters: Vec<String> = cluster.masters().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    masters.sort_unstable();
    let nodes = metrics.nodes.iter().map(|node| (&*node.address, node.connected, node.breaker, node.opened));
    let well = masters.iter().map(|address| (&**address, true, BreakerState::Closed, 0));
    assert_eq!(nodes.collect::<Vec<_>>(), well.collect::<Vec<_>>());

    let text = metrics.prometheus();
    assert!(text.contains(r#"tidegate_decisions_total{rule="r",origin="deny_cache",outcome="refused"} 99"#), "{text}");
    assert!(text.contains("tidegate_batch_size_sum 506") && text.contains(&masters[2]), "{text}");
    assert!(!text.contains("secret"), "no key in any label");
    // A policy's page has its limiter's.
    let document = "version = 1\nrules = { r = '5/h' }\nhttp = { default = { rules = 'r', key = 'ip' } }";
    let document = Document::from_toml(document).expect("a good document");
    let in_memory = Policy::new(&document).expect("a policy").metrics().prometheus();
    let named = |text: &str| {
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let documented = include_str!("../../docs/metrics.md").split('`').filter(|word| word.starts_with("tidegate_"));
    let documented: BTreeSet<String> = documented.map(str::to_owned).collect();
    assert_eq!(documented, &named(&text) | &named(&in_memory));
}

#[test]
fn a_breaker_tells_how_it_stands() {
    let server = Server::start();
    let builder = Limiter::builder().url(&server.url()).deadline(Duration::from_millis(50));
    let limiter = build(builder.breaker(3, Duration::from_millis(10), Duration::from_millis(20)), &[("r", "900/h")]);
    limiter.ready(SOON).wait().expect("the server is up");
    let node = || limiter.metrics().nodes.remove(0);
    let check = || limiter.check("r", "k").wait().expect("a store that fails is no error").origin();
    assert_eq!(limiter.check("r", "k").sure().origin(), Origin::Store);
    assert_eq!((node().breaker, node().opened), (BreakerState::Closed, 0));
    server.pause();
    let troubled = [(); 3].map(|()| {
        assert_eq!(check(), Origin::Open);
        node().opened
    });
    assert_eq!((troubled, node().breaker), ([0, 0, 1], BreakerState::Open));
    server.resume();
    eventually(SOON, || check() == Origin::Store && node().breaker == BreakerState::Closed);
    assert_eq!(node().opened, 1, "it was one trouble");
}

#[test]
fn the_breaker_that_calls_meet_while_nobody_was_reached_is_told_too() {
    let builder = Limiter::builder().url("redis://127.0.0.1:1").deadline(Duration::from_millis(50));
    let limiter = build(builder.breaker(1, SOON, SOON), &[("r", "5/h"), ("s", "5/h")]);
    limiter.check("r", "k").wait().expect("a store that fails is no error");
    let nodes = limiter.metrics().nodes;
    let told = nodes.iter().map(|node| (&*node.address, node.connected, node.breaker, node.opened));
    assert_eq!(told.collect::<Vec<_>>(), [("127.0.0.1:1", false, BreakerState::Open, 1)]);
}

#[test]
fn other_rules_on_the_same_store_go_on_from_what_was_counted() {
    let server = Server::start();
    let connections =
        || server.info("total_connections_received").and_then(|count| count.parse::<u64>().ok()).expect("a count");
    let builder = Limiter::builder().url(&server.url()).deadline(SOON).deny_cache_max(Duration::from_secs(60));
    let old = build(builder, &[("gone", "1/h"), ("kept", "2/h")]);
    assert_eq!((drain(&old, "kept", "k", 5), drain(&old, "kept", "k", 1)), (2, 0));
    assert_eq!(drain(&old, "gone", "k", 9), 1);
    let before = connections();

    let rules = [("added", "1/h"), ("kept", "3/h")].map(|(name, limits)| Rule::parse(name, limits).expect("legal"));
    let new = old.exchange_rules(rules.to_vec()).expect("the rules can be meant");
    // A refusal is remembered of the old limit, not of the raised one.
    assert_eq!(old.check("kept", "k").sure().origin(), Origin::DenyCache);
    assert_eq!([(); 2].map(|()| new.check("kept", "k").sure().allowed()), [true, false]);
    assert!(!new.check("kept", "k").sure().allowed());
    for limiter in [&old, &new] {
        let told = rows(&limiter.metrics(), "kept");
        assert_eq!(told, [(Origin::Store, true, 3), (Origin::Store, false, 2), (Origin::DenyCache, false, 3)]);
    }
    assert!(new.check("added", "k").sure().allowed());
    let metrics = new.metrics();
    assert_eq!((rows(&metrics, "added"), rows(&metrics, "gone")), (vec![(Origin::Store, true, 1)], vec![]));
    assert_eq!((metrics.deny_cache_hits, metrics.latency.count()), (3, 8));
    assert!(metrics.decisions.iter().all(|row| row.rule != "gone"));
    // INFO has one of its own.
    assert_eq!(connections() - before, 1, "the connections stay");
    new.reset("kept", "k").wait().expect("the server is up");
    assert_eq!(drain(&old, "kept", "k", 5), 2, "it is one state");
}

#[test]
fn a_call_of_several_rules_is_one_hit() {
    let server = Server::start();
    let builder = Limiter::builder().url(&server.url()).deadline(SOON);
    let limiter = build(builder, &[("r", "1/h"), ("s", "5/h")]);
    let allowed = [(); 3].map(|()| limiter.check_all(["r", "s"], "k").sure().allowed());
    assert_eq!((allowed, limiter.metrics().deny_cache_hits), ([true, false, false], 1));
}

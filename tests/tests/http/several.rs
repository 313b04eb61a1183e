//! Requests with several keys: none is charged where another refuses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate::http::{Outcome, Policy};
use tidegate::{Completions, Origin};
use tidegate_tests::servers::{Cluster, Server, eventually, shared_cluster};

use crate::policies::{Sure as _, document, left, policy, text};

const RULES: &str = r#"
[rules]
user = "5/h"
address = "3000/h"

[http.default]
rules = ["address", { rule = "user", key = "user", without_identity = "skip" }]
key = "ip"
"#;

const SOON: Duration = Duration::from_secs(20);
const ADDRESS: [&str; 2] = ["ip", "203.0.113.7"];

fn commands(server: &Server) -> u64 {
    server.info("total_commands_processed").and_then(|count| count.parse().ok()).expect("a count")
}

#[test]
fn a_thousand_refusals_by_the_users_rule_leave_the_addresss_untouched() {
    for url in [String::new(), Server::start().url(), shared_cluster().url()] {
        let policy = policy(&url, RULES);
        let admit = || policy.request("GET", "/").peer("203.0.113.7").user("alice").outcome();
        for _ in 0..5 {
            assert_eq!(admit(), Outcome::Allowed);
        }
        for _ in 0..1_000 {
            assert_eq!(admit(), Outcome::Refused);
        }
        assert_eq!(left(&policy.limiter(), "address", &ADDRESS), 2_995, "{url}");
        assert_eq!(policy.request("GET", "/").peer("203.0.113.7").user("bob").outcome(), Outcome::Allowed);
        assert_eq!(left(&policy.limiter(), "address", &ADDRESS), 2_994, "{url}");
    }
}

#[test]
fn a_remembered_refusal_of_one_key_asks_nobody() {
    let server = Server::start();
    let policy = policy(&server.url(), &format!("deny_cache_max = \"60s\"\n{RULES}"));
    let request = || policy.request("GET", "/").peer("203.0.113.7").user("alice");
    while request().outcome() == Outcome::Allowed {}
    let before = commands(&server);
    for _ in 0..100 {
        let admission = request().sure();
        assert_eq!(admission.outcome(), Outcome::Refused);
        assert_eq!(admission.decisions().iter().map(|one| one.origin()).collect::<Vec<_>>(), [Origin::DenyCache]);
        assert!(admission.headers().iter().any(|(name, _)| *name == "Retry-After"));
    }
    // INFO itself is a command, and connections may be looked after meanwhile.
    assert!(commands(&server) - before < 20, "{} commands", commands(&server) - before);
}

#[test]
fn a_request_with_one_key_is_one_script() {
    let server = Server::start();
    let policy = policy(&server.url(), RULES);
    policy.ready(Duration::from_secs(20)).wait().expect("the server is there");
    let scripts = || {
        server
            .info("cmdstat_evalsha")
            .and_then(|line| line.split(',').next()?.strip_prefix("calls=")?.parse::<u64>().ok())
    };
    policy.request("GET", "/").peer("203.0.113.7").sure();
    let before = scripts().unwrap_or(0);
    for _ in 0..100 {
        policy.request("GET", "/").peer("203.0.113.7").sure();
    }
    assert_eq!(scripts(), Some(before + 100));
    for _ in 0..5 {
        policy.request("GET", "/").peer("203.0.113.7").user("alice").sure();
    }
    // A peek and a check, the two keys of each together or apart.
    assert!((before + 110..=before + 120).contains(&scripts().unwrap_or(0)), "{:?}", scripts());
}

/// Whatever happens at once, no rule admits more than its limit, and what was charged is what passed.
#[test]
fn many_at_once_admit_what_both_rules_allow() {
    for url in [String::new(), shared_cluster().url()] {
        let rules = r#"
            [rules]
            few = "40/h"
            many = "1000/h"

            [http.default]
            rules = [{ rule = "many", key = "app:many" }, { rule = "few", key = "app:few" }]
            without_identity = "refuse"
        "#;
        let (policy, allowed) = (policy(&url, rules), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let request = policy.request("GET", "/").value("many", "m").value("few", "f");
                        allowed.fetch_add(usize::from(request.outcome() == Outcome::Allowed), Ordering::Relaxed);
                    }
                });
            }
        });
        let limiter = policy.limiter();
        assert_eq!(allowed.load(Ordering::Relaxed), 40, "{url}");
        assert_eq!(left(&limiter, "few", &["app", "few", "f"]), 0);
        // Nobody waits for what is given back.
        eventually(SOON, || left(&limiter, "many", &["app", "many", "m"]) == 960);
        assert_eq!(policy.metrics().charges_lost, 0);
    }
}

/// The gap between peek and charge, made wide: the moment is counted, and the charge comes back.
#[test]
fn a_charge_that_another_key_refuses_after_all_is_given_back() {
    let server = Server::start();
    let rules = r#"
        [rules]
        few = "1/h"
        many = "100000/h"

        [http.default]
        rules = [{ rule = "many", key = "app:many" }, { rule = "few", key = "app:few" }]
        without_identity = "refuse"
    "#;
    let policy = policy(&server.url(), rules);
    let request = |round: usize| policy.request("GET", "/").value("many", "m").value("few", round.to_string());
    // Two at once for one unit: sooner or later both peek before either charges.
    let mut allowed = 0;
    for round in 0..5_000 {
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| request(round).sure());
            let second = request(round).sure();
            (first.join().expect("no panic"), second)
        });
        let passed = [&first, &second].iter().filter(|admission| admission.allowed()).count();
        assert!(passed <= 1, "both passed: {first:?} {second:?}");
        allowed += passed;
        if policy.metrics().charges_returned > 0 {
            // Nobody waits for what is given back; another may be on its way.
            let charged = || 100_000 - left(&policy.limiter(), "many", &["app", "many", "m"]);
            eventually(SOON, || usize::try_from(charged()).is_ok_and(|charged| charged == allowed));
            assert_eq!(policy.metrics().charges_lost, 0);
            return;
        }
    }
    panic!("in 5,000 pairs none met in the gap");
}

/// A node that hangs must not make another, which answers, look as if it did not: its limits hold.
#[test]
fn a_node_that_hangs_lifts_no_limit_of_another() {
    let cluster = Cluster::start();
    let rules = r#"
        [rules]
        slow = "100000/h"
        few = "10/h"

        [http.default]
        rules = [{ rule = "slow", key = "app:slow" }, { rule = "few", key = "app:few" }]
        without_identity = "refuse"
    "#;
    let text = text(&cluster.url(), rules).replace("deadline = \"20s\"", "deadline = \"500ms\"");
    let policy = Policy::new(&document(&text)).expect("a policy");
    policy.ready(Duration::from_secs(20)).wait().expect("the servers are up");
    let master = |tag: &str| {
        let slot: u16 = cluster.nodes()[0].call(&format!("CLUSTER KEYSLOT {{{tag}}}"));
        cluster.master_of(slot)
    };
    let hung = master("app,slow,s");
    let elsewhere = (0..).map(|number: u32| number.to_string());
    let few = elsewhere.into_iter().find(|few| master(&format!("app,few,{few}")).port() != hung.port());
    let few = few.expect("slots are on three nodes");

    hung.pause();
    let (allowed, until) = (AtomicUsize::new(0), timer(Duration::from_millis(1_500)));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !until.is_finished() {
                    let request = policy.request("GET", "/").value("slow", "s").value("few", &few);
                    allowed.fetch_add(usize::from(request.outcome() == Outcome::Allowed), Ordering::Relaxed);
                }
            });
        }
    });
    hung.resume();
    assert_eq!(allowed.load(Ordering::Relaxed), 10, "the one that answers decides");
}

/// Ends after a while.
fn timer(wait: Duration) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let (_nobody, never) = mpsc::channel::<()>();
        let _ = never.recv_timeout(wait);
    })
}

#[test]
fn admissions_come_to_the_queue_of_an_event_loop() {
    let (waker, woken) = mpsc::channel();
    let queue = Completions::new(move || waker.send(()).unwrap_or(()));
    let submit = |policy: &Policy, ticket| {
        policy.request("GET", "/").peer("203.0.113.7").user("alice").submit(&queue, ticket).expect("it can be judged")
    };
    let memory = policy("", RULES);
    assert_eq!(submit(&memory, 1).expect("memory answers at once").outcome(), Outcome::Allowed);

    let server = Server::start();
    let remote = policy(&server.url(), RULES);
    assert!(submit(&remote, 2).is_none(), "a server does not");
    let mut completed = Vec::new();
    while completed.is_empty() {
        woken.recv_timeout(Duration::from_secs(20)).expect("it comes");
        queue.drain(&mut completed);
    }
    assert_eq!(completed[0].ticket, 2);
    match &completed[0].result {
        Ok(tidegate::Outcome::Admission(admission)) => assert_eq!(admission.decisions().len(), 2),
        other => panic!("{other:?}"),
    }
}

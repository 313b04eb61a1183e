//! Policies beside each other, in memory on a test's clock, and admissions that nobody answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::ErrorKind;
use tidegate::http::{Outcome, Policy};
use tidegate_tests::servers::shared_server;

use crate::policies::{Sure as _, document, policy, text};

const ONE: &str = "[rules]\nlogin = '1/m'\n[http.default]\nrules = 'login'\nkey = 'ip'";
const PEER: &str = "203.0.113.7";

#[test]
fn share_what_is_used_on_every_store() {
    for url in [String::new(), shared_server().url()] {
        let first = document(&text(&url, ONE));
        let policy = Policy::new(&first).expect("a policy");
        let beside = policy.beside(&first).expect("the same store");
        assert_eq!(policy.request("GET", "/").peer(PEER).outcome(), Outcome::Allowed, "{url}");
        assert_eq!(beside.request("GET", "/").peer(PEER).outcome(), Outcome::Refused, "{url}");
        let count = |policy: &Policy| policy.metrics().requests.iter().map(|row| row.count).sum::<u64>();
        assert_eq!((count(&policy), count(&beside)), (1, 1), "each counts for itself");
        let error = policy.beside(&document(&text(&url, ONE))).expect_err("another prefix");
        assert_eq!(error.kind(), ErrorKind::InvalidDocument);
    }
}

#[test]
fn on_a_clock_in_memory_whatever_the_url_says() {
    let clock = Arc::new(AtomicU64::new(1_893_456_000_000_000));
    let policy = Policy::in_memory_at(&document(&text("redis://127.0.0.1:1", ONE)), &clock).expect("a policy");
    let outcome = || policy.request("GET", "/").peer(PEER).outcome();
    assert_eq!([outcome(), outcome()], [Outcome::Allowed, Outcome::Refused]);
    clock.fetch_add(60_000_000, Ordering::SeqCst);
    assert_eq!(outcome(), Outcome::Allowed);
}

#[test]
fn undo_gives_back_once() {
    let policy = policy("", ONE);
    let request = || policy.request("GET", "/").peer(PEER);
    let admission = request().sure();
    assert!(admission.undo().wait().expect("it is memory"));
    assert!(request().sure().allowed());
    assert!(!admission.undo().wait().expect("it is memory"));
    assert!(!request().sure().allowed());
}

#[test]
fn what_was_counted_is_json() {
    let policy = policy("", ONE);
    policy.request("GET", "/").peer(PEER).sure();
    let json: serde_json::Value = serde_json::from_str(&policy.metrics().json()).expect("JSON");
    let row = serde_json::json!({ "route": "default", "is_shadow": false, "outcome": "allowed", "count": 1 });
    assert_eq!(json["requests"][0], row);
    assert_eq!(json["limiter"]["decisions"][0]["count"], 1);
}

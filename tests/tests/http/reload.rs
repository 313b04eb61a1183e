//! Documents that change while requests come.

use std::time::Duration;

use tidegate::http::{Outcome, Policy};
use tidegate_tests::servers::{eventually, shared_server};

use crate::policies::{Sure as _, document, text};

const SOON: Duration = Duration::from_secs(20);

fn routes(limit: &str) -> String {
    format!("[rules]\nr = \"{limit}\"\n[[routes]]\nname = \"all\"\nprefix = \"/\"\nrules = \"r\"\nkey = \"ip\"\n")
}

fn admit(policy: &Policy) -> Outcome {
    policy.request("GET", "/").peer("203.0.113.7").outcome()
}

fn counted(policy: &Policy, outcome: Outcome) -> u64 {
    let metrics = policy.metrics();
    metrics.requests.iter().filter(|row| row.route == "all" && row.outcome == outcome).map(|row| row.count).sum()
}

#[test]
fn another_document_goes_on_with_state_and_counters() {
    for url in [String::new(), shared_server().url()] {
        let store = text(&url, "");
        let policy = Policy::new(&document(&format!("{store}{}", routes("2/h")))).expect("a policy");
        assert_eq!([(); 3].map(|()| admit(&policy)), [Outcome::Allowed, Outcome::Allowed, Outcome::Refused]);
        // Raised: what was used stays used, and the refusal that is remembered is not of these rules.
        policy.reload(&document(&format!("{store}{}", routes("3/h")))).expect("it is taken");
        assert_eq!([(); 2].map(|()| admit(&policy)), [Outcome::Allowed, Outcome::Refused], "{url}");
        assert_eq!((counted(&policy, Outcome::Allowed), counted(&policy, Outcome::Refused)), (3, 2));
        let decisions = policy.metrics().limiter.decisions;
        assert_eq!(decisions.iter().filter(|row| row.rule == "r").map(|row| row.count).sum::<u64>(), 5, "{url}");
        assert_eq!((policy.metrics().reloads, policy.metrics().reloads_refused), (1, 0));
    }
}

#[test]
fn a_request_under_way_keeps_the_document_that_it_began_with() {
    let store = text("", "");
    let policy = Policy::new(&document(&format!("{store}{}", routes("2/h")))).expect("a policy");
    let request = policy.request("GET", "/").peer("203.0.113.7");
    policy.reload(&document(&format!("{store}{}", routes("0/h")))).expect("it is taken");
    assert_eq!(request.outcome(), Outcome::Allowed);
    assert_eq!(admit(&policy), Outcome::Refused);
}

#[test]
fn a_bad_document_is_refused_and_the_old_one_stays() {
    let store = text("", "");
    let policy = Policy::new(&document(&format!("{store}{}", routes("1/h")))).expect("a policy");
    let without = document(&format!("{store}[rules]\nr = \"9/h\"\n"));
    assert_eq!(policy.reload(&without).expect_err("it has no routes").code(), "invalid_document");
    assert_eq!([(); 2].map(|()| admit(&policy)), [Outcome::Allowed, Outcome::Refused]);
    assert_eq!((policy.metrics().reloads, policy.metrics().reloads_refused), (0, 1));
}

#[test]
fn a_watched_file_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, store) = (folder.path().join("rules.toml"), text("", ""));
    let write = |rest: &str| std::fs::write(&path, format!("{store}{rest}")).expect("the file can be written");
    write(&routes("1/h"));
    let policy = Policy::watch(&path).expect("a policy");
    assert_eq!([(); 2].map(|()| admit(&policy)), [Outcome::Allowed, Outcome::Refused]);

    write("[rules]\nr = \"2 per fortnight\"\n");
    eventually(SOON, || {
        assert_eq!(admit(&policy), Outcome::Refused, "the old one stays");
        policy.metrics().reloads_refused == 1
    });
    write(&routes("2/h"));
    eventually(SOON, || admit(&policy) == Outcome::Allowed);
    assert_eq!((policy.metrics().reloads, policy.metrics().reloads_refused), (1, 1));

    std::fs::remove_file(&path).expect("it is there");
    eventually(SOON, || {
        admit(&policy);
        policy.metrics().reloads_refused == 2
    });
    // Replaced as editors and config maps do it: another file in its place.
    let new = folder.path().join("new.toml");
    std::fs::write(&new, format!("{store}{}", routes("3/h"))).expect("the file can be written");
    std::fs::rename(&new, &path).expect("the file can be moved");
    eventually(SOON, || admit(&policy) == Outcome::Allowed);
    assert_eq!((policy.metrics().reloads, policy.metrics().reloads_refused), (2, 2));
}

#[test]
fn another_store_is_opened() {
    let policy = Policy::new(&document(&text("", &routes("1/h")))).expect("a policy");
    assert_eq!(admit(&policy), Outcome::Allowed);
    policy.reload(&document(&text(&shared_server().url(), &routes("1/h")))).expect("it is taken");
    assert_eq!([(); 2].map(|()| admit(&policy)), [Outcome::Allowed, Outcome::Refused]);
}

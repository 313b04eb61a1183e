//! The checker fails on histories that break the contract, and passes those beside them that do not.

use super::*;
use crate::rules::{AUDIT, BUCKET, BUCKET_BURST, HOT, HOT_LIMIT, LEDGER, QUOTA, QUOTA_LIMIT};

const SECOND: u64 = 1_000_000;
/// A time at which nothing else happens.
const LATER: u64 = 100 * SECOND;

fn call(rule: &str, key: &str, invoked: u64) -> Call {
    Call {
        client: 0,
        invoked,
        answered: invoked + 200,
        rule: rule.to_owned(),
        key: key.to_owned(),
        id: None,
        by: By::Store,
        allowed: true,
        charged: true,
        failure: None,
    }
}

fn refused(call: Call) -> Call {
    Call { allowed: false, charged: false, ..call }
}

fn unknown(call: Call) -> Call {
    Call { by: By::Open, charged: false, failure: Some("timeout".to_owned()), ..call }
}

/// A short and lawful run: one admission under each rule, and the store keeps what it should.
fn lawful() -> Evidence {
    let mut calls: Vec<Call> =
        [HOT, BUCKET, QUOTA, LEDGER].iter().map(|rule| call(rule, &format!("{rule}0"), LATER)).collect();
    calls.push(Call { id: Some("a".to_owned()), ..call(AUDIT, "audit0", LATER) });
    Evidence {
        clients: vec![History { calls, threads: vec![5, 5, 6], overslept: 0 }],
        faults: Vec::new(),
        ledger: BTreeMap::from([("ledger0".to_owned(), 1)]),
        audit: BTreeMap::from([("audit0".to_owned(), vec![("a".to_owned(), 1)])]),
    }
}

/// The same with more calls.
fn with(calls: impl IntoIterator<Item = Call>) -> Evidence {
    let mut evidence = lawful();
    evidence.clients[0].calls.extend(calls);
    evidence
}

fn failover(from: u64, to: u64) -> Fault {
    Fault { start: from, end: to, served: LATER, slots: vec![0..=16_383], loses: true, overlap: 0 }
}

#[track_caller]
fn assert_lawful(evidence: &Evidence) {
    assert_eq!(check(evidence).problems, [""; 0]);
}

#[track_caller]
fn assert_broken(evidence: &Evidence, words: &str) {
    let problems = check(evidence).problems;
    assert!(problems.len() == 1 && problems[0].contains(words), "{words}: {problems:?}");
}

fn many(count: usize, one: impl Fn(u64) -> Call) -> impl Iterator<Item = Call> {
    (0..count as u64).map(one)
}

#[test]
fn a_lawful_history_passes_and_is_counted() {
    let mut evidence = with([
        refused(unknown(call(LEDGER, "ledger0", 1))),
        Call { by: By::Local, ..unknown(call(LEDGER, "ledger0", 2)) },
    ]);
    evidence.clients[0].calls[0].answered += 7;
    let findings = check(&evidence);
    assert_eq!(findings.problems, [""; 0]);
    assert_eq!((findings.calls, findings.admitted, findings.open, findings.local), (7, 5, 1, 1));
    assert_eq!((findings.worst_wait, findings.above), (207, 0));
    assert_eq!(findings.failures, BTreeMap::from([("timeout".to_owned(), 2)]));
}

#[test]
fn more_than_the_limit_within_a_window_is_seen() {
    let at = |count: usize| with(many(count, |index| call(HOT, "hot1", index * 1_000)));
    assert_lawful(&at(HOT_LIMIT));
    assert_broken(&at(HOT_LIMIT + 1), "hot1: 21 were admitted within one window");
    assert_eq!(check(&at(HOT_LIMIT + 1)).above, 1);
}

#[test]
fn what_may_have_been_outside_of_the_window_is_no_violation() {
    let mut evidence = with(many(HOT_LIMIT, |index| call(HOT, "hot1", index * 1_000)));
    // Sent within the window, and answered after it: it may have been charged then.
    let last = Call { answered: SECOND, ..call(HOT, "hot1", SECOND - 1_100) };
    evidence.clients[0].calls.push(last.clone());
    assert_lawful(&evidence);
    evidence.clients[0].calls.push(Call { answered: SECOND - 1_001, ..last });
    assert_broken(&evidence, "hot1: 21 were admitted");
    let spread = many(5 * HOT_LIMIT, |index| call(HOT, "hot1", index * SECOND / HOT_LIMIT as u64));
    assert_lawful(&with(spread));
}

#[test]
fn a_failover_excuses_one_further_quota_and_only_where_and_when_it_was() {
    let twice = |count: usize, fault: Fault| {
        let mut evidence = with(many(count, |index| call(QUOTA, "quota1", SECOND + index * 1_000)));
        evidence.faults.push(fault);
        evidence
    };
    let during = failover(SECOND, 2 * SECOND);
    assert_lawful(&twice(2 * QUOTA_LIMIT, during.clone()));
    assert_broken(&twice(2 * QUOTA_LIMIT + 1, during.clone()), "quota1: 81");
    assert_broken(&twice(QUOTA_LIMIT + 1, failover(2 * SECOND, 3 * SECOND)), "quota1: 41");
    let slot = slot(b"quota1");
    let elsewhere = Fault { slots: vec![0..=slot - 1, slot + 1..=16_383], ..during };
    assert_broken(&twice(QUOTA_LIMIT + 1, elsewhere), "quota1: 41");
    assert_broken(&twice(QUOTA_LIMIT + 1, Fault { loses: false, ..during }), "quota1: 41");
}

#[test]
fn more_than_a_bucket_holds_is_seen() {
    let burst = usize::try_from(BUCKET_BURST).expect("it is small");
    let at = |count: usize, gap: u64| with(many(count, |index| call(BUCKET, "bucket1", SECOND + index * gap)));
    assert_lawful(&at(burst, 10));
    assert_broken(&at(burst + 1, 10), "bucket1: 11 were admitted");
    assert_lawful(&at(200, SECOND / 20));
    assert_broken(&at(200, SECOND / 22), "bucket1: 200 were admitted");
    let mut evidence = at(2 * burst, 10);
    evidence.faults.push(failover(SECOND, 2 * SECOND));
    assert_lawful(&evidence);
    evidence.clients[0].calls.push(call(BUCKET, "bucket1", SECOND));
    assert_broken(&evidence, "1 more than could be");
    evidence.faults[0].overlap = SECOND / 10;
    assert_broken(&evidence, "1 more than could be");
}

#[test]
fn a_refusal_without_a_reason_is_seen() {
    let after = |count: usize| {
        let charges = many(count, |index| call(HOT, "hot1", LATER + index));
        with(charges.chain([refused(call(HOT, "hot1", LATER + SECOND / 2))]))
    };
    assert_lawful(&after(HOT_LIMIT));
    assert_broken(&after(HOT_LIMIT - 1), "hot1: 1 were refused before 20");
    let mut evidence = after(HOT_LIMIT - 1);
    evidence.clients[0].calls.push(unknown(call(HOT, "hot1", 7)));
    assert_lawful(&evidence);
    let too_late = many(HOT_LIMIT, |index| call(HOT, "hot1", LATER + index));
    let evidence = with(too_late.chain([refused(call(HOT, "hot1", LATER + 2 * SECOND))]));
    assert_broken(&evidence, "hot1: 1 were refused");
}

#[test]
fn a_double_charge_is_seen() {
    let mut evidence = lawful();
    evidence.ledger.insert("ledger0".to_owned(), 2);
    assert_broken(&evidence, "ledger0: 2 charges are kept of 1 admitted and 0 unknown");
    evidence.faults.push(failover(LATER, LATER));
    assert_broken(&evidence, "ledger0: 2 charges");
    evidence.clients[0].calls.push(unknown(call(LEDGER, "ledger0", 7)));
    assert_lawful(&evidence);
    let sent = evidence.clients[0].calls.last_mut().expect("there are some");
    sent.failure = Some("circuit_open".to_owned());
    assert_broken(&evidence, "ledger0: 2 charges");

    let mut evidence = lawful();
    let log = evidence.audit.get_mut("audit0").expect("it is there");
    log.push(("a".to_owned(), 1));
    assert_broken(&evidence, "request a of cost 1 was charged 2");
}

#[test]
fn a_lost_charge_is_seen_unless_a_failover_may_lose_it() {
    let lose: [fn(&mut Evidence); 2] = [
        |evidence| *evidence.ledger.get_mut("ledger0").expect("it is there") = 0,
        |evidence| evidence.audit.get_mut("audit0").expect("it is there").clear(),
    ];
    for lose in lose {
        let mut evidence = lawful();
        lose(&mut evidence);
        assert_broken(&evidence, "nothing can be lost");
        evidence.faults.push(failover(LATER, LATER));
        assert_lawful(&evidence);
    }
    let mut evidence = lawful();
    evidence.ledger.clear();
    assert_broken(&evidence, "nobody looked");
}

#[test]
fn a_charge_of_what_was_refused_is_seen() {
    let denied = Call { id: Some("b".to_owned()), ..refused(call(AUDIT, "audit0", LATER)) };
    let mut evidence = with([denied]);
    evidence.audit.get_mut("audit0").expect("it is there").push(("b".to_owned(), 1));
    assert_broken(&evidence, "request b was charged, and its client was told");
    assert_broken(&with([Call { charged: false, ..call(HOT, "hot1", 1) }]), "without a charge");
    assert_broken(&with([Call { by: By::Open, ..call(HOT, "hot1", 1) }]), "have a receipt");
}

#[test]
fn a_late_answer_is_seen() {
    let late = |micros: u64| with([Call { answered: 1 + micros, ..call(LEDGER, "ledger0", 1) }]);
    let mut evidence = late(150_000);
    evidence.ledger.insert("ledger0".to_owned(), 2);
    assert_lawful(&evidence);
    let mut evidence = late(150_001);
    evidence.ledger.insert("ledger0".to_owned(), 2);
    assert_broken(&evidence, "1 calls were answered past the deadline, the worst after 150 ms");
    assert_eq!(check(&evidence).slowest[0].answered, 150_002);
    // A machine that lets sleepers wait lets others wait too.
    evidence.clients[0].overslept = 1;
    assert_lawful(&evidence);
}

#[test]
fn a_client_that_does_not_recover_in_time_is_seen() {
    let served = |at: u64| {
        let mut evidence = lawful();
        evidence.faults.push(Fault { served: at, ..failover(LATER - 3 * SECOND, LATER) });
        evidence
    };
    assert_lawful(&served(LATER - SECOND));
    assert_eq!(check(&served(LATER - SECOND)).recovery, Some(SECOND + 200));
    assert_broken(&served(LATER - 2 * SECOND), "client 0 recovered after 2000 ms");
    assert_broken(&served(LATER + SECOND), "client 0 did not recover");
}

#[test]
fn two_primaries_for_too_long_are_seen() {
    let mut evidence = lawful();
    evidence.faults.push(Fault { overlap: 3_000_001, ..failover(LATER, LATER) });
    assert_broken(&evidence, "two primaries");
}

#[test]
fn a_client_that_grows_or_does_nothing_is_seen() {
    let mut evidence = lawful();
    evidence.clients[0].threads.push(14);
    assert_broken(&evidence, "client 0 had Some(5) threads at first");
    let mut evidence = lawful();
    evidence.clients[0].calls.remove(0);
    assert_broken(&evidence, "never admitted under hot");
}

#[test]
fn histories_survive_being_written_and_a_cut_one_is_refused() {
    let history = &with([refused(unknown(call(HOT, "hot1", 1)))]).clients[0];
    let text = history.text();
    assert_eq!(History::parse(&text).as_ref(), Ok(history));
    assert!(History::parse(&text[..text.len() - 2]).is_err());
    assert!(History::parse(&text.replace("store", "stork")).is_err());
}

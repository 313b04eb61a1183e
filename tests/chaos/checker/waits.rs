//! Nobody waits past the deadline, every client recovers, and none grows threads.

use super::{Evidence, Fault, Findings};
use crate::record::{By, Call, History, micros};
use crate::rules::{AUDIT, BUCKET, DEADLINE, HOT, LEDGER, NODE_TIMEOUT, QUOTA, RECOVERY, SLACK};

/// The threads that a client may have more than at its start: each of the nodes may have a file read at a time.
const MORE_THREADS: usize = 8;
/// How often over a call's threads, its own and the one that talks to servers, may be as late as one that only sleeps.
const BUSY: u64 = 4;
/// What the poll of the servers' state may add to a time.
const LOOK: u64 = 1_000_000;

pub(super) fn check(evidence: &Evidence, findings: &mut Findings) {
    findings.overslept = evidence.clients.iter().map(|client| client.overslept).max().unwrap_or_default();
    let wait = |call: &&Call| call.answered - call.invoked;
    let mut calls: Vec<&Call> = evidence.calls().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(wait(call)));
    findings.worst_wait = calls.first().map(wait).unwrap_or_default();
    findings.slowest = calls.iter().take(5).map(|call| (*call).clone()).collect();
    let lawful = micros(DEADLINE + SLACK) + BUSY * findings.overslept;
    let late = calls.iter().take_while(|call| wait(call) > lawful).count();
    if late > 0 {
        let worst = findings.worst_wait / 1_000;
        findings.problems.push(format!("{late} calls were answered past the deadline, the worst after {worst} ms"));
    }
    for (client, history) in evidence.clients.iter().enumerate() {
        well(client, history, &mut findings.problems);
        for fault in &evidence.faults {
            recovered(client, history, fault, findings);
        }
    }
    for fault in evidence.faults.iter().filter(|fault| fault.overlap > micros(NODE_TIMEOUT) + LOOK) {
        findings.problems.push(format!("two primaries admitted for {} ms", fault.overlap / 1_000));
    }
}

/// Whether a client did something at all, and stayed as it was.
fn well(client: usize, history: &History, problems: &mut Vec<String>) {
    for rule in [HOT, BUCKET, QUOTA, LEDGER, AUDIT] {
        if !history.calls.iter().any(|call| call.rule == rule && call.is_admitted()) {
            problems.push(format!("client {client} was never admitted under {rule}"));
        }
    }
    let (first, most) = (history.threads.first().copied(), history.threads.iter().max());
    if first.zip(most).is_none_or(|(first, most)| *most > first + MORE_THREADS) {
        problems.push(format!("client {client} had {first:?} threads at first, and then up to {most:?}"));
    }
}

fn recovered(client: usize, history: &History, fault: &Fault, findings: &mut Findings) {
    let after = || history.calls.iter().filter(|call| fault.concerns(&call.key) && call.answered >= fault.served);
    let decided = after().filter(|call| call.by == By::Store).map(|call| call.answered - fault.served).min();
    let failed = after().filter(|call| call.failure.is_some()).map(|call| call.answered - fault.served).max();
    findings.recovery = findings.recovery.max(decided);
    findings.last_failure = findings.last_failure.max(failed);
    match decided {
        None => findings.problems.push(format!("client {client} did not recover")),
        Some(time) if time > micros(RECOVERY) => {
            findings.problems.push(format!("client {client} recovered after {} ms", time / 1_000));
        }
        Some(_) => {}
    }
}

//! Law 1 under faults: never above the limit, but for one further quota per key and failover; and never below it either.

use super::{Evidence, Findings};
use crate::record::{Call, micros};
use crate::rules::{BUCKET, BUCKET_BURST, BUCKET_RATE, HOT, HOT_LIMIT, HOT_WINDOW, QUOTA, QUOTA_LIMIT, QUOTA_WINDOW};

const SECOND: u64 = 1_000_000;
/// The store's clock is the time of day, which may be slewed against the monotonic one: at most 1 in 1,000.
const DRIFT: u64 = 1_000;

pub(super) fn check(evidence: &Evidence, findings: &mut Findings) {
    let windows = [(HOT, HOT_LIMIT, micros(HOT_WINDOW)), (QUOTA, QUOTA_LIMIT, micros(QUOTA_WINDOW))];
    for (rule, limit, window) in windows {
        for (key, calls) in evidence.of_rule(rule) {
            window_holds(evidence, findings, key, &calls, limit, window);
            refusals_are_meant(findings, key, &calls, limit, window);
        }
    }
    for (key, calls) in evidence.of_rule(BUCKET) {
        bucket_holds(evidence, findings, key, &calls);
    }
}

/// The intervals in which the store admitted, by their beginning.
fn admitted(calls: &[&Call]) -> Vec<(u64, u64)> {
    let admitted = calls.iter().filter(|call| call.is_admitted());
    let mut intervals: Vec<_> = admitted.map(|call| (call.invoked, call.answered)).collect();
    intervals.sort_unstable();
    intervals
}

/// No window holds more intervals, whole ones, than the limit.
fn window_holds(evidence: &Evidence, findings: &mut Findings, key: &str, calls: &[&Call], limit: usize, window: u64) {
    let (intervals, window) = (admitted(calls), window - window / DRIFT);
    let over = intervals.iter().enumerate().filter_map(|(first, &(from, _))| {
        let to = from + window;
        let later = intervals[first..].iter().take_while(|(invoked, _)| *invoked < to);
        let count = later.filter(|(_, answered)| *answered < to).count();
        // The last of them is what counts: a fault after it cannot have been its reason.
        let last = intervals[first..].iter().map(|(_, answered)| *answered).filter(|answered| *answered < to).max();
        let quotas = 1 + evidence.excuses(key, from, last.unwrap_or(from)).count();
        findings.above = findings.above.max(count.saturating_sub(limit));
        (count > limit * quotas).then_some((count, quotas))
    });
    if let Some((count, quotas)) = over.max() {
        let problem = format!("{key}: {count} were admitted within one window, {quotas} quotas of {limit} could be");
        findings.problems.push(problem);
    }
}

/// In any time at most the burst and what flowed in.
fn bucket_holds(evidence: &Evidence, findings: &mut Findings, key: &str, calls: &[&Call]) {
    let intervals = admitted(calls);
    let flow = |time: u64| (time + time / DRIFT) * BUCKET_RATE / SECOND;
    let mut worst = None;
    for (first, &(from, _)) in intervals.iter().enumerate() {
        let mut ends: Vec<u64> = intervals[first..].iter().map(|(_, answered)| *answered).collect();
        ends.sort_unstable();
        for (count, &to) in (1_u64..).zip(&ends) {
            let lawful = BUCKET_BURST + flow(to - from);
            let above = count.saturating_sub(lawful);
            findings.above = findings.above.max(usize::try_from(above).unwrap_or(usize::MAX));
            if above > 0 {
                let further = |overlap: u64| BUCKET_BURST + flow(overlap.min(to - from));
                let further: u64 = evidence.excuses(key, from, to).map(|fault| further(fault.overlap)).sum();
                worst = worst.max((above > further).then(|| (above - further, count, to - from)));
            }
        }
    }
    if let Some((above, count, time)) = worst {
        findings.problems.push(format!("{key}: {count} were admitted in {time} us, {above} more than could be"));
    }
}

/// The store refuses only where as many as the limit may have been charged within a window before.
fn refusals_are_meant(findings: &mut Findings, key: &str, calls: &[&Call], limit: usize, window: u64) {
    let may_count = |call: &&&Call| call.is_admitted() || call.is_unknown();
    let mut begun: Vec<u64> = calls.iter().filter(may_count).map(|call| call.invoked).collect();
    // What is unknown may be charged long after it was given up.
    let end = |call: &&Call| if call.is_unknown() { u64::MAX } else { call.answered };
    let mut ended: Vec<u64> = calls.iter().filter(may_count).map(end).collect();
    begun.sort_unstable();
    ended.sort_unstable();
    let refused = calls.iter().filter(|call| call.by == crate::record::By::Store && !call.allowed);
    let early = refused.filter(|call| {
        let from = call.invoked.saturating_sub(window + window / DRIFT);
        let begun = begun.partition_point(|invoked| *invoked <= call.answered);
        let ended = ended.partition_point(|answered| *answered < from);
        begun - ended < limit
    });
    let early = early.count();
    if early > 0 {
        findings.problems.push(format!("{key}: {early} were refused before {limit} could have been charged"));
    }
}

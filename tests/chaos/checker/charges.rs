//! Law 14: each admission is charged once, and nothing else is.

use std::collections::{BTreeMap, BTreeSet};

use super::{Evidence, Findings};
use crate::record::Call;
use crate::rules::{AUDIT, LEDGER};

pub(super) fn check(evidence: &Evidence, findings: &mut Findings) {
    for (key, calls) in evidence.of_rule(LEDGER) {
        findings.problems.extend(ledger(evidence, key, &calls));
    }
    for (key, calls) in evidence.of_rule(AUDIT) {
        audit(evidence, key, &calls, &mut findings.problems);
    }
    // A repeat of a request is admitted without a charge; no other admission is.
    let free = evidence.calls().filter(|call| call.is_admitted() && !call.charged && call.rule != AUDIT).count();
    if free > 0 {
        findings.problems.push(format!("{free} were admitted by the store without a charge"));
    }
    let paid = evidence.calls().filter(|call| !call.is_admitted() && call.charged).count();
    if paid > 0 {
        findings.problems.push(format!("{paid} have a receipt though the store did not admit them"));
    }
}

fn may_have_lost(evidence: &Evidence, key: &str) -> bool {
    evidence.excuses(key, 0, u64::MAX).next().is_some()
}

fn ledger(evidence: &Evidence, key: &str, calls: &[&Call]) -> Option<String> {
    let admitted = calls.iter().filter(|call| call.is_admitted()).count() as u64;
    let unknown = calls.iter().filter(|call| call.is_unknown()).count() as u64;
    let Some(&kept) = evidence.ledger.get(key) else { return Some(format!("{key}: nobody looked what is kept of it")) };
    if kept > admitted + unknown {
        return Some(format!("{key}: {kept} charges are kept of {admitted} admitted and {unknown} unknown calls"));
    }
    let lost = kept < admitted && !may_have_lost(evidence, key);
    lost.then(|| format!("{key}: {kept} charges are kept of {admitted} admitted calls, and nothing can be lost"))
}

fn audit(evidence: &Evidence, key: &str, calls: &[&Call], problems: &mut Vec<String>) {
    let Some(kept) = evidence.audit.get(key) else {
        return problems.push(format!("{key}: nobody looked what is kept of it"));
    };
    let ids = |of: fn(&Call) -> bool| -> BTreeSet<&str> {
        calls.iter().filter(|call| of(call)).filter_map(|call| call.id.as_deref()).collect()
    };
    let (admitted, unknown) = (ids(Call::is_admitted), ids(Call::is_unknown));
    let mut units = BTreeMap::<&str, u32>::new();
    for (id, kept) in kept {
        *units.entry(id).or_default() += kept;
    }
    for (id, units) in &units {
        if *units != 1 {
            problems.push(format!("{key}: request {id} of cost 1 was charged {units}"));
        }
        if !admitted.contains(id) && !unknown.contains(id) {
            problems.push(format!("{key}: request {id} was charged, and its client was told that it was not"));
        }
    }
    let lost = admitted.iter().filter(|id| !units.contains_key(*id)).count();
    if lost > 0 && !may_have_lost(evidence, key) {
        problems.push(format!("{key}: {lost} admitted requests are not in the log, and nothing can be lost"));
    }
}

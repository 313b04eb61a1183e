//! Holds the clients' histories against the contract.
//!
//! A charge happened at some moment between a call's invocation and its answer, by a clock that all share. So what is
//! called a violation here is certain: it is one wherever in between the charges were made.

mod charges;
mod limits;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use tidegate_tests::servers::slot;

use crate::record::{By, Call, History};

/// What was done to the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) start: u64,
    /// When the servers agreed again.
    pub(crate) end: u64,
    /// From when its slots can be served again: the promotion, or the end of what hindered them.
    pub(crate) served: u64,
    pub(crate) slots: Vec<RangeInclusive<u16>>,
    /// Whether what the store knew may be lost, which is a failover's right: one further quota per key.
    pub(crate) loses: bool,
    /// How long two primaries may both have admitted.
    pub(crate) overlap: u64,
}

impl Fault {
    /// Whether the store may have lost or doubled something of a key between two moments.
    fn excuses(&self, key: &str, from: u64, to: u64) -> bool {
        self.loses && self.concerns(key) && self.start <= to && self.end >= from
    }

    fn concerns(&self, key: &str) -> bool {
        let slot = slot(key.as_bytes());
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

/// All that is known after a scenario.
#[derive(Debug, Default, Clone)]
pub(crate) struct Evidence {
    pub(crate) clients: Vec<History>,
    pub(crate) faults: Vec<Fault>,
    /// The units that the store keeps of each key of the ledger.
    pub(crate) ledger: BTreeMap<String, u64>,
    /// The requests that the store keeps of each key of the audit: id and units.
    pub(crate) audit: BTreeMap<String, Vec<(String, u32)>>,
}

impl Evidence {
    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.clients.iter().flat_map(|client| &client.calls)
    }

    /// The calls of one rule, by key.
    fn of_rule(&self, rule: &str) -> BTreeMap<&str, Vec<&Call>> {
        let mut keys = BTreeMap::<&str, Vec<&Call>>::new();
        for call in self.calls().filter(|call| call.rule == rule) {
            keys.entry(&call.key).or_default().push(call);
        }
        keys
    }

    /// The faults that may have lost or doubled something of a key between two moments.
    fn excuses(&self, key: &str, from: u64, to: u64) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| fault.excuses(key, from, to))
    }
}

/// The figures, and what is wrong.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<String>,
    pub(crate) calls: usize,
    pub(crate) admitted: usize,
    pub(crate) refused: usize,
    pub(crate) open: usize,
    pub(crate) closed: usize,
    pub(crate) local: usize,
    /// Failures by kind.
    pub(crate) failures: BTreeMap<String, usize>,
    pub(crate) worst_wait: u64,
    /// The five slowest calls, the slowest first.
    pub(crate) slowest: Vec<Call>,
    pub(crate) overslept: u64,
    /// The most that any key was admitted above its limit, whether or not a fault excuses it.
    pub(crate) above: usize,
    /// The longest that a client waited for a decision of the store's once there was one to be had.
    pub(crate) recovery: Option<u64>,
    /// When the last call failed, counted from the same moment.
    pub(crate) last_failure: Option<u64>,
}

pub(crate) fn check(evidence: &Evidence) -> Findings {
    let mut findings = Findings::default();
    for call in evidence.calls() {
        findings.calls += 1;
        match call.by {
            By::Store if call.allowed => findings.admitted += 1,
            By::Store | By::Cache => findings.refused += 1,
            By::Local => findings.local += 1,
            By::Open => findings.open += 1,
            By::Closed => findings.closed += 1,
        }
        if let Some(failure) = &call.failure {
            *findings.failures.entry(failure.clone()).or_default() += 1;
        }
    }
    limits::check(evidence, &mut findings);
    charges::check(evidence, &mut findings);
    waits::check(evidence, &mut findings);
    findings
}

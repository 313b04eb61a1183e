//! The same for programs: one line, times in whole milliseconds rounded up.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::{Decision, LimitDecision, LogEntry};

use super::show;
use crate::args::Target;
use crate::words;

pub(super) fn decision(target: &Target, cost: u64, decision: &Decision) -> Value {
    json!({
        "rule": target.rule,
        "key": key(target),
        "cost": cost,
        "allowed": decision.allowed(),
        "limit": decision.limit(),
        "remaining": decision.remaining(),
        "reset_after_ms": millis(decision.reset_after()),
        "retry_after_ms": millis(decision.retry_after()),
        "origin": decision.origin().name(),
        "limits": decision.limits().map(|limit| of_decision(&limit)).collect::<Vec<_>>(),
    })
}

pub(super) fn state(target: &Target, peeked: &Decision, log: &[LogEntry]) -> Value {
    json!({
        "rule": target.rule,
        "key": key(target),
        "limits": peeked.limits().map(|limit| of_state(&limit)).collect::<Vec<_>>(),
        "log": log.iter().map(of_entry).collect::<Vec<_>>(),
    })
}

/// A key of one part is a text, one of several a list.
pub(super) fn key(target: &Target) -> Value {
    let mut parts: Vec<Value> = target.key.iter().map(|part| part.to_string_lossy().into()).collect();
    if parts.len() == 1 { parts.remove(0) } else { parts.into() }
}

fn of_decision(limit: &LimitDecision<'_>) -> Value {
    let mut fields = described(limit);
    fields["allowed"] = limit.allowed().into();
    fields["remaining"] = limit.remaining().into();
    fields["reset_after_ms"] = millis(limit.reset_after());
    fields["retry_after_ms"] = millis(limit.retry_after());
    fields
}

fn of_state(limit: &LimitDecision<'_>) -> Value {
    let mut fields = described(limit);
    fields["used"] = show::used(limit).into();
    fields["remaining"] = limit.remaining().into();
    fields["reset_after_ms"] = millis(limit.reset_after());
    fields
}

/// Oldest first, as the store has them.
fn of_entry(entry: &LogEntry) -> Value {
    json!({
        "at_us": entry.at,
        "window_ms": words::millis(entry.window),
        "units": entry.units,
        "id": entry.id.as_deref().map(String::from_utf8_lossy),
    })
}

fn described(limit: &LimitDecision<'_>) -> Value {
    json!({
        "name": limit.name(),
        "algorithm": limit.algorithm().name(),
        "limit": limit.limit(),
        "window_ms": words::millis(limit.window()),
        "burst": limit.burst(),
        "enforced": limit.enforced(),
    })
}

fn millis(time: Option<Duration>) -> Value {
    time.map(words::millis).into()
}

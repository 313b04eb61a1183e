//! What came, in the words of the files; and how it differs from what they expect.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::{Counted, Decision, Error, LimitDecision};

pub(crate) fn of_decision(decision: &Decision) -> Value {
    json!({
        "allowed": decision.allowed(),
        "repeat": decision.is_repeat(),
        "remaining": decision.remaining(),
        "retry_after_us": micros(decision.retry_after()),
        "reset_after_us": micros(decision.reset_after()),
        "binding": place_of_binding(decision),
        "limits": decision.limits().map(|limit| of_limit(&limit)).collect::<Vec<_>>(),
        "origin": decision.origin().name(),
        "failure": decision.failure().map(Error::code),
    })
}

fn of_limit(limit: &LimitDecision<'_>) -> Value {
    json!({
        "allowed": limit.allowed(),
        "remaining": limit.remaining(),
        "retry_after_us": micros(limit.retry_after()),
        "reset_after_us": micros(limit.reset_after()),
    })
}

/// No two limits of a call are of one rule, algorithm, window and name.
fn place_of_binding(decision: &Decision) -> Option<usize> {
    let of = |limit: &LimitDecision<'_>| {
        (limit.rule().to_owned(), limit.algorithm(), limit.window(), limit.name().map(str::to_owned))
    };
    let binding = of(&decision.binding());
    decision.limits().position(|limit| of(&limit) == binding)
}

/// Times are told from the case's start.
pub(crate) fn of_count(counted: &Counted, start: u64) -> Value {
    let began = (counted.start > 0).then(|| counted.start.cast_signed() - start.cast_signed());
    json!({"total": counted.total, "time_left_us": micros(Some(counted.left)), "start_us": began})
}

pub(crate) fn of_error(error: &Error) -> Value {
    json!({"error": error.code()})
}

fn micros(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_micros()).expect("no time is that long"))
}

/// Where what was found is not what was expected: only the fields that are there are compared.
pub(crate) fn differences(expected: &Value, found: &Value) -> Result<(), String> {
    let mut differences = Vec::new();
    compare("", expected, found, &mut differences);
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!("  {}\n  expected {expected}\n  found    {found}", differences.join("\n  ")))
}

fn compare(place: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    match (expected, found) {
        _ if place.ends_with("ttl_ms") && ranges_meet(expected, found) => {}
        (Value::Object(expected), Value::Object(fields)) => {
            for (name, expected) in expected {
                let found = fields.get(name).unwrap_or(&Value::Null);
                compare(&format!("{place} {name}"), expected, found, differences);
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare(&format!("{place}[{index}]"), expected, found, differences);
            }
        }
        _ if expected == found => {}
        _ => differences.push(format!("{}: expected {expected}, found {found}", place.trim_start())),
    }
}

/// Of two ranges, each its least and its most: whether they have a number in common.
fn ranges_meet(one: &Value, other: &Value) -> bool {
    let bounds = |range: &Value| Some((range.get(0)?.as_i64()?, range.get(1)?.as_i64()?));
    bounds(one).zip(bounds(other)).is_some_and(|(one, other)| one.0 <= other.1 && other.0 <= one.1)
}

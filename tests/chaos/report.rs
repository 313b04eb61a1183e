//! The table.
#![allow(clippy::print_stdout, reason = "its output is what it is run for")]

use crate::checker::Findings;

pub(crate) fn head() {
    println!(
        "{:<15}{:>7}{:>9}{:>8}{:>7}{:>7}{:>7}{:>8}{:>8}{:>7}{:>9}{:>9}  verdict",
        "scenario",
        "calls",
        "admitted",
        "refused",
        "open",
        "closed",
        "local",
        "wait",
        "sleep",
        "above",
        "recovery",
        "last"
    );
}

/// What the columns are.
pub(crate) fn legend() {
    println!(
        "
admitted, refused: by the store (refusals that a client remembers too); open, closed, local: by the failure policy.
wait: the longest call; sleep: the longest that a thread which only sleeps was late. Both in milliseconds.
above: the most that a key was admitted above its limit in a window, certainly; a failover excuses one further quota.
recovery: until the slowest client had a decision of the store's, from the promotion or the fault's end, in milliseconds.
last: when the last call failed, from the same moment."
    );
}

pub(crate) fn row(name: &str, found: &Findings) {
    let millis = |micros: u64| format!("{}.{}", micros / 1_000, micros / 100 % 10);
    let some = |micros: Option<u64>| micros.map_or_else(|| "-".to_owned(), millis);
    println!(
        "{name:<15}{:>7}{:>9}{:>8}{:>7}{:>7}{:>7}{:>8}{:>8}{:>7}{:>9}{:>9}  {}",
        found.calls,
        found.admitted,
        found.refused,
        found.open,
        found.closed,
        found.local,
        millis(found.worst_wait),
        millis(found.overslept),
        found.above,
        some(found.recovery),
        some(found.last_failure),
        if found.problems.is_empty() { "held" } else { "BROKEN" },
    );
    if !found.failures.is_empty() {
        let kinds: Vec<String> = found.failures.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        println!("{:<15}{}", "", kinds.join(", "));
    }
    if found.problems.iter().any(|problem| problem.contains("past the deadline")) {
        found.slowest.iter().for_each(|call| println!("    {call} ({} us)", call.answered - call.invoked));
    }
    for problem in &found.problems {
        println!("    {problem}");
    }
}

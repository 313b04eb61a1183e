//! A decision in words.

use std::io::Write as _;

use tidegate::{Decision, LimitDecision};

use crate::args::{Ask, Target};
use crate::failure::Failure;
use crate::screen::{self, GREEN, RED, Screen};
use crate::words::{self, count};

/// Whether the request was decided, or only asked about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mood {
    Charged,
    Looked,
}

pub(super) fn decision(ask: &Ask, decision: &Decision, mood: Mood, screen: &mut Screen) -> Result<(), Failure> {
    headline(ask, decision, mood, screen)?;
    let mut table = screen::table(["Limit", "Algorithm", "Verdict", ">Remaining", ">Whole in"]);
    for limit in decision.limits() {
        let whole = limit.reset_after().map_or("never".to_owned(), words::time);
        let remaining = count(limit.remaining());
        table.add_row([&name(&limit), limit.algorithm().name(), &verdict(&limit), &remaining, &whole]);
    }
    writeln!(screen)?;
    screen.table(&table)?;
    Ok(())
}

fn headline(ask: &Ask, decision: &Decision, mood: Mood, screen: &mut Screen) -> Result<(), Failure> {
    let (rule, key) = (words::shown(ask.target.rule.as_bytes(), 64), key(&ask.target));
    let (allowed, refused) = match mood {
        Mood::Charged => ("Allowed:", "Refused:"),
        Mood::Looked => ("Would be allowed:", "Would be refused:"),
    };
    if decision.allowed() {
        let remaining = count(decision.remaining());
        writeln!(screen, "{GREEN}{allowed}{GREEN:#} {key} by rule {rule}; {remaining} left.")?;
    } else {
        let advice = match decision.retry_after() {
            Some(wait) => format!("try again in {}", words::time(wait)),
            None => format!("a cost of {} never passes", count(ask.cost)),
        };
        writeln!(screen, "{RED}{refused}{RED:#} {key} by rule {rule}; {advice}.")?;
    }
    Ok(())
}

/// `allowed`, or when this limit would allow it.
fn verdict(limit: &LimitDecision<'_>) -> String {
    match limit.retry_after() {
        _ if limit.allowed() => "allowed".to_owned(),
        Some(wait) => format!("in {}", words::time(wait)),
        None => "never".to_owned(),
    }
}

/// `100 per 1m, burst 20, shadow`, after the limit's name if it has one.
pub(super) fn name(limit: &LimitDecision<'_>) -> String {
    let mut text = limit.name().map(|name| format!("{}: ", words::shown(name.as_bytes(), 20))).unwrap_or_default();
    text += &format!("{} per {}", count(limit.limit()), words::time(limit.window()));
    if limit.burst() != limit.limit() {
        text += &format!(", burst {}", count(limit.burst()));
    }
    if !limit.enforced() {
        text += ", shadow";
    }
    text
}

/// The key as a reader knows it; its parts apart.
pub(super) fn key(target: &Target) -> String {
    let parts: Vec<_> = target.key.iter().map(|part| words::shown(part.as_encoded_bytes(), 64)).collect();
    parts.join(" / ")
}

//! `tidegate show`: a block for each limit, with how much of it is used, and what the logs keep.

use std::io::Write as _;

use jiff::Timestamp;
use tidegate::{Decision, LimitDecision, LogEntry};

use super::text;
use crate::args::Target;
use crate::failure::Failure;
use crate::screen::{self, BOLD, Screen};
use crate::words::{self, count};

const GAUGE: usize = 40;

/// How many entries of a log are shown; `--json` has all that the store gave.
const NEWEST: usize = 20;

pub(super) fn state(target: &Target, peeked: &Decision, log: &[LogEntry], screen: &mut Screen) -> Result<(), Failure> {
    let rule = words::shown(target.rule.as_bytes(), 64);
    writeln!(screen, "{BOLD}{}{BOLD:#} by rule {BOLD}{rule}{BOLD:#}", text::key(target))?;
    for limit in peeked.limits() {
        writeln!(screen, "\n{}, {}", text::name(&limit), limit.algorithm())?;
        usage(&limit, screen)?;
    }
    if log.is_empty() { Ok(()) } else { entries(log, screen) }
}

/// An entry counts for a window from its time; what is older is dropped by the next charge.
fn entries(log: &[LogEntry], screen: &mut Screen) -> Result<(), Failure> {
    // The store tells the newest thousand units of each log.
    let told: u64 = log.iter().map(|entry| u64::from(entry.units)).sum();
    let most = if told >= 1_000 { "the newest " } else { "" };
    let (shown, all) = (NEWEST.min(log.len()), count(log.len() as u64));
    screen.heading(&format!("Log, newest first: {shown} of {most}{all}"))?;
    let mut newest: Vec<_> = log.iter().collect();
    newest.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    let mut table = screen::table(["Charged at (UTC)", "Counts for", ">Units", "Id", "Limit"]);
    for entry in newest.into_iter().take(NEWEST) {
        let id = entry.id.as_deref().map_or("-".to_owned(), |id| words::shown(id, 40));
        let limit = entry.name.as_deref().unwrap_or("-").to_owned();
        table.add_row([&charged_at(entry), &words::time(entry.window), &count(entry.units), &id, &limit]);
    }
    screen.table(&table)?;
    Ok(())
}

fn charged_at(entry: &LogEntry) -> String {
    let at = i64::try_from(entry.at).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    at.map_or_else(|| entry.at.to_string(), |at| at.strftime("%Y-%m-%d %H:%M:%S%.6f").to_string())
}

fn usage(limit: &LimitDecision<'_>, screen: &mut Screen) -> Result<(), Failure> {
    let (whole, remaining) = (limit.burst(), limit.remaining());
    let used = used(limit);
    let gauge = screen::gauge(used.into(), whole.into(), GAUGE);
    // Where a limit was lowered more may be used than it has; nobody tells how much.
    let used =
        if used == whole { format!("all of {}", count(whole)) } else { format!("{} of {}", count(used), count(whole)) };
    writeln!(screen, "  {gauge}  {used} used, {} left", count(remaining))?;
    match limit.reset_after() {
        None => writeln!(screen, "  refuses everything")?,
        Some(time) if time.is_zero() => writeln!(screen, "  untouched")?,
        Some(time) => writeln!(screen, "  whole again in {}", words::time(time))?,
    }
    Ok(())
}

/// What is used of a limit; of one that was lowered below its use, all.
pub(super) fn used(limit: &LimitDecision<'_>) -> u32 {
    limit.burst().saturating_sub(limit.remaining())
}

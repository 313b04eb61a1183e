//! The outcome of a replay, for people and for programs.

use std::io::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tidegate::Algorithm;

use super::history::History;
use super::verdict::Verdict;
use crate::args::{By, Replay};
use crate::failure::Failure;
use crate::screen::{self, BOLD, Screen};
use crate::words::{self, count};

/// How many of the keys that were refused most are shown.
const TOP: usize = 10;
/// How many characters of a key are shown.
const WIDEST_KEY: usize = 40;

pub(super) fn text(
    history: &History,
    verdicts: &[(Algorithm, Verdict)],
    replay: &Replay,
    screen: &mut Screen,
) -> Result<(), Failure> {
    summary(history, replay, screen)?;
    if history.requests() == 0 {
        writeln!(screen, "There is nothing to replay.")?;
        return Ok(());
    }
    screen.heading(&format!("{} for each {}", words::shown(replay.limit.as_bytes(), 60), name(replay.by)))?;
    outcomes(history, verdicts, screen)?;
    // The default algorithm if all were replayed, else the first that was asked for.
    let preferred = if replay.algorithms.is_empty() { Algorithm::default() } else { replay.algorithms[0] };
    let chosen = verdicts.iter().find(|(algorithm, _)| *algorithm == preferred);
    chosen.map_or(Ok(()), |(algorithm, verdict)| most_denied(history, *algorithm, verdict, replay.by, screen))
}

fn summary(history: &History, replay: &Replay, screen: &mut Screen) -> Result<(), Failure> {
    let log = words::shown(replay.log.as_os_str().as_encoded_bytes(), 60);
    let (requests, keys) = (count(history.requests()), count(history.keys() as u64));
    writeln!(screen, "{BOLD}{log}{BOLD:#}: {requests} requests, {keys} {}", plural(replay.by, history.keys()))?;
    if let [first, .., last] = history.in_order() {
        let date =
            |at: u32| Timestamp::from_second(at.into()).map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string());
        if let (Ok(first), Ok(last)) = (date(first.at), date(last.at)) {
            writeln!(screen, "from {first} to {last} UTC")?;
        }
    }
    if history.steps_back > 0 {
        writeln!(screen, "lines out of order: {}, replayed in order of their times", count(history.steps_back))?;
    }
    if history.without_key > 0 {
        writeln!(screen, "requests without a {}: {}, left out", name(replay.by), count(history.without_key))?;
    }
    if history.unreadable > 0 {
        screen.warning(&format!("unreadable lines: {}, left out", count(history.unreadable)))?;
        if history.requests() + history.without_key == 0 {
            screen.warning("Is the log in the common or the combined format, and plain or gzip?")?;
        }
    }
    Ok(())
}

fn outcomes(history: &History, verdicts: &[(Algorithm, Verdict)], screen: &mut Screen) -> Result<(), Failure> {
    let mut table = screen::table(["Algorithm", ">Allowed", ">Denied", ">Share denied", ""]);
    let most = verdicts.iter().map(|(_, verdict)| verdict.denied).max().unwrap_or(0);
    for (algorithm, verdict) in verdicts {
        let share = words::share(verdict.denied, history.requests());
        let bar = screen::bar(verdict.denied, most, most, 16);
        table.add_row([algorithm.name(), &count(verdict.allowed), &count(verdict.denied), &share, &bar]);
    }
    screen.table(&table)?;
    Ok(())
}

fn most_denied(
    history: &History,
    algorithm: Algorithm,
    verdict: &Verdict,
    by: By,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let top = verdict.most_denied(TOP);
    let Some((_, most)) = top.first() else {
        writeln!(screen, "\n{algorithm} would have denied nobody.")?;
        return Ok(());
    };
    screen.heading(&format!("Denied most by {algorithm}"))?;
    let mut table = screen::table([heading(by), ">Denied", ">Requests", ""]);
    for (key, denied) in &top {
        let requests = history.in_order().iter().filter(|request| request.key == *key).count();
        let bar = screen::bar((*denied).into(), (*most).into(), (*most).into(), 16);
        let key = words::shown(history.key(*key), WIDEST_KEY);
        table.add_row([&key, &count(*denied), &count(requests as u64), &bar]);
    }
    screen.table(&table)?;
    Ok(())
}

fn name(by: By) -> &'static str {
    match by {
        By::Ip => "address",
        By::User => "user",
        By::Path => "path",
    }
}

fn heading(by: By) -> &'static str {
    match by {
        By::Ip => "Address",
        By::User => "User",
        By::Path => "Path",
    }
}

fn plural(by: By, number: usize) -> &'static str {
    match (by, number) {
        (by, 1) => name(by),
        (By::Ip, _) => "addresses",
        (By::User, _) => "users",
        (By::Path, _) => "paths",
    }
}

/// One line, whatever the log: its shape is an interface.
pub(super) fn json(
    history: &History,
    verdicts: &[(Algorithm, Verdict)],
    by: By,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let mut line = Map::new();
    line.insert("requests".into(), history.requests().into());
    line.insert("keys".into(), history.keys().into());
    line.insert("unreadable".into(), history.unreadable.into());
    if by != By::Ip {
        line.insert("without_key".into(), history.without_key.into());
    }
    let outcome = |verdict: &Verdict| json!({ "allowed": verdict.allowed, "denied": verdict.denied });
    let algorithms: Map<_, _> = verdicts.iter().map(|(name, verdict)| (name.to_string(), outcome(verdict))).collect();
    line.insert("algorithms".into(), algorithms.into());
    writeln!(screen, "{}", Value::Object(line))?;
    Ok(())
}

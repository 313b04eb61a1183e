//! `tidegate replay`: what a limit would have done with the requests of an access log.

mod history;
mod line;
mod report;
mod rule;
mod source;
mod verdict;

use tidegate::Algorithm;

use self::history::History;
use self::verdict::Verdict;
use crate::args;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::screen::Screen;

pub(crate) fn run(replay: &args::Replay, screen: &mut Screen) -> Result<Exit, Failure> {
    let algorithms = chosen(&replay.algorithms);
    // A rule that cannot be meant is told before the log is read.
    let rules =
        algorithms.iter().map(|algorithm| rule::by(&replay.limit, *algorithm)).collect::<Result<Vec<_>, _>>()?;
    let history = History::read(&replay.log, replay.by)?;
    let progress = Progress::new("deciding", Some(history.requests() * rules.len() as u64));
    let mut verdicts = Vec::with_capacity(rules.len());
    for (algorithm, rule) in algorithms.iter().zip(&rules) {
        verdicts.push((*algorithm, Verdict::of(&history, rule, &progress)?));
    }
    drop(progress);
    if replay.json {
        report::json(&history, &verdicts, replay.by, screen)?;
    } else {
        report::text(&history, &verdicts, replay, screen)?;
    }
    Ok(Exit::Done)
}

/// The algorithms asked for, each once; all of them if none was, the default first among equals.
fn chosen(asked: &[Algorithm]) -> Vec<Algorithm> {
    let mut chosen = Vec::new();
    for algorithm in if asked.is_empty() { Algorithm::ALL } else { asked } {
        if !chosen.contains(algorithm) {
            chosen.push(*algorithm);
        }
    }
    chosen
}

//! Part 1: more requests than the rule lets pass, from many users at once.

use std::io::Write as _;
use std::time::Duration;

use super::flood::{Answer, THREADS, Tally, flood};
use super::place::Place;
use crate::clock;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::screen::{self, BOLD, GREEN, Screen};
use crate::words::{self, count};

pub(super) const RULE: &str = "crowd";
pub(super) const LIMIT: &str = "5/s";
const PER_SECOND: u64 = 5;
const USERS: usize = 100;
const REQUESTS: usize = 10_000;

/// Returns how long the requests took.
pub(super) fn show(place: &Place, screen: &mut Screen) -> Result<Duration, Failure> {
    writeln!(screen, "{BOLD}1  Many users, one rule{BOLD:#}\n")?;
    writeln!(
        screen,
        "{} requests by {USERS} users, made now {}, as fast as\n\
         {THREADS} threads can. Rule: {LIMIT} for each user, by sliding_window.\n",
        count(REQUESTS as u64),
        place.name(),
    )?;
    let progress = Progress::new("asking", Some(REQUESTS as u64));
    let (answers, took) =
        clock::timed(|| flood(REQUESTS, &progress, |number| place.check(RULE, &format!("user-{}", number % USERS))));
    drop(progress);
    let answers = answers?;
    let tally: Tally = answers.iter().map(|(_, answer)| answer).collect();
    table(&tally, screen)?;
    speed(took, screen)?;
    verdict(&answers, took, screen)?;
    Ok(took)
}

fn table(tally: &Tally, screen: &mut Screen) -> Result<(), Failure> {
    let mut table = screen::table(["Decided by", "Outcome", ">Requests", ">Share", ""]);
    let mut outcome = |who: &str, what: &str, number: u64| {
        let bar = screen::bar(number, REQUESTS as u64, REQUESTS as u64, 28);
        table.add_row([who, what, &count(number), &words::share(number, REQUESTS as u64), &bar]);
    };
    outcome("store", "admitted", tally.store.admitted);
    outcome("", "refused", tally.store.refused);
    for (origin, other) in &tally.others {
        outcome(origin, "admitted", other.admitted);
        outcome("", "refused", other.refused);
    }
    screen.table(&table)?;
    if let Some(failure) = &tally.failure {
        screen.warning(&format!("\nThe store failed, and the rule's on_error decided in its place: {failure}"))?;
    }
    Ok(())
}

fn speed(took: Duration, screen: &mut Screen) -> Result<(), Failure> {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let a_second = REQUESTS as u64 * 1_000_000 / micros;
    writeln!(screen, "\nTook {}: {} decisions a second.", words::time(took), count(a_second))?;
    Ok(())
}

/// No window of a second holds more than the limit, so a time that `n` windows cover admits at most `n` times as many.
fn verdict(answers: &[(usize, Answer)], took: Duration, screen: &mut Screen) -> Result<(), Failure> {
    let mut admitted = [0_u64; USERS];
    for (number, _) in answers.iter().filter(|(_, answer)| answer.is_of_store() && answer.allowed) {
        admitted[number % USERS] += 1;
    }
    let (least, most) = (admitted.iter().min().unwrap_or(&0), admitted.iter().max().unwrap_or(&0));
    let lawful = PER_SECOND * (took.as_secs() + 1);
    let times = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let facts = format!("{times} admitted for each user; the rule allows at most {lawful} in that time");
    if *most <= lawful {
        writeln!(screen, "{GREEN}Exact:{GREEN:#} {facts}.")?;
    } else {
        screen.warning(&format!("TOO MANY: {facts}."))?;
    }
    Ok(())
}

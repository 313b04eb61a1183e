//! Part 2: a burst on each side of a window's boundary, by every algorithm.

mod server;

use std::io::Write as _;
use std::time::Duration;

use tidegate::{Algorithm, Limit, Rule, Simulation};

use self::server::Bursts;
pub(super) use self::server::WINDOW as SERVER_WINDOW;
use super::flood::{Answer, Tally};
use super::place::Place;
use crate::failure::Failure;
use crate::screen::{self, Screen};
use crate::words::{self, count};

/// The limit of each rule, and the requests in each of the two bursts.
pub(super) const LIMIT: u64 = 100;
const MINUTE: Duration = Duration::from_secs(60);

/// What one algorithm made of both bursts.
struct Row {
    algorithm: Algorithm,
    before: Tally,
    after: Tally,
}

impl Row {
    /// What the store admitted of both.
    fn admitted(&self) -> u64 {
        self.before.store.admitted + self.after.store.admitted
    }
}

pub(super) fn show_simulated(screen: &mut Screen) -> Result<(), Failure> {
    screen.heading("2  The burst at a boundary")?;
    writeln!(
        screen,
        "Limit: {LIMIT} a minute. {LIMIT} requests come in the last second before the clock's\n\
         minute turns, and {LIMIT} in the first second after it. Simulated time: the same\n\
         code decides, and nobody waits.\n"
    )?;
    let rows = Algorithm::ALL.iter().copied().map(simulated).collect::<Result<Vec<_>, _>>()?;
    table(&rows, screen)?;
    explain(&rows, "a minute", screen)
}

fn simulated(algorithm: Algorithm) -> tidegate::Result<Row> {
    let simulation = Simulation::new(&Rule::new("boundary", [Limit::new(LIMIT, MINUTE).algorithm(algorithm)])?)?;
    let second = Duration::from_secs(1);
    let burst = |from: Duration| {
        let mut tally = Tally::default();
        for number in 0..LIMIT {
            let at = from + Duration::from_millis(number * 1_000 / LIMIT);
            tally.add(&Answer::from(&simulation.check("alice", 1, at)?));
        }
        Ok::<_, tidegate::Error>(tally)
    };
    // Any whole minute since 1970 will do.
    let boundary = MINUTE * 29_453_760;
    Ok(Row { algorithm, before: burst(boundary - second)?, after: burst(boundary)? })
}

/// `took` is how long part 1 was under way.
pub(super) fn show_on_server(place: &Place, took: Duration, screen: &mut Screen) -> Result<(), Failure> {
    screen.heading("2  The burst at a boundary")?;
    let window = words::time(SERVER_WINDOW);
    writeln!(
        screen,
        "Limit: {LIMIT} per {window}, by the server's clock and in real time. {LIMIT} requests come\n\
         just before a window of that clock turns, and {LIMIT} just after it.\n"
    )?;
    let bursts = Bursts::run(place, took)?;
    let rows = bursts.rows();
    table(&rows, screen)?;
    if bursts.are_apart() {
        explain(&rows, &window, screen)?;
        bursts.times(screen)
    } else {
        Ok(screen.warning(
            "\nThe bursts did not stay close to the boundary on their sides of it, so the table\n\
             cannot show what it should: run the demo again, or on a server that is nearer.",
        )?)
    }
}

fn table(rows: &[Row], screen: &mut Screen) -> Result<(), Failure> {
    let mut table = screen::table(["Algorithm", ">Before", ">After", ">Admitted", ""]);
    for row in rows {
        let (before, after, both) = (row.before.store.admitted, row.after.store.admitted, row.admitted());
        let bar = screen::bar(both, LIMIT, 2 * LIMIT, 24);
        table.add_row([row.algorithm.name(), &count(before), &count(after), &count(both), &bar]);
    }
    screen.table(&table)?;
    for row in rows {
        apart(row.algorithm, "before", &row.before, screen)?;
        apart(row.algorithm, "after", &row.after, screen)?;
    }
    Ok(())
}

/// What the store did not decide, and the table does not count.
fn apart(algorithm: Algorithm, side: &str, tally: &Tally, screen: &mut Screen) -> Result<(), Failure> {
    for (origin, outcome) in &tally.others {
        let (admitted, refused) = (outcome.admitted, outcome.refused);
        screen.warning(&format!(
            "not counted, {side}: {algorithm}, {admitted} admitted and {refused} refused by {origin}"
        ))?;
    }
    Ok(())
}

fn explain(rows: &[Row], window: &str, screen: &mut Screen) -> Result<(), Failure> {
    writeln!(screen, "\nMore than {LIMIT} within {window}:")?;
    for row in rows.iter().filter(|row| row.admitted() > LIMIT) {
        writeln!(screen, "  {:<23} {}", row.algorithm.name(), reason(row.algorithm))?;
    }
    Ok(())
}

/// Why an algorithm may admit more than its limit in a window; the sliding windows never do.
fn reason(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket => "refills all the time: its bound is burst + rate x time",
        Algorithm::SlidingWindowCounter => "weighs two counters, and so estimates",
        Algorithm::FixedWindow => "begins at zero with each window: up to twice the limit",
        _ => "NEVER SHOULD: please report this",
    }
}

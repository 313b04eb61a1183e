//! The two bursts on a server, in real time, on both sides of a boundary of the server's clock.

use std::io::Write as _;
use std::time::Duration;

use tidegate::Algorithm;

use super::super::flood::{Answer, flood};
use super::super::place::Place;
use super::{LIMIT, Row};
use crate::clock;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::screen::Screen;
use crate::words;

/// A real boundary of a minute would be waited for too long.
pub(crate) const WINDOW: Duration = Duration::from_secs(2);
/// The bursts must lie within one window of each other, or no sliding window would see both.
const LONGEST_LEAD: Duration = Duration::from_millis(1_300);
/// One subject for all: so all its keys, and the clock that is asked, are of one node of a cluster.
const WHO: &str = "boundary";

/// How long before a boundary the first burst begins: twice what part 1 lets expect for it, and a little.
fn lead(took: Duration) -> Duration {
    (took / 10 + Duration::from_millis(100)).min(LONGEST_LEAD)
}

/// Both bursts, with the server's times around them.
pub(super) struct Bursts {
    boundary: Duration,
    before: Burst,
    after: Burst,
}

struct Burst {
    began: Duration,
    ended: Duration,
    answers: Vec<(usize, Answer)>,
}

impl Bursts {
    /// Makes the requests; `took` is how long part 1 was under way.
    pub(super) fn run(place: &Place, took: Duration) -> Result<Bursts, Failure> {
        let progress = Progress::new("asking", Some(2 * LIMIT * Algorithm::ALL.len() as u64));
        let (lead, now) = (lead(took), place.time(WHO)?);
        let boundary = next_boundary(now + lead);
        clock::wait(boundary - lead - now);
        let before = Burst::run(place, &progress)?;
        // A millisecond more than needed, since clocks of two machines need not run alike.
        clock::wait(boundary.saturating_sub(before.ended) + Duration::from_millis(1));
        let after = Burst::run(place, &progress)?;
        Ok(Bursts { boundary, before, after })
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let row =
            |(index, algorithm)| Row { algorithm, before: self.before.tally(index), after: self.after.tally(index) };
        Algorithm::ALL.iter().copied().enumerate().map(row).collect()
    }

    /// Whether the bursts were where they should be: without that, the counts show nothing.
    pub(super) fn are_apart(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        before.ended < self.boundary && after.began >= self.boundary && after.ended < before.began + WINDOW
    }

    /// Says when the bursts were.
    pub(super) fn times(&self, screen: &mut Screen) -> Result<(), Failure> {
        let early = |time: Duration| words::time(self.boundary.saturating_sub(time));
        let late = |time: Duration| words::time(time.saturating_sub(self.boundary));
        writeln!(
            screen,
            "\nBy the server's clock, the first burst ran from {} to {} before the\n\
             boundary, the second from {} to {} after it.",
            early(self.before.began),
            early(self.before.ended),
            late(self.after.began),
            late(self.after.ended),
        )?;
        Ok(())
    }
}

impl Burst {
    fn run(place: &Place, progress: &Progress) -> Result<Burst, Failure> {
        let algorithms = Algorithm::ALL;
        let began = place.time(WHO)?;
        let requests = algorithms.len() * usize::try_from(LIMIT).unwrap_or(0);
        let ask = |number: usize| place.check(algorithms[number % algorithms.len()].name(), WHO);
        let answers = flood(requests, progress, ask)?;
        Ok(Burst { began, ended: place.time(WHO)?, answers })
    }

    /// What the algorithm of this place in the list answered.
    fn tally(&self, index: usize) -> super::Tally {
        let own = self.answers.iter().filter(|(number, _)| number % Algorithm::ALL.len() == index);
        own.map(|(_, answer)| answer).collect()
    }
}

/// The first boundary of a window after a time.
fn next_boundary(time: Duration) -> Duration {
    let windows = time.as_nanos() / WINDOW.as_nanos() + 1;
    WINDOW * u32::try_from(windows).unwrap_or(u32::MAX)
}

//! What a client saw, one line a call, and the clock that all processes of the machine share.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate::{Decision, ErrorKind, Origin};

/// Microseconds of the machine's monotonic clock: the same in every process and every namespace.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).expect("it counts from a start"));
    seconds * 1_000_000 + nanos / 1_000
}

/// Sleeps: load has to be paced, and faults have to last.
#[allow(clippy::disallowed_methods, reason = "the one place where chaos lets time pass")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("no time here is that long")
}

/// Who decided, as the client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    Store,
    Cache,
    Local,
    Open,
    Closed,
}

const NAMES: [(By, &str); 5] =
    [(By::Store, "store"), (By::Cache, "deny_cache"), (By::Local, "local"), (By::Open, "open"), (By::Closed, "closed")];

/// One call and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) client: usize,
    pub(crate) invoked: u64,
    pub(crate) answered: u64,
    pub(crate) rule: String,
    pub(crate) key: String,
    /// The request's id, where it was given one.
    pub(crate) id: Option<String>,
    pub(crate) by: By,
    pub(crate) allowed: bool,
    /// Whether its receipt names a charge.
    pub(crate) charged: bool,
    /// The kind of the failure; [`CIRCUIT`] where nothing was sent because the circuit was open.
    pub(crate) failure: Option<String>,
}

/// The kind of failure that is known to have sent nothing.
const CIRCUIT: &str = "circuit_open";

impl Call {
    /// Whether the store let it pass.
    pub(crate) fn is_admitted(&self) -> bool {
        self.by == By::Store && self.allowed
    }

    /// Whether the store may have charged it though nobody here was told.
    pub(crate) fn is_unknown(&self) -> bool {
        let refused = [CIRCUIT, ErrorKind::StoreRefused.code()];
        self.failure.as_deref().is_some_and(|failure| !refused.contains(&failure))
    }

    /// What the failure of a decision is called here.
    pub(crate) fn failure_of(decision: &Decision) -> Option<String> {
        let failure = decision.failure()?;
        let open = failure.message().starts_with("the circuit is open");
        Some(if open { CIRCUIT } else { failure.code() }.to_owned())
    }
}

impl From<Origin> for By {
    fn from(origin: Origin) -> By {
        let named = NAMES.iter().find(|(_, name)| *name == origin.name());
        named.expect("these are all that the documentation names").0
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { client, invoked, answered, rule, key, .. } = self;
        let by = NAMES.iter().find(|(by, _)| *by == self.by).map_or("", |(_, name)| name);
        let [id, failure] = [&self.id, &self.failure].map(|text| text.as_deref().unwrap_or("-"));
        let [allowed, charged] = [self.allowed, self.charged].map(u8::from);
        write!(f, "{client} {invoked} {answered} {rule} {key} {id} {by} {allowed} {charged} {failure}")
    }
}

impl FromStr for Call {
    type Err = String;

    fn from_str(line: &str) -> Result<Call, String> {
        let wrong = || format!("not a call: {line:?}");
        let words: Vec<&str> = line.split(' ').collect();
        let [client, invoked, answered, rule, key, id, by, allowed, charged, failure] = words[..] else {
            return Err(wrong());
        };
        let text = |word: &str| (word != "-").then(|| word.to_owned());
        Ok(Call {
            client: client.parse().map_err(|_| wrong())?,
            invoked: invoked.parse().map_err(|_| wrong())?,
            answered: answered.parse().map_err(|_| wrong())?,
            rule: rule.to_owned(),
            key: key.to_owned(),
            id: text(id),
            by: NAMES.iter().find(|(_, name)| *name == by).ok_or_else(wrong)?.0,
            allowed: allowed == "1",
            charged: charged == "1",
            failure: text(failure),
        })
    }
}

/// What one client has left behind: its calls, how many threads it had from time to time, and the longest that a thread
/// which only sleeps was kept waiting.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) calls: Vec<Call>,
    pub(crate) threads: Vec<usize>,
    pub(crate) overslept: u64,
}

/// The last line: without it the client did not come to its end.
const END: &str = "end";

impl History {
    pub(crate) fn text(&self) -> String {
        let threads = self.threads.iter().map(|count| format!("threads {count}\n"));
        let calls = self.calls.iter().map(|call| format!("{call}\n"));
        let overslept = format!("overslept {}\n{END}\n", self.overslept);
        threads.chain(calls).chain([overslept]).collect()
    }

    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<History, String> {
        let mut history = History::default();
        let lines = text.strip_suffix(&format!("{END}\n")).ok_or("the client did not come to its end")?;
        for line in lines.lines() {
            let number = |text: &str| text.parse::<u64>().map_err(|_| format!("not a number: {line:?}"));
            match line.split_once(' ') {
                Some(("threads", count)) => {
                    history.threads.push(usize::try_from(number(count)?).map_err(|error| error.to_string())?);
                }
                Some(("overslept", time)) => history.overslept = number(time)?,
                _ => history.calls.push(line.parse()?),
            }
        }
        Ok(history)
    }
}

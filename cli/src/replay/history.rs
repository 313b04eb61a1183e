//! The requests of a log in the order of their own times, small enough for millions of them.

use std::io;
use std::path::Path;

use indexmap::IndexSet;

use super::line::Line;
use super::source::{self, Lines};
use crate::args::By;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::words::count;

/// One request, in eight bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// Seconds since 1970.
    pub(super) at: u32,
    /// The number of its key.
    pub(super) key: u32,
}

/// A limiter takes no longer key, and no request has one.
const MAX_KEY: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct History {
    requests: Vec<Request>,
    /// Each key once; its place is its number.
    keys: IndexSet<Box<[u8]>>,
    /// Lines that are no request in these formats.
    pub(super) unreadable: u64,
    /// Requests without a user, or without a path, where that was asked for.
    pub(super) without_key: u64,
    /// How often a line is earlier than the one before it.
    pub(super) steps_back: u64,
}

impl History {
    pub(super) fn read(path: &Path, by: By) -> Result<History, Failure> {
        let unread = |error: io::Error| {
            let message = format!("{} cannot be read: {error}", path.display());
            Failure::misused(message, "give the path of an access log, plain or gzip, or - for standard input")
        };
        let (source, length) = source::open(path).map_err(unread)?;
        let progress = Progress::new("reading", length);
        let mut lines = Lines::new(source, &progress).map_err(unread)?;
        let mut history = History::default();
        loop {
            match lines.next() {
                Ok(Some(line)) => history.add(line, by)?,
                Ok(None) => break,
                Err(error) => return Err(history.cut_short(path, &error)),
            }
        }
        // Stable: requests of one second stay in the order in which they were written.
        history.requests.sort_by_key(|request| request.at);
        Ok(history)
    }

    fn add(&mut self, line: &[u8], by: By) -> Result<(), Failure> {
        let Some(line) = Line::parse(line) else {
            self.unreadable += 1;
            return Ok(());
        };
        let key = match by {
            By::Ip => Some(line.host),
            By::User => line.user,
            By::Path => line.path,
        };
        let Some(key) = key else {
            self.without_key += 1;
            return Ok(());
        };
        if key.len() > MAX_KEY {
            self.unreadable += 1;
            return Ok(());
        }
        let number = self.keys.get_index_of(key).unwrap_or_else(|| self.keys.insert_full(key.into()).0);
        let key = u32::try_from(number).map_err(|_| {
            Failure::misused("the log has more than 4,294,967,296 keys", "replay it in parts, or limit --by ip")
        })?;
        self.steps_back += u64::from(self.requests.last().is_some_and(|last| line.at < last.at));
        self.requests.push(Request { at: line.at, key });
        Ok(())
    }

    /// Half a log would pass for a whole one, so it is an error.
    fn cut_short(&self, path: &Path, error: &io::Error) -> Failure {
        let read = count(self.requests() + self.unreadable + self.without_key);
        let message = format!("{} cannot be read beyond its line {read}: {error}", path.display());
        let advice = match path.to_str() {
            Some("-") => "send the whole log; what comes before was read".to_owned(),
            _ => format!("to replay what can be read: gzip -dc {} | tidegate replay - ...", path.display()),
        };
        Failure::misused(message, advice)
    }

    /// How many requests there are to decide.
    pub(super) fn requests(&self) -> u64 {
        self.requests.len() as u64
    }

    /// How many keys they have.
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key(&self, number: u32) -> &[u8] {
        self.keys.get_index(number as usize).map_or(&[], |key| key)
    }

    pub(super) fn in_order(&self) -> &[Request] {
        &self.requests
    }
}

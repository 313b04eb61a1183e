//! What a sliding_window_log keeps, for audits.

use std::time::Duration;

use super::{Limiter, Pending, Store, answer};
use crate::algorithm::Logged;
use crate::clock;
use crate::key::Key;
use crate::request_id;
use crate::rule::{Algorithm, BoundLimit};
use crate::trace::Span;

/// One request in a sliding_window_log.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The limit's window.
    pub window: Duration,
    /// The limit's name, if it was given one.
    pub name: Option<String>,
    /// When it was charged by the store's clock, in microseconds since 1970.
    pub at: u64,
    /// The application's id, or none where Tidegate made one.
    pub id: Option<Vec<u8>>,
    /// The units that it took.
    pub units: u32,
}

impl LogEntry {
    fn new(limit: &BoundLimit, (at, id, units): Logged) -> LogEntry {
        let given = request_id::is_given(&id).then(|| id[1..].to_vec());
        LogEntry { window: Duration::from_micros(limit.window), name: limit.name.clone(), at, id: given, units }
    }
}

impl Limiter {
    pub(super) fn log_limits(&self, rule: &str, key: Key, limits: Option<String>) -> Pending<Vec<LogEntry>> {
        let rules = vec![rule.to_owned()];
        self.begin(Span::call("log", Some(rule)), |limiter| async move {
            let inner = &limiter.inner;
            let (plan, subject) = (inner.plan(&rules, limits.as_deref())?, inner.subject(key)?);
            let mut entries = Vec::new();
            for limit in plan.limits.iter().filter(|limit| limit.algorithm == Algorithm::SlidingWindowLog) {
                let requests = match &inner.store {
                    Store::Memory(store) => store.log(&limit.suffix, &subject),
                    Store::Redis(remote) => {
                        let deadline = clock::instant() + inner.deadline;
                        answer(remote.store()?.log(&limit.suffix, &subject, deadline)?).await?
                    }
                };
                entries.extend(requests.into_iter().map(|request| LogEntry::new(limit, request)));
            }
            Ok(entries)
        })
    }
}

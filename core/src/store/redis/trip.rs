//! Checks on their way over a connection on which replies are read by whoever is there, and not by a client's task: one, or
//! several as one run of the script.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use smallvec::SmallVec;

use super::batch;
use super::failure::{Failure, unavailable};
use super::job::Job;
use super::node::Node;
use super::{LATE, SILENCE, script, timeout};
use crate::clock;
use crate::decision::Reply;
use crate::error::{Error, Result};
use crate::io::handle;

/// A server may have closed a connection that was left alone for so long.
pub(super) const STALE_AFTER: Duration = Duration::from_millis(100);
/// Replies are short: some thirty bytes for each limit of a rule.
pub(super) const ROOM: usize = 512;
/// No reply is longer: batches have at most 128 limits, or one call with as many as a call can have.
const LONGEST: usize = 256 * 1024;

pub(super) struct Trip {
    pub(super) node: Arc<Node>,
    /// The node's connection that was up when it left.
    link: u64,
    /// Of one store.
    jobs: Vec<Job>,
    begun: Instant,
}

/// What the server has said to a trip.
pub(super) enum Heard {
    /// What the script has decided of each.
    Decided(SmallVec<[Reply; 1]>),
    /// Anything else. After what is lost the connection is of no use.
    Said(std::result::Result<Value, Failure>),
}

impl Trip {
    pub(super) fn new(node: &Arc<Node>, link: u64, jobs: Vec<Job>) -> Trip {
        Trip { node: Arc::clone(node), link, jobs, begun: clock::instant() }
    }

    pub(super) fn is_due(&self) -> bool {
        let now = clock::instant();
        self.jobs.iter().any(|job| job.is_due(now))
    }

    /// Whether looking after it would do something, so that its reply should be looked for first.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let is_waited_for = |job: &Job| job.is_awaited() && !job.is_due(now);
        now >= self.begun + SILENCE || !self.jobs.iter().all(is_waited_for)
    }

    /// What the server has said, once that is there to its end, and how many bytes it takes.
    pub(super) fn hear(&self, received: &[u8]) -> Option<(Heard, usize)> {
        let (said, length) = next(received)?;
        Some((self.heard(&said), length))
    }

    /// The same where nothing else is under way: more than that is nonsense.
    pub(super) fn hear_alone(&self, received: &[u8]) -> Option<Heard> {
        let (heard, length) = self.hear(received)?;
        Some(if length == received.len() { heard } else { Heard::Said(Err(garbled())) })
    }

    fn heard(&self, said: &Said<'_>) -> Heard {
        match said {
            Said::Script(replies) if replies.len() == self.jobs.len() => {
                if let Some(decided) = self.decided(replies) {
                    return Heard::Decided(decided);
                }
                let mut replies: Vec<Value> = replies.iter().map(|reply| Value::BulkString(reply.to_vec())).collect();
                let one = if replies.len() == 1 { replies.pop() } else { None };
                Heard::Said(Ok(one.unwrap_or(Value::Array(replies))))
            }
            Said::Server(words) => {
                let reply = redis::parse_redis_value(words).and_then(Value::extract_error);
                Heard::Said(reply.map_err(|error| self.node.failure(self.link, &error)))
            }
            Said::Script(_) | Said::Nonsense => Heard::Said(Err(garbled())),
        }
    }

    /// What the script has decided, if all of it can be read.
    fn decided(&self, replies: &[&[u8]]) -> Option<SmallVec<[Reply; 1]>> {
        let mut decided = SmallVec::with_capacity(replies.len());
        for (reply, job) in replies.iter().zip(&self.jobs) {
            decided.push(script::decision(reply, &job.call).ok()?);
        }
        Some(decided)
    }

    /// Sees to deadlines, and to a server that is silent; until when there is no need to again.
    ///
    /// # Errors
    /// It is not waited for any longer.
    pub(super) fn look(&mut self, now: Instant) -> Result<Instant> {
        let (silent, give_up) = (self.begun + SILENCE, self.begun + LATE);
        self.jobs.iter_mut().filter(|job| job.is_due(now)).for_each(Job::expire);
        if now >= give_up {
            return Err(timeout());
        }
        if now >= silent {
            self.node.drop_link(self.link);
        }
        let next = if now < silent { silent } else { give_up };
        let awaited = self.jobs.iter().filter(|job| job.is_awaited()).map(|job| job.deadline);
        Ok(awaited.fold(next, Instant::min))
    }

    /// Ends as nearly all do.
    pub(super) fn end(self, decided: impl IntoIterator<Item = Reply>) {
        let now = clock::instant();
        self.count();
        self.jobs.into_iter().zip(decided).for_each(|(job, reply)| job.settle(Ok(reply), now));
    }

    /// Does what there is to do after whatever reply, on the I/O thread.
    pub(super) fn conclude(self, reply: std::result::Result<Value, Failure>) {
        // Without that thread the jobs are dropped, which answers them.
        let Ok(handle) = handle() else { return };
        handle.spawn(async move {
            if matches!(reply, Err(Failure::UnknownScript)) {
                // It did not run.
                return batch::teach(self.node, self.jobs).await;
            }
            self.count();
            let Trip { node, jobs, .. } = self;
            if let Some(store) = jobs.first().map(|job| Arc::clone(&job.store)) {
                batch::conclude(&store, &node, jobs, reply);
            }
        });
    }

    fn count(&self) {
        if let Some(job) = self.jobs.first() {
            job.store.meters.batch_sizes.add(self.jobs.len() as u64);
        }
    }
}

/// The connection has ended, or is of no use any more.
pub(super) fn lost(why: impl std::fmt::Display) -> Error {
    unavailable(&why.to_string())
}

fn garbled() -> Failure {
    Failure::Lost(lost("the server's reply was not understood"))
}

/// A reply.
#[derive(Debug, PartialEq)]
enum Said<'a> {
    /// What the script has returned: one text, or a list of them for a batch.
    Script(SmallVec<[&'a [u8]; 1]>),
    /// What else a server has to say to one command, as it came.
    Server(&'a [u8]),
    /// Something else, after which nothing can be told apart.
    Nonsense,
}

/// The first reply and its length, once it is there to its end, or cannot have one.
fn next(received: &[u8]) -> Option<(Said<'_>, usize)> {
    whole(received).or_else(|| (received.len() > LONGEST).then_some((Said::Nonsense, received.len())))
}

fn whole(received: &[u8]) -> Option<(Said<'_>, usize)> {
    let mut rest = received;
    let head = line(&mut rest)?;
    let said = match head {
        b"$-1" | [b'-' | b'+' | b':', ..] => Said::Server(&received[..received.len() - rest.len()]),
        _ => match texts(head, &mut rest)? {
            Some(texts) => Said::Script(texts),
            None => Said::Nonsense,
        },
    };
    Some((said, received.len() - rest.len()))
}

/// One text, or all of a list; inside, none for what is neither.
fn texts<'a>(head: &[u8], rest: &mut &'a [u8]) -> Option<Option<SmallVec<[&'a [u8]; 1]>>> {
    let Some(count) = number(head, b'*') else {
        let text = match number(head, b'$') {
            Some(length) => text(length, rest)?,
            None => None,
        };
        return Some(text.map(|text| SmallVec::from_buf([text])));
    };
    // No more than can have come.
    let mut all = SmallVec::with_capacity(count.min(rest.len() / EMPTY.len() + 1));
    for _ in 0..count {
        let Some(length) = number(line(rest)?, b'$') else { return Some(None) };
        match text(length, rest)? {
            Some(text) => all.push(text),
            None => return Some(None),
        }
    }
    Some(Some(all))
}

/// The shortest text.
const EMPTY: &[u8] = b"$0\r\n\r\n";

/// Takes a line, without its end.
fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let line = &rest[..end];
    *rest = &rest[end + 2..];
    Some(line)
}

/// Takes a text of some length; inside, none where it does not end there.
fn text<'a>(length: usize, rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (text, after) = rest.split_at_checked(length)?;
    let (end, after) = after.split_at_checked(2)?;
    *rest = after;
    Some((end == b"\r\n").then_some(text))
}

fn number(line: &[u8], kind: u8) -> Option<usize> {
    std::str::from_utf8(line.strip_prefix(&[kind])?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn a_reply_is_read_once_it_is_whole() {
        let replies: [(&[u8], Said<'_>); 5] = [
            (b"$4\r\na\r\nb\r\n", Said::Script(smallvec![&b"a\r\nb"[..]])),
            (b"*2\r\n$1\r\na\r\n$2\r\n\r\n\r\n", Said::Script(smallvec![&b"a"[..], &b"\r\n"[..]])),
            (b"*0\r\n", Said::Script(smallvec![])),
            (b"-NOSCRIPT No matching script.\r\n", Said::Server(b"-NOSCRIPT No matching script.\r\n")),
            (b"$-1\r\n", Said::Server(b"$-1\r\n")),
        ];
        for (reply, said) in replies {
            assert!((0..reply.len()).all(|length| next(&reply[..length]).is_none()), "{said:?}");
            let followed = [reply, b"$1\r\n"].concat();
            assert_eq!((next(reply), next(&followed)), (Some((said, reply.len())), next(reply)));
        }
        assert!(next(b"$18446744073709551615\r\nab").is_none());
    }

    #[test]
    fn what_is_no_reply_is_not_taken_for_one() {
        let endless = [b"$18446744073709551615\r\n", &vec![b'a'; LONGEST][..]].concat();
        for received in
            [&endless[..], b"$1\r\nabc", b"*1\r\n:1\r\n", b"*1\r\n*0\r\n", b"*1\r\n$-1\r\n", b">2\r\n", b"$-2\r\n"]
        {
            assert!(matches!(next(received), Some((Said::Nonsense, _))), "{:?}", &received[..4]);
        }
    }
}

//! A check that is alone on its way, over a connection on which nothing else is.

use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use super::batch::{self, Job};
use super::failure::{Failure, unavailable};
use super::node::Node;
use super::{LATE, SILENCE, script, timeout};
use crate::clock;
use crate::decision::Reply;

/// Replies are short: some thirty bytes for each limit of a rule.
pub(super) const ROOM: usize = 512;

pub(super) struct Trip {
    pub(super) node: Arc<Node>,
    /// The node's connection that was up when it left.
    link: u64,
    job: Job,
    begun: Instant,
    received: Vec<u8>,
}

impl Trip {
    pub(super) fn new(node: &Arc<Node>, link: u64, job: Job) -> Trip {
        Trip { node: Arc::clone(node), link, job, begun: clock::instant(), received: Vec::new() }
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// The connection has ended, if that is nothing.
    pub(super) fn receive(&mut self, arrived: &[u8]) -> Result<(), Failure> {
        if arrived.is_empty() {
            return Err(lost("the server closed the connection"));
        }
        self.received.extend_from_slice(arrived);
        Ok(())
    }

    pub(super) fn is_due(&self) -> bool {
        self.job.is_due(clock::instant())
    }

    /// What the script has decided, if it has.
    pub(super) fn decision(&self) -> Option<Reply> {
        match whole(&self.received)? {
            Said::Script(reply) => script::decision(reply, &self.job.call).ok(),
            Said::Server(_) | Said::Nonsense => None,
        }
    }

    /// The reply, once it is there to its end. After one that is lost the connection is of no use.
    pub(super) fn reply(&self) -> Option<Result<Value, Failure>> {
        Some(match whole(&self.received)? {
            Said::Script(reply) => Ok(Value::BulkString(reply.to_vec())),
            Said::Server(words) => {
                let reply = redis::parse_redis_value(words).and_then(Value::extract_error);
                reply.map_err(|error| self.node.failure(self.link, &error))
            }
            Said::Nonsense => Err(lost("the server's reply was not understood")),
        })
    }

    /// Sees to its deadline, and to a server that is silent; until when there is no need to again.
    ///
    /// # Errors
    /// It is not waited for any longer.
    pub(super) fn look(&mut self) -> Result<Instant, Failure> {
        let (now, silent, give_up) = (clock::instant(), self.begun + SILENCE, self.begun + LATE);
        if self.job.is_due(now) {
            self.job.expire();
        }
        if now >= give_up {
            return Err(Failure::Lost(timeout()));
        }
        if now >= silent {
            self.node.drop_link(self.link);
        }
        let next = if now < silent { silent } else { give_up };
        Ok(if self.job.is_awaited() { next.min(self.job.deadline) } else { next })
    }

    /// Ends as nearly all do.
    pub(super) fn end(self, decision: Reply) {
        self.job.store.meters.batch_sizes.add(1);
        self.job.settle(Ok(decision), clock::instant());
    }

    /// Does what there is to do after whatever reply. On the I/O thread.
    pub(super) fn conclude(self, reply: Result<Value, Failure>) {
        let Trip { node, job, .. } = self;
        if matches!(reply, Err(Failure::UnknownScript)) {
            // It did not run.
            tokio::spawn(job.alone());
            return;
        }
        job.store.meters.batch_sizes.add(1);
        batch::conclude(&Arc::clone(&job.store), &node, vec![job], reply);
    }
}

pub(super) fn lost(why: impl std::fmt::Display) -> Failure {
    Failure::Lost(unavailable(&why.to_string()))
}

/// A reply.
#[derive(Debug, PartialEq)]
enum Said<'a> {
    /// What the script has returned.
    Script(&'a [u8]),
    /// What else a server has to say to one command, as it came.
    Server(&'a [u8]),
    /// More or other than one reply. What comes next would be taken for the reply to the next check.
    Nonsense,
}

/// The reply, once it is there to its end.
fn whole(received: &[u8]) -> Option<Said<'_>> {
    let end = received.windows(2).position(|two| two == b"\r\n")?;
    let (line, rest) = (&received[..end], &received[end + 2..]);
    let length = line.strip_prefix(b"$").and_then(|length| std::str::from_utf8(length).ok()?.parse::<usize>().ok());
    Some(match (length, line) {
        (Some(length), _) if rest.len() < length.saturating_add(2) => return None,
        (Some(length), _) if rest[length..] == *b"\r\n" => Said::Script(&rest[..length]),
        (None, [b'-' | b'+' | b':', ..] | b"$-1") if rest.is_empty() => Said::Server(received),
        _ => Said::Nonsense,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_once_it_is_whole() {
        let bulk = b"$4\r\na\r\nb\r\n";
        assert!((0..bulk.len()).all(|length| whole(&bulk[..length]).is_none()));
        assert_eq!(whole(bulk), Some(Said::Script(b"a\r\nb")));
        let error = b"-NOSCRIPT No matching script.\r\n";
        assert!((0..error.len()).all(|length| whole(&error[..length]).is_none()));
        assert_eq!(whole(error), Some(Said::Server(error)));
        assert!(whole(b"$18446744073709551615\r\nab").is_none());
    }

    #[test]
    fn what_is_not_just_one_reply_is_not_taken_for_one() {
        let nonsense: [&[u8]; 6] =
            [b"$1\r\na\r\n$1\r\n", b"$1\r\nabc", b"*1\r\n", b">2\r\n", b"+OK\r\n+OK\r\n", b"$-2\r\n"];
        assert!(nonsense.iter().all(|received| whole(received) == Some(Said::Nonsense)));
    }
}

//! A connection for questions alone. No answer is waited for long, and after one that did not come none is asked any
//! more.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};

use super::super::address::Address;
use super::super::connect::{self, Access, Mode};
use super::super::failure::{self, Failure, unavailable};
use super::super::timeout;
use crate::clock;
use crate::error::{Error, Result};

/// How long connecting may take, and one answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

pub(super) struct Visit {
    connection: MultiplexedConnection,
    pub(super) address: Address,
    /// Whether the server runs as a node of a cluster.
    pub(super) cluster: bool,
    until: Instant,
    lost: bool,
}

impl Visit {
    pub(super) async fn open(address: &Address, access: &Access, until: Instant) -> Result<Visit> {
        let connecting = connect::connect(address, access, connect::NAME);
        let soon = soon(until);
        let connected = tokio::time::timeout_at(soon.into(), connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(late(address, soon == until)))?;
        tokio::spawn(connected.driver);
        let (connection, cluster) = (connected.connection, connected.mode == Mode::Cluster);
        Ok(Visit { connection, address: address.clone(), cluster, until, lost: false })
    }

    /// Whether an answer did not come.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value> {
        self.send(command).await.map_err(|failure| match failure {
            Failure::Lost(error) | Failure::Refused(error) => error,
            Failure::Moved(to) | Failure::Ask(to) => unavailable(&format!("the slot has just moved to {to}")),
            Failure::UnknownScript => unavailable("the server forgets the script"),
        })
    }

    /// Runs a script, which it is told by name, and in full where the server does not know it.
    pub(super) async fn run(&mut self, command: impl Fn(bool) -> Cmd) -> Result<Value> {
        match self.send(&command(true)).await {
            Err(Failure::UnknownScript) => self.ask(&command(false)).await,
            Ok(reply) => Ok(reply),
            Err(Failure::Lost(error) | Failure::Refused(error)) => Err(error),
            Err(Failure::Moved(to) | Failure::Ask(to)) => Err(unavailable(&format!("the slot has just moved to {to}"))),
        }
    }

    /// Sends commands at once, and returns their replies, of which each may be an error.
    pub(super) async fn ask_all(&mut self, commands: &Pipeline, count: usize) -> Result<Vec<Value>> {
        if self.lost {
            return Err(timeout());
        }
        match tokio::time::timeout_at(soon(self.until).into(), self.connection.send_packed_commands(commands, 0, count))
            .await
        {
            Ok(replies) => replies.map_err(|error| told(&error)),
            Err(_) => Err(self.lose()),
        }
    }

    async fn send(&mut self, command: &Cmd) -> Result<Value, Failure> {
        if self.lost {
            return Err(Failure::Lost(timeout()));
        }
        match tokio::time::timeout_at(soon(self.until).into(), self.connection.send_packed_command(command)).await {
            Ok(reply) => reply.and_then(Value::extract_error).map_err(|error| failure::of(&error)),
            Err(_) => Err(Failure::Lost(self.lose())),
        }
    }

    fn lose(&mut self) -> Error {
        self.lost = true;
        timeout()
    }
}

/// Which of the two bounds it was: a server that was asked late has not had the time that is one answer's.
fn late(address: &Address, at_the_end: bool) -> Error {
    unavailable(&if at_the_end {
        format!("{address} had not answered when the time for the whole inspection was up")
    } else {
        format!("{address} did not answer within {} ms", ANSWER_WITHIN.as_millis())
    })
}

fn soon(until: Instant) -> Instant {
    until.min(clock::instant() + ANSWER_WITHIN)
}

fn told(error: &RedisError) -> Error {
    match failure::of(error) {
        Failure::Lost(error) | Failure::Refused(error) => error,
        _ => unavailable(&error.to_string()),
    }
}

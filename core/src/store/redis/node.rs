//! One server, connected when first needed and again when lost.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Notify, Semaphore};

use super::address::Address;
use super::batch::Queue;
use super::connect::{self, Access, Connected, Mode};
use super::failure::{self, Failure, unavailable};
use super::relay::Relays;
use super::{LATE, Options, SILENCE, lane, timeout};
use crate::breaker::Breaker;
use crate::clock;
use crate::error::{Error, Result};
use crate::metrics::NodeMetrics;

/// How long an attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// The most calls that are alone on their way to one node: fewer than redis-rs takes without waiting itself.
const MOST_ALONE: usize = 32;
/// How long a failed attempt answers for those that come after it.
const RETRY_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: Address,
    access: Arc<Access>,
    pub(super) queue: Queue,
    pub(super) lane: lane::Place,
    pub(super) relays: Relays,
    pub(super) breaker: Arc<Breaker>,
    state: Mutex<State>,
    changed: Notify,
    connections: AtomicU64,
    /// Places for calls that are alone on their way.
    alone: Arc<Semaphore>,
    /// Whether it has refused a script over several slots, or is not to be asked for one.
    refuses_batches: AtomicBool,
}

enum State {
    Idle,
    Connecting,
    Up(Link),
    Down { error: Error, until: Instant },
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Idle => "Idle",
            State::Connecting => "Connecting",
            State::Up(_) => "Up",
            State::Down { .. } => "Down",
        })
    }
}

/// A connection that is up, as far as is known.
#[derive(Clone)]
pub(super) struct Link {
    connection: MultiplexedConnection,
    /// Whether the server runs as a node of a cluster.
    pub(super) cluster: bool,
    /// Whether it is a sentinel, which stores nothing.
    pub(super) sentinel: bool,
    /// Which of the node's connections this is.
    pub(super) number: u64,
}

/// What is known of a connection that is up: which of the node's it is, and whether the server is a node of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Up {
    pub(super) number: u64,
    pub(super) cluster: bool,
}

impl Node {
    pub(super) fn new(address: Address, access: Arc<Access>, options: Options) -> Arc<Node> {
        let breaker = Arc::new(Breaker::new(address.to_string(), options.breaker));
        Arc::new(Node {
            address,
            access,
            queue: Queue::default(),
            lane: lane::Place::default(),
            relays: Relays::default(),
            breaker,
            state: Mutex::new(State::Idle),
            changed: Notify::new(),
            connections: AtomicU64::new(0),
            alone: Arc::new(Semaphore::new(MOST_ALONE)),
            refuses_batches: AtomicBool::new(!options.batch_across_slots),
        })
    }

    /// The connection, made now if there is none. Everybody waits for the same attempt, each to its own deadline.
    pub(super) async fn link(self: &Arc<Self>, deadline: Instant) -> Result<Link> {
        loop {
            let changed = self.changed.notified();
            if let Some(link) = self.current()? {
                return Ok(link);
            }
            if tokio::time::timeout_at(deadline.into(), changed).await.is_err() {
                return Err(unavailable(&format!("{} was not connected within the deadline", self.address)));
            }
        }
    }

    /// Whether it is connected, and has not failed of late.
    pub(super) fn is_well(&self) -> bool {
        self.link_number().is_some() && !self.breaker.is_troubled()
    }

    pub(super) fn metrics(&self) -> NodeMetrics {
        let (breaker, opened) = self.breaker.read();
        NodeMetrics { address: self.address.to_string(), connected: self.link_number().is_some(), breaker, opened }
    }

    /// The connection if it is up.
    pub(super) fn up(&self) -> Option<Link> {
        match &*self.state() {
            State::Up(link) => Some(link.clone()),
            _ => None,
        }
    }

    /// What is known of the connection if it is up.
    pub(super) fn up_now(&self) -> Option<Up> {
        match &*self.state() {
            State::Up(Link { number, cluster, .. }) => Some(Up { number: *number, cluster: *cluster }),
            _ => None,
        }
    }

    /// The number of the connection if it is up.
    pub(super) fn link_number(&self) -> Option<u64> {
        self.up_now().map(|up| up.number)
    }

    /// Whether checks of several slots may leave together. A server that is alone has no slots.
    pub(super) fn takes_batches(&self, is_cluster: bool) -> bool {
        !is_cluster || !self.refuses_batches.load(Ordering::Relaxed)
    }

    pub(super) fn stop_batches(&self) {
        self.refuses_batches.store(true, Ordering::Relaxed);
    }

    /// Sends a command and returns its reply. With `asking`, as the target of a redirect for this key alone.
    pub(super) async fn send(&self, mut link: Link, command: &Cmd, asking: bool) -> Result<Value, Failure> {
        let number = link.number;
        let reply = if asking {
            let mut pipeline = redis::pipe();
            pipeline.cmd("ASKING").ignore().add_command(command.clone());
            let replies = link.connection.send_packed_commands(&pipeline, 1, 1).await;
            replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil))
        } else {
            link.connection.send_packed_command(command).await
        };
        reply.and_then(Value::extract_error).map_err(|error| self.failure(number, &error))
    }

    /// What an error means that came over one of its connections.
    pub(super) fn failure(&self, number: u64, error: &RedisError) -> Failure {
        match failure::of(error) {
            Failure::Refused(error) if error.message().contains("READONLY") => {
                // A name may lead to another server by now: to the new primary.
                self.drop_link(number);
                Failure::Refused(error.within(&self.address))
            }
            Failure::Lost(error) => Failure::Lost(error.within(&self.address)),
            Failure::Refused(error) => Failure::Refused(error.within(&self.address)),
            redirect => redirect,
        }
    }

    /// The same for a call that is alone on its way. Few are on theirs at a time, so that a server which does not read
    /// is not sent what has long been given up; a reply is waited for though the caller has gone.
    pub(super) async fn send_alone(
        self: &Arc<Self>,
        link: Link,
        command: Cmd,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let place = tokio::time::timeout_at(deadline.into(), Arc::clone(&self.alone).acquire_owned()).await;
        if place.is_err() || clock::instant() >= deadline {
            return Err(Failure::Refused(timeout()));
        }
        let (node, number) = (Arc::clone(self), link.number);
        let sent = tokio::spawn(async move {
            let mut reply = std::pin::pin!(node.send(link, &command, asking));
            if let Ok(reply) = tokio::time::timeout(SILENCE, reply.as_mut()).await {
                return reply;
            }
            node.drop_link(number);
            drop(place);
            tokio::time::timeout(LATE, reply).await.unwrap_or_else(|_| Err(Failure::Lost(timeout())))
        });
        sent.await.unwrap_or_else(|_| Err(Failure::Lost(unavailable("the I/O thread has ended"))))
    }

    /// Gives up a connection, so that the next call makes a new one.
    pub(super) fn drop_link(&self, number: u64) {
        let mut state = self.state();
        if matches!(&*state, State::Up(link) if link.number == number) {
            *state = State::Idle;
            self.lane.close();
            self.relays.close();
        }
    }

    /// A further connection, bare. None over TLS, and where there is no making one.
    pub(super) async fn open_socket(&self, name: &str) -> Option<OwnedFd> {
        if self.access.tls.is_some() && matches!(self.address, Address::Tcp { .. }) {
            return None;
        }
        let attempt = tokio::time::timeout(CONNECT_WITHIN, connect::connect(&self.address, &self.access, name)).await;
        attempt.ok()?.ok()?.socket
    }

    /// The connection if it is up, none if an attempt is under way, an error if one has just failed.
    fn current(self: &Arc<Self>) -> Result<Option<Link>> {
        let mut state = self.state();
        match &*state {
            State::Up(link) => return Ok(Some(link.clone())),
            State::Connecting => return Ok(None),
            State::Down { error, until } if clock::instant() < *until => return Err(error.clone()),
            State::Idle | State::Down { .. } => {}
        }
        *state = State::Connecting;
        tokio::spawn(Arc::clone(self).connect());
        Ok(None)
    }

    /// Connects, and stays to see the connection end. It does not keep the node: one that nobody needs any more is
    /// dropped, and its connection with it.
    async fn connect(self: Arc<Self>) {
        let attempt =
            tokio::time::timeout(CONNECT_WITHIN, connect::connect(&self.address, &self.access, connect::NAME)).await;
        let attempt = attempt.unwrap_or_else(|_| Err(unavailable(&format!("{} did not answer", self.address))));
        match attempt {
            Err(error) => self.set(State::Down { error, until: clock::instant() + RETRY_AFTER }),
            Ok(Connected { connection, driver, mode, socket }) => {
                drop(socket);
                let number = self.connections.fetch_add(1, Ordering::Relaxed);
                let (cluster, sentinel) = (mode == Mode::Cluster, mode == Mode::Sentinel);
                self.set(State::Up(Link { connection, cluster, sentinel, number }));
                let node = Arc::downgrade(&self);
                drop(self);
                // The driver ends with the connection, and whatever was under way on it has failed by then.
                driver.await;
                if let Some(node) = node.upgrade() {
                    node.drop_link(number);
                }
            }
        }
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

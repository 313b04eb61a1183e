//! A connection for checks that are alone and that nobody blocks for: whoever asks sends, and the I/O thread, which is not
//! woken for that, reads.

use std::io;
use std::net;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::batch::Job;
use super::failure::Failure;
use super::node::{Link, Node};
use super::trip::{self, ROOM, Trip};
use crate::clock;
use crate::io::{BEAT, Beats, handle};
use crate::trace::Span;

/// What a server's list of clients calls it.
const NAME: &str = "tidegate-relay";
/// How long there is none after an attempt to make one has failed.
const REST: Duration = Duration::from_secs(5);
/// So many beats the reader looks after deadlines when there are none: one second's.
const IDLE_BEATS: u32 = 200;

/// Where a node keeps its relay.
#[derive(Debug, Default)]
pub(super) struct Place(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    Making,
    Up(Arc<Relay>),
    Resting(Instant),
}

struct Relay {
    /// Or a socket of a path: nothing is done with it that differs.
    socket: TcpStream,
    /// The node's connection that was up when this one was made: it ends with that.
    link: u64,
    under_way: Mutex<Option<Trip>>,
    /// The reader looks after no deadline until it is called.
    sleeps: AtomicBool,
    called: Notify,
    ended: AtomicBool,
    beats: Arc<Beats>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Place {
    /// The relay. If there is none, one is made for those that come later.
    fn get(&self, node: &Arc<Node>, link: u64, beats: &Arc<Beats>) -> Option<Arc<Relay>> {
        let mut state = self.0.try_lock().ok()?;
        match &*state {
            State::Up(relay) if relay.link == link && !relay.has_ended() => return Some(Arc::clone(relay)),
            State::Making => return None,
            State::Resting(since) if clock::instant() < *since + REST => return None,
            State::Up(_) | State::Empty | State::Resting(_) => {}
        }
        if let Ok(handle) = handle() {
            self.replace(&mut state, State::Making);
            handle.spawn(make(Arc::clone(node), link, Arc::clone(beats)));
        }
        None
    }

    pub(super) fn close(&self) {
        self.replace(&mut self.state(), State::Empty);
    }

    fn replace(&self, state: &mut State, new: State) {
        if let State::Up(relay) = std::mem::replace(state, new) {
            relay.end();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.close();
    }
}

async fn make(node: Arc<Node>, link: u64, beats: Arc<Beats>) {
    let made = node.open_socket(NAME).await.and_then(|socket| {
        let socket = net::TcpStream::from(socket);
        socket.set_nonblocking(true).ok()?;
        TcpStream::from_std(socket).ok()
    });
    let Some(socket) = made else {
        return node.relay.replace(&mut node.relay.state(), State::Resting(clock::instant()));
    };
    let (under_way, sleeps) = (Mutex::new(None), AtomicBool::new(false));
    let (called, ended) = (Notify::new(), AtomicBool::new(false));
    let relay = Arc::new(Relay { socket, link, under_way, sleeps, called, ended, beats });
    node.relay.replace(&mut node.relay.state(), State::Up(Arc::clone(&relay)));
    drop(node);
    relay.read().await;
}

/// Sends a check on its node's relay, where nothing else is under way on that. Otherwise it is given back.
pub(super) fn send(node: &Arc<Node>, link: Link, job: Job) -> Option<Job> {
    let Some(relay) = node.relay.get(node, link.number, &job.store.beats) else { return Some(job) };
    let Ok(mut under_way) = relay.under_way.try_lock() else { return Some(job) };
    if under_way.is_some() {
        return Some(job);
    }
    let command = job.store.command(true, &job.request).get_packed_command();
    match Span::batch(&node.address, 1).within(|| relay.socket.try_write(&command)) {
        Ok(count) if count == command.len() => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(job),
        _ => {
            // A command of which a part is missing does not run.
            relay.end();
            return Some(job);
        }
    }
    // The reader looks at each beat.
    let is_urgent = job.deadline < clock::instant() + 2 * BEAT;
    *under_way = Some(Trip::new(node, link, job));
    drop(under_way);
    if relay.sleeps.swap(false, Ordering::SeqCst) || is_urgent {
        relay.called.notify_one();
    }
    None
}

impl Relay {
    /// Takes no more checks. What is under way is waited for.
    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.called.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    async fn read(&self) {
        let (mut room, mut idle_beats) = ([0; ROOM], 0);
        while !self.has_ended() || self.under_way().is_some() {
            let next = match self.look() {
                Ok(next) => next,
                Err(failure) => return self.fail(failure),
            };
            idle_beats = if next.is_some() { 0 } else { idle_beats + 1 };
            tokio::select! {
                biased;
                ready = self.socket.readable() => {
                    let read = ready.map_err(trip::lost).and_then(|()| self.receive(&mut room));
                    if let Err(failure) = read {
                        return self.fail(failure);
                    }
                }
                () = self.called.notified() => idle_beats = 0,
                () = self.wait(next, idle_beats > IDLE_BEATS) => {}
            }
        }
    }

    /// Until when the check that is under way needs no looking after.
    fn look(&self) -> Result<Option<Instant>, Failure> {
        self.under_way().as_mut().map(Trip::look).transpose()
    }

    async fn wait(&self, next: Option<Instant>, is_idle: bool) {
        match next {
            Some(next) if next < clock::instant() + BEAT => tokio::time::sleep_until(next.into()).await,
            None if is_idle => {
                self.sleeps.store(true, Ordering::SeqCst);
                // One that was sent before it could tell that the reader sleeps.
                if self.under_way().is_none() {
                    std::future::pending::<()>().await;
                }
            }
            _ => self.beats.next().await,
        }
    }

    fn receive(&self, room: &mut [u8]) -> Result<(), Failure> {
        let arrived = match self.socket.try_read(room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            read => &room[..read.map_err(trip::lost)?],
        };
        let mut under_way = self.under_way();
        let Some(mut trip) = under_way.take() else { return Err(trip::lost("the server spoke unasked")) };
        let received = trip.receive(arrived);
        match (trip.decision(), trip.reply()) {
            (Some(decision), _) => {
                drop(under_way);
                trip.end(decision);
            }
            (None, Some(reply)) => {
                drop(under_way);
                trip.conclude(reply);
            }
            (None, None) => *under_way = Some(trip),
        }
        received
    }

    /// The connection is of no use any more.
    fn fail(&self, failure: Failure) {
        self.end();
        let trip = self.under_way().take();
        if let Some(trip) = trip {
            trip.conclude(Err(failure));
        }
    }

    fn under_way(&self) -> MutexGuard<'_, Option<Trip>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
use super::node::Node;
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
    /// With the number of the node's connection that is up: the relay ends with that.
    Making(u64),
    Up(Arc<Relay>),
    Resting(Instant),
}

impl State {
    fn replace(&mut self, new: State) {
        if let State::Up(relay) = std::mem::replace(self, new) {
            relay.end();
        }
    }
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
            State::Making(_) => return None,
            State::Resting(since) if clock::instant() < *since + REST => return None,
            State::Up(_) | State::Empty | State::Resting(_) => {}
        }
        if let Ok(handle) = handle() {
            state.replace(State::Making(link));
            handle.spawn(make(Arc::clone(node), link, Arc::clone(beats)));
        }
        None
    }

    /// What has become of the relay that was in the making, unless its time is over.
    fn put(&self, link: u64, new: State) {
        let mut state = self.state();
        if matches!(*state, State::Making(of) if of == link) {
            *state = new;
        } else if let State::Up(relay) = new {
            relay.end();
        }
    }

    /// Lets go of the relay. What is under way on it is still waited for.
    pub(super) fn close(&self) {
        self.state().replace(State::Empty);
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
    let Some(socket) = made else { return node.relay.put(link, State::Resting(clock::instant())) };
    let (under_way, sleeps) = (Mutex::new(None), AtomicBool::new(false));
    let (called, ended) = (Notify::new(), AtomicBool::new(false));
    let reader = Reader(Arc::new(Relay { socket, link, under_way, sleeps, called, ended, beats }));
    node.relay.put(link, State::Up(Arc::clone(&reader.0)));
    drop(node);
    reader.0.read().await;
}

/// The relay as long as it is read. Even if that panics, nobody waits for ever.
struct Reader(Arc<Relay>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.end();
        let unread = self.0.under_way().take();
        drop(unread);
    }
}

/// Sends a check on its node's relay, where nothing else is under way on that. Otherwise it is given back.
pub(super) fn send(node: &Arc<Node>, link: u64, job: Job) -> Option<Job> {
    // The reader looks at each beat.
    if job.deadline < clock::instant() + 2 * BEAT {
        return Some(job);
    }
    let Some(relay) = node.relay.get(node, link, &job.store.beats) else { return Some(job) };
    // Whoever hears of spans is not to be called under the lock.
    Span::batch(&node.address, 1).within(|| relay.send(node, job))
}

impl Relay {
    fn send(&self, node: &Arc<Node>, job: Job) -> Option<Job> {
        let Ok(mut under_way) = self.under_way.try_lock() else { return Some(job) };
        // Its reader sets this before it looks for the last time.
        if under_way.is_some() || self.has_ended() {
            return Some(job);
        }
        let command = job.store.command(true, &job.request).get_packed_command();
        match self.socket.try_write(&command) {
            Ok(count) if count == command.len() => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(job),
            _ => {
                // A command of which a part is missing does not run.
                self.end();
                return Some(job);
            }
        }
        *under_way = Some(Trip::new(node, self.link, job));
        drop(under_way);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            self.called.notify_one();
        }
        None
    }

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
        if let Some(decision) = trip.decision() {
            drop(under_way);
            trip.end(decision);
            return received;
        }
        match trip.reply() {
            // There is no telling what comes next.
            Some(Err(Failure::Lost(error))) => {
                *under_way = Some(trip);
                Err(Failure::Lost(error))
            }
            Some(reply) => {
                drop(under_way);
                trip.conclude(reply);
                received
            }
            None => {
                *under_way = Some(trip);
                received
            }
        }
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

//! Connections for checks that nobody blocks for. Whoever asks sends, so that the I/O thread is not woken for that. What comes
//! back is read by the I/O thread, which has one check under way at a time, or by an event loop that watches the socket: then
//! no other thread is woken for what it sends, and the I/O thread looks after deadlines now and then.

mod line;

use std::collections::VecDeque;
use std::net;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::Notify;

use self::line::{Line, Socket};
use super::batch;
use super::failure::Failure;
use super::job::Job;
use super::node::{Node, Up};
use super::trip::{self, Heard, Trip};
use crate::clock;
use crate::completion::{EventLoop, Rings};
use crate::error::{Error, Result};
use crate::fork;
use crate::io::{BEAT, Beats, handle};
use crate::trace::Span;

/// How long there is none after an attempt to make one has failed.
const REST: Duration = Duration::from_secs(5);
/// How long the I/O thread looks after deadlines when there are none.
const IDLE: Duration = Duration::from_secs(1);
/// How often it looks after those of a loop, which is otherwise left alone: to be woken costs as much as a check.
const LOOK: Duration = Duration::from_millis(25);
/// The most runs of the script under way where a loop reads. What is more is left to the I/O thread, which works beside it.
const MOST_UNDER_WAY: usize = 8;

/// Who reads what comes back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reader {
    IoThread,
    Loop(EventLoop),
}

impl Reader {
    /// How long it may be until a check that has left is looked after.
    fn looks_after(&self) -> Duration {
        match self {
            Reader::IoThread => BEAT,
            Reader::Loop(_) => LOOK,
        }
    }

    fn is_there(&self) -> bool {
        match self {
            Reader::IoThread => true,
            Reader::Loop(event_loop) => event_loop.is_there(),
        }
    }

    /// What a server's list of clients calls the connection.
    fn connection(&self) -> &'static str {
        match self {
            Reader::IoThread => "tidegate-relay",
            Reader::Loop(_) => "tidegate-loop",
        }
    }
}

/// Where a node keeps its relays: one for each reader.
#[derive(Debug, Default)]
pub(super) struct Relays(Mutex<Vec<(Reader, State)>>);

#[derive(Debug)]
enum State {
    /// With the number of the node's connection that is up: the relay ends with that.
    Making(u64),
    Up(Arc<Relay>),
    Resting(Instant),
}

impl State {
    fn end(&self) {
        if let State::Up(relay) = self {
            relay.end();
        }
    }
}

impl Relays {
    /// The relay of a reader. If there is none, one is made for those that come later.
    fn get(&self, node: &Arc<Node>, up: Up, reader: &Reader, beats: &Arc<Beats>) -> Option<Arc<Relay>> {
        let mut all = self.0.try_lock().ok()?;
        let place = all.iter().position(|(other, _)| other == reader);
        match place.map(|place| &all[place].1) {
            Some(State::Up(relay)) if relay.link == up.number && !relay.has_ended() => return Some(Arc::clone(relay)),
            Some(State::Making(_)) => return None,
            Some(State::Resting(since)) if clock::instant() < *since + REST => return None,
            Some(State::Up(_) | State::Resting(_)) | None => {}
        }
        if let Ok(handle) = handle() {
            let making = (reader.clone(), State::Making(up.number));
            match place {
                Some(place) => std::mem::replace(&mut all[place], making).1.end(),
                None => {
                    // Of loops that have ended since.
                    all.retain(|(reader, state)| reader.is_there() || !matches!(state, State::Resting(_)));
                    all.push(making);
                }
            }
            handle.spawn(make(Arc::clone(node), up.number, reader.clone(), Arc::clone(beats)));
        }
        None
    }

    /// What has become of a relay that was in the making: whether that is of any use.
    fn put(&self, link: u64, reader: &Reader, new: State) -> bool {
        let mut all = self.all();
        let place = all.iter_mut().find(|(other, _)| other == reader).map(|(_, state)| state);
        let Some(making) = place.filter(|state| matches!(state, State::Making(of) if *of == link)) else {
            return false;
        };
        *making = new;
        true
    }

    /// One that has ended. If nothing was ever sent on it there is no use in making another soon.
    fn forget(&self, relay: &Arc<Relay>) {
        let is_it = |state: &State| matches!(state, State::Up(other) if Arc::ptr_eq(other, relay));
        let was_used = relay.line().used.is_some();
        let mut all = self.all();
        if was_used {
            all.retain(|(_, state)| !is_it(state));
        } else if let Some((_, state)) = all.iter_mut().find(|(_, state)| is_it(state)) {
            *state = State::Resting(clock::instant());
        }
    }

    /// Lets go of the relays. What is under way on them is still waited for.
    pub(super) fn close(&self) {
        self.all().drain(..).for_each(|(_, state)| state.end());
    }

    fn all(&self) -> MutexGuard<'_, Vec<(Reader, State)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.close();
    }
}

struct Relay {
    socket: Socket,
    /// The node's connection that was up when this one was made: it ends with that.
    link: u64,
    line: Mutex<Line>,
    /// Nobody looks after deadlines until the I/O thread is called.
    sleeps: AtomicBool,
    called: Notify,
    ended: AtomicBool,
    /// Whether a loop reads what comes, as long as it is not busy with something else.
    is_watched: AtomicBool,
    beats: Arc<Beats>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("link", &self.link).finish_non_exhaustive()
    }
}

async fn make(node: Arc<Node>, link: u64, reader: Reader, beats: Arc<Beats>) {
    let made = node.open_socket(reader.connection()).await.and_then(|socket| {
        let socket = net::TcpStream::from(socket);
        socket.set_nonblocking(true).ok()?;
        Some(match reader {
            Reader::IoThread => Socket::OfIoThread(TcpStream::from_std(socket).ok()?),
            Reader::Loop(_) => Socket::OfLoop(socket),
        })
    });
    let Some(socket) = made else {
        node.relays.put(link, &reader, State::Resting(clock::instant()));
        return;
    };
    let relay = Arc::new(Relay {
        socket,
        link,
        line: Mutex::new(Line::new()),
        sleeps: AtomicBool::new(false),
        called: Notify::new(),
        ended: AtomicBool::new(false),
        is_watched: AtomicBool::new(matches!(reader, Reader::Loop(_))),
        beats,
    });
    if !node.relays.put(link, &reader, State::Up(Arc::clone(&relay))) {
        relay.end();
    } else if let Reader::Loop(event_loop) = &reader {
        event_loop.watch(LoopSocket {
            relay: Arc::clone(&relay),
            event_loop: event_loop.clone(),
            generation: fork::generation(),
        });
    }
    let place = Arc::downgrade(&node);
    drop(node);
    let keeper = Keeper(relay);
    keeper.0.keep().await;
    if let Some(node) = place.upgrade() {
        node.relays.forget(&keeper.0);
    }
}

/// The relay as long as it is looked after. Even if that panics, nobody waits for ever.
struct Keeper(Arc<Relay>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.end();
        let unread = std::mem::take(&mut self.0.line().trips);
        drop(unread);
        if let Socket::OfLoop(socket) = &self.0.socket {
            // Its loop sees that, and lets go of it.
            let _ = socket.shutdown(net::Shutdown::Both);
        }
    }
}

/// A socket that an event loop watches, for checks which it has submitted: see [`Completions::reading`].
///
/// It is let go of when it is dropped; what is under way is seen to its end all the same.
///
/// [`Completions::reading`]: crate::Completions::reading
#[derive(Debug)]
pub struct LoopSocket {
    relay: Arc<Relay>,
    event_loop: EventLoop,
    /// Of the process that it was made in: in a child that was forked it is the parent's.
    generation: u64,
}

impl LoopSocket {
    /// Reads what has come, if anything has, without waiting. The answers are in the queue then, which is not woken for them:
    /// [`drain`](crate::Completions::drain) it. False once the socket is done with, as it is in a forked child; drop it.
    #[must_use]
    pub fn read(&self) -> bool {
        if self.generation != fork::generation() {
            return false;
        }
        let _rung_by_none = Rings::but_for(&self.event_loop);
        self.relay.receive() && !self.relay.is_over()
    }
}

impl AsFd for LoopSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.relay.socket {
            Socket::OfIoThread(socket) => socket.as_fd(),
            Socket::OfLoop(socket) => socket.as_fd(),
        }
    }
}

impl Drop for LoopSocket {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            self.relay.is_watched.store(false, Ordering::SeqCst);
            self.relay.end();
        } else {
            // The last one would touch the parent's runtime.
            std::mem::forget(Arc::clone(&self.relay));
        }
    }
}

/// Sends checks of one store on their node's relay, in their order. What it does not take is given back.
pub(super) fn send(node: &Arc<Node>, up: Up, reader: &Reader, jobs: VecDeque<Job>) -> VecDeque<Job> {
    let soon = clock::instant() + 2 * reader.looks_after();
    let Some(first) = jobs.front().filter(|_| jobs.iter().all(|job| job.deadline >= soon)) else { return jobs };
    let Some(relay) = node.relays.get(node, up, reader, &first.store.beats) else { return jobs };
    // Whoever hears of spans is not to be called under the lock.
    Span::batch(&node.address, jobs.len()).within(|| relay.send(node, up, jobs))
}

impl Relay {
    fn send(&self, node: &Arc<Node>, up: Up, mut jobs: VecDeque<Job>) -> VecDeque<Job> {
        let Ok(mut line) = self.line.try_lock() else { return jobs };
        if !line.unsent.is_empty() {
            return jobs;
        }
        if !line.is_open(&self.socket) {
            self.end();
            return jobs;
        }
        let most = if self.is_watched() { MOST_UNDER_WAY } else { 1 };
        let mut parts = batch::parts(jobs.len(), line.trips.is_empty());
        let (mut runs, mut bytes) = (Vec::new(), Vec::new());
        // Its keeper ends it before it looks for the last time.
        while !jobs.is_empty() && !self.has_ended() && line.trips.len() + runs.len() < most {
            let part = if node.takes_batches(up.cluster) { jobs.len().div_ceil(parts) } else { 1 };
            parts = (parts - 1).max(1);
            let run = batch::take(&mut jobs, part);
            batch::command(&run, up.cluster, true).write_packed_command(&mut bytes);
            runs.push(run);
        }
        if !runs.is_empty() && line.write(&self.socket, bytes) {
            line.used = Some(clock::instant());
            line.trips.extend(runs.into_iter().map(|run| Trip::new(node, self.link, run)));
            drop(line);
            if self.sleeps.swap(false, Ordering::SeqCst) {
                self.called.notify_one();
            }
        } else {
            drop(line);
            runs.into_iter().rev().flat_map(|run| run.into_iter().rev()).for_each(|job| jobs.push_front(job));
        }
        jobs
    }

    /// Takes no more checks. What is under way is waited for.
    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.called.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        self.has_ended() && self.line().trips.is_empty()
    }

    /// Looks after what is under way until the relay has ended. On the I/O thread.
    async fn keep(&self) {
        let mut idle_since = None;
        while !self.is_over() {
            let next = match self.look() {
                Ok(next) => next,
                Err(error) => return self.fail(&error),
            };
            let now = clock::instant();
            idle_since = if next.is_some() { None } else { idle_since.or(Some(now)) };
            let is_idle = idle_since.is_some_and(|since| now >= since + IDLE);
            tokio::select! {
                biased;
                ready = self.readable() => {
                    if let Err(error) = ready {
                        return self.fail(&error);
                    }
                    self.receive();
                }
                () = self.called.notified() => idle_since = None,
                () = self.wait(next, is_idle) => {}
            }
        }
    }

    async fn readable(&self) -> Result<()> {
        match &self.socket {
            Socket::OfIoThread(socket) => socket.readable().await.map_err(trip::lost),
            Socket::OfLoop(_) => std::future::pending().await,
        }
    }

    /// Until when what is under way needs no looking after.
    fn look(&self) -> Result<Option<Instant>> {
        let now = clock::instant();
        let is_late = || self.line().trips.iter().any(|trip| trip.is_late(now));
        if matches!(self.socket, Socket::OfLoop(_)) && (!self.is_watched() || is_late()) {
            // The loop has gone, or is busy: what is late may have been there for long.
            self.receive();
        }
        // Loops are woken without the lock; whoever else hears of it is told under it, and senders do not wait for the lock.
        let _rung_once = Rings::begin();
        let mut line = self.line();
        // Where that fails, reading tells why.
        let _ = line.flush(&self.socket);
        line.trips.iter_mut().map(|trip| trip.look(now)).reduce(|one, other| Ok(one?.min(other?))).transpose()
    }

    async fn wait(&self, next: Option<Instant>, is_idle: bool) {
        let look = clock::instant() + LOOK;
        match (next, &self.socket) {
            (Some(next), Socket::OfLoop(_)) => tokio::time::sleep_until(next.min(look).into()).await,
            (Some(next), Socket::OfIoThread(_)) if next < clock::instant() + BEAT => {
                tokio::time::sleep_until(next.into()).await;
            }
            (None, _) if is_idle => {
                self.sleeps.store(true, Ordering::SeqCst);
                // What was sent before it could tell that nobody looks.
                if self.line().trips.is_empty() {
                    std::future::pending::<()>().await;
                }
            }
            (None, Socket::OfLoop(_)) => tokio::time::sleep_until(look.into()).await,
            (_, Socket::OfIoThread(_)) => self.beats.next().await,
        }
    }

    /// Takes what has come, and tells whoever waits for it. On any thread. False where the connection has ended, or is of no use
    /// any more.
    fn receive(&self) -> bool {
        let mut line = self.line();
        let read = line.read(&self.socket);
        let said = line.said();
        let lost = match said.last() {
            Some((_, Heard::Said(Err(Failure::Lost(error))))) => Some(error.clone()),
            _ if line.trips.is_empty() && !line.received.is_empty() => Some(trip::lost("the server spoke unasked")),
            _ => read.err(),
        };
        // Before anybody else can take what is left for a reply.
        let unread = if lost.is_some() { self.abandon(&mut line) } else { VecDeque::new() };
        drop(line);
        // A loop that waits for several of them is woken for all.
        let _rung_once = Rings::begin();
        for (trip, heard) in said {
            match heard {
                Heard::Decided(decided) => trip.end(decided),
                Heard::Said(reply) => trip.conclude(reply),
            }
        }
        let Some(error) = lost else { return true };
        unread.into_iter().for_each(|trip| trip.conclude(Err(Failure::Lost(error.clone()))));
        false
    }

    /// Ends what is under way: it is not known whether it ran.
    fn fail(&self, error: &Error) {
        let unread = self.abandon(&mut self.line());
        unread.into_iter().for_each(|trip| trip.conclude(Err(Failure::Lost(error.clone()))));
    }

    /// Ends, and takes what is under way: nothing that comes now is a reply to it.
    fn abandon(&self, line: &mut Line) -> VecDeque<Trip> {
        self.end();
        line.received.clear();
        line.unsent.clear();
        std::mem::take(&mut line.trips)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

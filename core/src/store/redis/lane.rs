//! A connection for checks that are alone, each sent and read by the thread that waits for it. No other thread is woken,
//! which took a third of the processor time of a check.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::job::Job;
use super::node::Node;
use super::trip::{self, Heard, ROOM, STALE_AFTER, Trip};
use crate::blocking::{self, LONGEST_ERRAND};
use crate::clock;
use crate::fork;
use crate::io::handle;
use crate::trace::Span;

/// What a server's list of clients calls it.
const NAME: &str = "tidegate-lane";
/// How long there is none after an attempt to make one has failed, or after a reply was not there within an errand.
const REST: Duration = Duration::from_secs(5);

/// Where a node keeps its lane.
#[derive(Debug, Default)]
pub(super) struct Place(Mutex<State>);

/// With the number of the node's connection that was up when the lane was made: it ends with that.
#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    Making(u64),
    Free(Lane),
    InUse(u64),
    Resting(Option<Lane>, Instant),
}

/// A connection on which nothing is under way.
#[derive(Debug)]
struct Lane {
    /// Or a socket of a path: nothing is done with it that differs.
    socket: TcpStream,
    link: u64,
    used: Instant,
}

impl Place {
    /// The lane, if it is free. If there is none, one is made for those that come later.
    fn take(&self, node: &Arc<Node>, link: u64) -> Option<Lane> {
        let mut state = self.0.try_lock().ok()?;
        let lane = match std::mem::take(&mut *state) {
            State::Free(lane) => Some(lane),
            State::Resting(lane, since) if clock::instant() >= since + REST => lane,
            State::Empty => None,
            busy @ (State::Making(_) | State::InUse(_) | State::Resting(..)) => {
                *state = busy;
                return None;
            }
        };
        if let Some(lane) = lane.filter(|lane| lane.link == link && lane.is_open()) {
            *state = State::InUse(link);
            return Some(lane);
        }
        if let Ok(handle) = handle() {
            *state = State::Making(link);
            let node = Arc::clone(node);
            handle.spawn(async move {
                let made = node.open_socket(NAME).await.and_then(|socket| Lane::new(socket, link).ok());
                let rests = State::Resting(None, clock::instant());
                node.lane.put(link, made.map_or(rests, State::Free));
            });
        }
        None
    }

    /// What has become of a lane that was in use or in the making, unless its time is over.
    fn put(&self, link: u64, new: State) {
        let mut state = self.state();
        if matches!(*state, State::Making(of) | State::InUse(of) if of == link) {
            *state = new;
        }
    }

    /// Lets go of the lane. What is under way on it is still waited for.
    pub(super) fn close(&self) {
        *self.state() = State::Empty;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn new(socket: OwnedFd, link: u64) -> io::Result<Lane> {
        let socket = TcpStream::from(socket);
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(LONGEST_ERRAND))?;
        // What is sent fits into the socket, on which nothing is under way.
        socket.set_write_timeout(Some(LONGEST_ERRAND))?;
        Ok(Lane { socket, link, used: clock::instant() })
    }

    /// Whether the server has neither closed it nor said anything unasked, as far as is known.
    fn is_open(&self) -> bool {
        if clock::instant().saturating_duration_since(self.used) < STALE_AFTER {
            return true;
        }
        let look = || {
            self.socket.set_nonblocking(true)?;
            let looked = (&self.socket).read(&mut [0]);
            self.socket.set_nonblocking(false)?;
            looked
        };
        look().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits for something to read, for as long as an errand may take.
    fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        let until = clock::after(LONGEST_ERRAND);
        loop {
            match (&self.socket).read(room) {
                // By a signal.
                Err(error) if error.kind() == io::ErrorKind::Interrupted && clock::instant() < until => {}
                read => return read,
            }
        }
    }
}

/// Sends a check on its node's lane, if its thread is about to wait for it and nothing else is on its way to the node.
/// Otherwise it is given back.
pub(super) fn send(node: &Arc<Node>, link: u64, job: Job) -> Option<Job> {
    if !blocking::takes_errand() || !node.queue.is_idle() || job.deadline < clock::instant() + 2 * LONGEST_ERRAND {
        return Some(job);
    }
    let Some(lane) = node.lane.take(node, link) else { return Some(job) };
    let command = job.store.command(true, &job.request).get_packed_command();
    let sent = Span::batch(&node.address, 1).within(|| (&lane.socket).write_all(&command));
    if sent.is_err() {
        // A command of which a part is missing does not run.
        node.lane.put(link, State::Empty);
        return Some(job);
    }
    let under_way = Some((lane, Trip::new(node, link, vec![job])));
    let waited = Waited { generation: fork::generation(), under_way, received: Vec::new(), is_late: false };
    blocking::leave(Box::new(|| waited.wait()));
    None
}

/// A check that is on its way on a lane, and that its thread is to wait for. What the thread does not see to its end, the I/O
/// thread does.
struct Waited {
    /// Of the process that sent it: the reply is not for a child that was forked meanwhile.
    generation: u64,
    under_way: Option<(Lane, Trip)>,
    received: Vec<u8>,
    is_late: bool,
}

impl Waited {
    fn wait(mut self) {
        let is_ours = self.generation == fork::generation();
        let Some((lane, trip)) = self.under_way.as_mut().filter(|(_, trip)| is_ours && !trip.is_due()) else { return };
        let mut room = [0; ROOM];
        let read = lane.read(&mut room);
        self.is_late = read.is_err();
        let Ok(count) = read else { return };
        if let Some(Heard::Decided(decided)) = trip.hear_alone(&room[..count])
            && let Some((lane, trip)) = self.under_way.take()
        {
            let lane = Lane { used: clock::instant(), ..lane };
            trip.node.lane.put(lane.link, State::Free(lane));
            return trip.end(decided);
        }
        self.received.extend_from_slice(&room[..count]);
    }
}

impl Drop for Waited {
    fn drop(&mut self) {
        let Some((lane, trip)) = self.under_way.take() else { return };
        if self.generation != fork::generation() {
            // The parent's.
            std::mem::forget((lane, trip));
        } else if let Ok(handle) = handle() {
            handle.spawn(go_on(lane, trip, std::mem::take(&mut self.received), self.is_late));
        }
    }
}

/// Gives a lane back, and if it is only that there is none.
struct Back {
    node: Arc<Node>,
    link: u64,
    state: State,
}

impl Drop for Back {
    fn drop(&mut self) {
        self.node.lane.put(self.link, std::mem::take(&mut self.state));
    }
}

/// Waits for it on the I/O thread, to its deadline and beyond, and does what there is to do then.
async fn go_on(lane: Lane, mut trip: Trip, received: Vec<u8>, is_late: bool) {
    let mut back = Back { node: Arc::clone(&trip.node), link: lane.link, state: State::Empty };
    let (heard, socket) = match watched(lane.socket) {
        Ok(socket) => (heard(&socket, &mut trip, received).await, Some(socket)),
        Err(error) => (lost(error), None),
    };
    let is_lost = matches!(heard, Heard::Said(Err(Failure::Lost(_))));
    let socket = socket.filter(|_| !is_lost).and_then(|socket| socket.into_std().ok());
    let used = clock::instant();
    if let Some(socket) = socket.filter(|socket| socket.set_nonblocking(false).is_ok()) {
        let lane = Lane { socket, link: lane.link, used };
        back.state = if is_late { State::Resting(Some(lane), used) } else { State::Free(lane) };
    }
    drop(back);
    match heard {
        Heard::Decided(decided) => trip.end(decided),
        Heard::Said(reply) => trip.conclude(reply),
    }
}

fn watched(socket: TcpStream) -> io::Result<tokio::net::TcpStream> {
    socket.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(socket)
}

async fn heard(socket: &tokio::net::TcpStream, trip: &mut Trip, mut received: Vec<u8>) -> Heard {
    let mut room = [0; ROOM];
    loop {
        if let Some(heard) = trip.hear_alone(&received) {
            return heard;
        }
        let next = match trip.look(clock::instant()) {
            Ok(next) => next,
            Err(error) => return lost(error),
        };
        tokio::select! {
            biased;
            ready = socket.readable() => match ready.and_then(|()| socket.try_read(&mut room)) {
                Ok(0) => return lost("the server closed the connection"),
                Ok(count) => received.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return lost(error),
            },
            () = tokio::time::sleep_until(next.into()) => {}
        }
    }
}

fn lost(why: impl std::fmt::Display) -> Heard {
    Heard::Said(Err(Failure::Lost(trip::lost(why))))
}

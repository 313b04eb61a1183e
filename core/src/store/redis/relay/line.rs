//! A relay's socket: commands that leave on it in order, and replies that come.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net;
use std::time::Instant;

use tokio::net::TcpStream;

use super::super::failure::Failure;
use super::super::trip::{self, Heard, ROOM, STALE_AFTER, Trip};
use crate::clock;
use crate::error::Result;

/// So many rooms are read at once: half a megabyte, more than all replies that are waited for at once.
const MOST_READS: usize = 64;

/// Or a socket of a path: nothing is done with it that differs.
pub(super) enum Socket {
    OfIoThread(TcpStream),
    OfLoop(net::TcpStream),
}

impl Socket {
    fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::OfIoThread(socket) => socket.try_read(room),
            Socket::OfLoop(socket) => (&mut &*socket).read(room),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::OfIoThread(socket) => socket.try_write(bytes),
            Socket::OfLoop(socket) => (&mut &*socket).write(bytes),
        }
    }
}

/// What is under way, in its order, and what has come of it.
pub(super) struct Line {
    pub(super) trips: VecDeque<Trip>,
    /// What the socket had no room for: nothing else is sent before it.
    pub(super) unsent: Vec<u8>,
    pub(super) received: Vec<u8>,
    /// When anything was sent last.
    pub(super) used: Option<Instant>,
    /// To read into: to make it anew would be to fill it with zeros.
    room: Box<[u8]>,
}

impl Line {
    pub(super) fn new() -> Line {
        let room = vec![0; 16 * ROOM].into();
        Line { trips: VecDeque::new(), unsent: Vec::new(), received: Vec::new(), used: None, room }
    }

    /// Whether the server has neither closed it nor said anything unasked, as far as is known: a loop that was busy has not
    /// looked.
    pub(super) fn is_open(&mut self, socket: &Socket) -> bool {
        let is_fresh = self.used.is_some_and(|used| clock::instant().saturating_duration_since(used) < STALE_AFTER);
        is_fresh || !self.trips.is_empty() || (self.read(socket).is_ok() && self.received.is_empty())
    }

    /// Sends commands: whether they are on their way, and be it in part.
    pub(super) fn write(&mut self, socket: &Socket, mut commands: Vec<u8>) -> bool {
        let Ok(count @ 1..) = socket.write(&commands) else { return false };
        commands.drain(..count);
        self.unsent = commands;
        true
    }

    /// Sends the rest of what has been sent in part, as far as there is room now.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn flush(&mut self, socket: &Socket) -> Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        match socket.write(&self.unsent) {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(trip::lost(error)),
        }
        Ok(())
    }

    /// Reads what has come, so far as it is not more than replies are: whoever watches the socket is told of the rest again.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn read(&mut self, socket: &Socket) -> Result<()> {
        // What has come before the connection ended is there all the same.
        let flushed = self.flush(socket);
        for _ in 0..MOST_READS {
            match socket.read(&mut self.room) {
                Ok(0) => return Err(trip::lost("the server closed the connection")),
                Ok(count) => {
                    self.received.extend_from_slice(&self.room[..count]);
                    if count < self.room.len() {
                        return flushed;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return flushed,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(trip::lost(error)),
            }
        }
        flushed
    }

    /// The trips of which it is known what the server says, with that.
    pub(super) fn said(&mut self) -> Vec<(Trip, Heard)> {
        let (mut said, mut read) = (Vec::new(), 0);
        while let Some(trip) = self.trips.front() {
            let Some((heard, length)) = trip.hear(&self.received[read..]) else { break };
            read += length;
            // There is no telling what comes next.
            let is_last = matches!(heard, Heard::Said(Err(Failure::Lost(_))));
            said.extend(self.trips.pop_front().map(|trip| (trip, heard)));
            if is_last {
                break;
            }
        }
        self.received.drain(..read);
        said
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_a_socket_has_no_room_for_follows_when_it_has() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let socket = Socket::OfLoop(net::TcpStream::from(OwnedFd::from(near)));
        let commands: Vec<u8> = (0..8_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let mut line = Line::new();
        assert!(line.write(&socket, commands.clone()));
        assert!(!line.unsent.is_empty());
        let mut arrived = vec![0; commands.len()];
        let mut count = 0;
        while count < arrived.len() {
            count += far.read(&mut arrived[count..]).unwrap();
            line.flush(&socket).unwrap();
        }
        assert!(line.unsent.is_empty());
        assert!(arrived == commands);
        drop(far);
        assert!(!line.write(&socket, commands), "nobody is there");
        assert!(line.read(&socket).is_err());
    }
}

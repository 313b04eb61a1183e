//! A wire between limiter and server that can be hurt: it holds replies back, swallows them, or breaks when one comes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What becomes of a server's replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replies {
    /// They pass.
    Pass,
    /// They wait until something else is said.
    Hold,
    /// They never arrive.
    Swallow,
    /// The next one breaks the connection instead of arriving; those after it pass.
    CutOnce,
}

/// On loopback, in front of one server. Its threads end with the connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    replies: Mutex<Replies>,
    /// How many connections were made, and how many of the first hear nothing any more.
    connections: AtomicUsize,
    deaf: AtomicUsize,
    changed: Condvar,
    /// What is sent with the first text arrives with the second.
    altered: Option<(&'static str, &'static str)>,
    /// All that clients have sent over each connection.
    sent: Mutex<Vec<Vec<u8>>>,
}

impl Proxy {
    pub(crate) fn to(upstream: u16, replies: Replies) -> Proxy {
        Proxy::altering(upstream, replies, None)
    }

    /// One on which a text that clients send arrives as another of its length.
    pub(crate) fn altering(upstream: u16, replies: Replies, altered: Option<(&'static str, &'static str)>) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            replies: Mutex::new(replies),
            connections: AtomicUsize::new(0),
            deaf: AtomicUsize::new(0),
            changed: Condvar::new(),
            altered,
            sent: Mutex::default(),
        });
        let common = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)) else { continue };
                common.carry(client, server);
            }
        });
        Proxy { port, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What becomes of the replies from now on, those that are held included.
    pub(crate) fn set(&self, replies: Replies) {
        *lock(&self.shared.replies) = replies;
        self.shared.changed.notify_all();
    }

    /// From now on the connections that there are hear nothing, as where a firewall has forgotten them; new ones do.
    pub(crate) fn forget_connections(&self) {
        self.shared.deaf.store(self.shared.connections.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    pub(crate) fn is(&self, replies: Replies) -> bool {
        *lock(&self.shared.replies) == replies
    }

    /// How many scripts clients have sent: by name and by text.
    pub(crate) fn calls(&self) -> (usize, usize) {
        let sent = lock(&self.shared.sent);
        let count = |name: &[u8]| sent.iter().map(|sent| places(sent, name).count()).sum();
        (count(b"EVALSHA\r\n"), count(b"EVAL\r\n"))
    }

    /// Whether a script has been sent over the connection that clients give this name.
    pub(crate) fn has_called_over(&self, name: &str) -> bool {
        let over = |sent: &Vec<u8>| {
            let named = places(sent, name.as_bytes()).next();
            named.is_some_and(|named| places(&sent[named..], b"EVALSHA\r\n").next().is_some())
        };
        lock(&self.shared.sent).iter().any(over)
    }
}

fn places<'a>(sent: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    sent.windows(text.len()).enumerate().filter(move |(_, window)| *window == text).map(|(place, _)| place)
}

impl Shared {
    fn carry(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let end = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
        let (shared, from, to) = (Arc::clone(self), end(&client), end(&server));
        let number = self.connections.fetch_add(1, Ordering::SeqCst);
        lock(&self.sent).push(Vec::new());
        thread::spawn(move || shared.carry_commands(number, from, to));
        let shared = Arc::clone(self);
        thread::spawn(move || shared.carry_replies(number, server, client));
    }

    fn carry_commands(&self, number: usize, mut client: TcpStream, mut server: TcpStream) {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            lock(&self.sent)[number].extend_from_slice(&buffer[..length]);
            if let Some((from, to)) = self.altered {
                for at in 0..length {
                    if buffer[at..length].starts_with(from.as_bytes()) {
                        buffer[at..at + from.len()].copy_from_slice(to.as_bytes());
                    }
                }
            }
            if server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }

    fn carry_replies(&self, number: usize, mut server: TcpStream, mut client: TcpStream) {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            if number < self.deaf.load(Ordering::SeqCst) {
                continue;
            }
            let mut replies = lock(&self.replies);
            while *replies == Replies::Hold {
                replies = self.changed.wait(replies).unwrap_or_else(PoisonError::into_inner);
            }
            match *replies {
                Replies::Swallow => continue,
                Replies::CutOnce => {
                    // The command has run, since its reply is here.
                    *replies = Replies::Pass;
                    break;
                }
                Replies::Pass | Replies::Hold => {}
            }
            drop(replies);
            if client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

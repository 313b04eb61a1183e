//! What core really sends: a proxy on the loopback that notes each command on its way to the server. So nothing is packed
//! here a second time.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use tidegate::Limiter;

/// The words of one command.
pub(crate) type Words = Vec<Vec<u8>>;

/// A proxy before a server.
#[derive(Debug)]
pub(crate) struct Capture {
    port: u16,
    commands: Receiver<Words>,
}

impl Capture {
    /// Stands before the server on a port, for as long as this process runs.
    pub(crate) fn start(server: u16) -> io::Result<Capture> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (sender, commands) = mpsc::channel();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that fails is the limiter's to report.
                let _ = serve(client, server, sender.clone());
            }
        });
        Ok(Capture { port, commands })
    }

    /// The command with which core checks a rule, of five bytes, for a subject.
    pub(crate) fn check(&self, limits: &str, subject: &str) -> tidegate::Result<Words> {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let limiter = Limiter::builder().rule("login", limits).url(&url).deadline(Duration::from_secs(5)).build()?;
        limiter.ready(Duration::from_secs(5)).wait()?;
        limiter.check("login", subject).wait()?;
        limiter.reset("login", subject).wait()?;
        let scripts = self.commands.try_iter().filter(|words| words[0] == b"EVALSHA");
        Ok(scripts.last().expect("a check that was answered has passed by here"))
    }
}

fn serve(mut client: TcpStream, server: u16, commands: Sender<Words>) -> io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, server))?;
    let (mut replies, mut back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || io::copy(&mut replies, &mut back));
    thread::spawn(move || -> io::Result<()> {
        let (mut chunk, mut pending) = ([0; 65_536], Vec::new());
        loop {
            let length = client.read(&mut chunk)?;
            if length == 0 {
                return Ok(());
            }
            pending.extend_from_slice(&chunk[..length]);
            while let Some((words, rest)) = command(&pending) {
                pending = rest.to_vec();
                // Nobody listens any more: the process is about to end.
                let _ = commands.send(words);
            }
            server.write_all(&chunk[..length])?;
        }
    });
    Ok(())
}

/// The first command of what a client sent, and the rest; none while it is not whole.
fn command(bytes: &[u8]) -> Option<(Words, &[u8])> {
    let (count, mut rest) = header(bytes)?;
    let mut words = Words::new();
    for _ in 0..count {
        let (length, from) = header(rest)?;
        words.push(from.get(..length)?.to_vec());
        rest = from.get(length + 2..)?;
    }
    Some((words, rest))
}

/// The number of a line such as `*3` or `$12`, and what follows the line.
fn header(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let number = std::str::from_utf8(bytes.get(1..end)?).ok()?.parse().ok()?;
    Some((number, &bytes[end + 2..]))
}

//! Server processes that cannot outlive this one, and the ports and folders that they use.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::poll;

/// A graceful end may take as long as Redis waits for its replicas, which is 10 seconds.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A running server. Dropping it kills and reaps it, paused or not.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    paused: bool,
}

impl Process {
    /// Starts `command` with `arguments` after it; what the process prints goes to `log`.
    ///
    /// `command` is split on spaces and must end up as the process that was started (a wrapper has to `exec`): signals
    /// are sent to that one.
    pub(super) fn start(command: &str, arguments: &[&OsStr], log: File) -> io::Result<Self> {
        let mut words = command.split_whitespace();
        // No unsafe `pre_exec` for the one system call that we need: util-linux has a program that makes it.
        let mut process = if cfg!(target_os = "linux") {
            let mut setpriv = Command::new("setpriv");
            setpriv.args(["--pdeathsig", "KILL"]).args(words);
            setpriv
        } else {
            let mut server = Command::new(words.next().unwrap_or_default());
            server.args(words);
            server
        };
        process.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self { child: spawn_for_good(process)?, paused: false })
    }

    pub(super) fn has_exited(&mut self) -> bool {
        self.child.try_wait().expect("our own child, reaped nowhere else").is_some()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns when the process really stands still, not merely after the signal has been sent.
    pub(super) fn pause(&mut self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("our own child, just told to stop");
        self.paused = true;
    }

    pub(super) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.paused = false;
    }

    /// Asks the process to end, and kills it only if it does not.
    pub(super) fn stop(mut self) {
        self.resume();
        self.signal(Signal::TERM);
        poll(STOP_LIMIT, || self.has_exited().then_some(()));
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our own child, not reaped yet, can be signalled");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only on a child that is gone already, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a child from a thread that lives as long as this process.
///
/// The kernel sends the "parent died" signal when the *thread* that started the child ends, and a test's thread ends
/// with its test, while a server may be shared by many.
fn spawn_for_good(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        let work = move || {
            for (mut command, reply) in inbox {
                // Nobody waits any more if the asking thread died: the child is then dropped, and dies with us.
                let _ = reply.send(command.spawn());
            }
        };
        thread::Builder::new().name("server-spawner".to_owned()).spawn(work).expect("a thread can be started");
        orders
    });
    let (reply, answer) = mpsc::channel();
    SPAWNER.send((command, reply)).expect("the spawner never ends");
    answer.recv().expect("the spawner answers every order")
}

/// A command that runs another on a clock that is wrong by so much. The program `faketime` stays between a server and
/// us, so its library alone is used.
pub(super) fn on_wrong_clock(command: &str, skew: &str) -> String {
    let told = Command::new("faketime").args(["-f", "+0s", "printenv", "LD_PRELOAD"]).output();
    let told = told.unwrap_or_else(|error| panic!("cannot run faketime (Debian's package of that name): {error}"));
    let library = String::from_utf8_lossy(&told.stdout);
    let library = library.trim();
    // With the C library before a server's own allocator, which asks for the time before faketime can tell it.
    format!("env LD_PRELOAD={library}:libc.so.6 FAKETIME={skew} FAKETIME_DONT_FAKE_MONOTONIC=1 {command}")
}

/// The folder below which all servers of this process live. It disappears soon after this process has ended, however
/// it ended.
pub(super) fn root() -> &'static Path {
    static ROOT: LazyLock<(PathBuf, Child)> = LazyLock::new(|| {
        let prefix = format!("tidegate-tests-{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir().expect("a temporary folder can be made").keep();
        // Servers in statics are never dropped, and a killed test drops nothing. So a shell waits for the end of its
        // input, which comes with our end, and tidies up. (Twice: a dying server may write while it removes.) In a
        // process group of its own, Ctrl-C at the terminal does not reach it.
        let janitor = Command::new("sh")
            .args(["-c", "cat; rm -rf -- \"$0\" || rm -rf -- \"$0\""])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("every Unix has sh");
        (folder, janitor)
    });
    &ROOT.0
}

/// A loopback port for a server, and the port [`BUS`] above it for its cluster bus.
///
/// It stays ours until it is dropped, also while the server is down: a UDP socket on the same number disturbs no TCP
/// server but keeps away every other process that uses this module, and the numbers lie below the range from which the
/// kernel takes ports for outgoing connections.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: u16,
    _ours: UdpSocket,
}

/// From a port to its cluster bus port.
pub(super) const BUS: u16 = 10_000;
/// The first number given out. `COUNT` equals `BUS`, so that a bus port is never given out as a port.
const FIRST: u16 = 11_000;
const COUNT: u16 = BUS;

impl Port {
    pub(super) fn reserve() -> Self {
        for _ in 0..1_000 {
            let random = RandomState::new().hash_one(()) % u64::from(COUNT);
            let number = FIRST + u16::try_from(random).expect("it is below COUNT");
            if let Ok(port) = Self::try_reserve(number) {
                return port;
            }
        }
        panic!("no free port was found between {FIRST} and {}", FIRST + COUNT);
    }

    fn try_reserve(number: u16) -> io::Result<Self> {
        let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, number))?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number))?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number + BUS))?;
        Ok(Self { number, _ours: ours })
    }
}

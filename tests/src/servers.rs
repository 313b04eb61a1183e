//! Real Redis servers for tests: one alone, a cluster of six, or a primary with replicas that sentinels watch.
//!
//! ```no_run
//! use tidegate_tests::servers::{Cluster, Server};
//!
//! let server = Server::start();
//! let pong: String = server.call("PING");
//!
//! let guarded = Server::builder().password("secret").user("app on >pass ~tidegate:* +@all").start();
//! let cluster = Cluster::start();
//! cluster.master_of(42).kill();
//! ```
//!
//! Everything is a child process on a free loopback port, with a folder of its own and no persistence. It ends when the
//! value is dropped, and at the latest with this process, even if that is killed: so a server may live in a `static`,
//! as [`shared_server`] and [`shared_cluster`] do.
//!
//! `TIDEGATE_TEST_SERVER` names another server to run, as a command line split on spaces (default `redis-server`).
//!
//! The harness talks to a server through a Unix socket, as a user of its own who may do anything. So its commands work
//! whatever password, users or TLS a test asks for, and no stranger on the same port is ever taken for our server.
//! Whatever goes wrong here panics: without its server a test has nothing to say.

mod cluster;
mod process;
mod sentinel;
mod tls;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, RedisResult};
use tempfile::TempDir;

pub use cluster::{Cluster, slot};
use process::{BUS, Port, Process};
pub use sentinel::Watched;
pub use tls::Tls;

/// Name and password of the user that the harness adds to every server for itself.
const ADMIN: &str = "harness";
/// How long a server may take until it answers, and then to answer one command.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// On how many ports a server is tried: another program may take a port between our look and the server's start.
const ATTEMPTS: usize = 5;

/// What a server is to be like. Made by [`Server::builder`]; the same for a cluster, whose nodes are all alike.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    password: Option<String>,
    tls: Option<Arc<Tls>>,
    settings: Vec<String>,
    sentinel: bool,
    /// The nodes whose clocks are wrong, and by how much.
    skews: Vec<(usize, String)>,
}

/// Where a server runs, if not simply on loopback.
#[derive(Clone, Debug)]
pub struct Host {
    /// The IPv4 address that it listens on.
    pub address: String,
    /// The command, split on spaces, that runs another one there, such as `nsenter --net=/run/netns/one`; or nothing. It
    /// must `exec` it.
    pub enter: String,
}

impl Default for Host {
    fn default() -> Self {
        Self { address: "127.0.0.1".to_owned(), enter: String::new() }
    }
}

impl Builder {
    /// Adds a line to the configuration file. It stands after the harness's own lines, so it can overrule them.
    ///
    /// For example `maxmemory 2mb`, `replicaof 127.0.0.1 7000`, `cluster-node-timeout 500`.
    pub fn config(mut self, line: &str) -> Self {
        self.settings.push(line.to_owned());
        self
    }

    /// The password of the default user. [`Server::url`] contains it as it is, so choose one that needs no escaping.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config(&format!("requirepass {password}"))
    }

    /// Adds a user, written as after `ACL SETUSER`: `app on >secret ~tidegate:* +@all`, or `default off`.
    pub fn user(self, line: &str) -> Self {
        self.config(&format!("user {line}"))
    }

    /// Speaks TLS only, with a certificate for `names`: host names or addresses.
    ///
    /// [`Server::url`] always names `127.0.0.1`. A client's certificate is checked if it offers one; with
    /// `config("tls-auth-clients yes")` it must.
    pub fn tls(mut self, names: &[&str]) -> Self {
        self.tls = Some(Arc::new(Tls::new(names)));
        self
    }

    /// The same with the certificates of a server that speaks TLS already.
    pub fn tls_of(mut self, server: &Server) -> Self {
        self.tls = Some(server.tls.clone().expect("the server was built with TLS"));
        self
    }

    /// Sets the clock of a node wrong, as in `+0.3s`: of the cluster's node with this index, or of a server alone (0).
    pub fn skewed(mut self, node: usize, by: &str) -> Self {
        self.skews.push((node, by.to_owned()));
        self
    }

    /// Starts one server, and returns when it answers.
    pub fn start(&self) -> Server {
        self.start_node(false, 0, &Host::default())
    }

    /// Starts six nodes, three masters with a replica each, and returns when all of them agree that the cluster is
    /// whole. That takes about three seconds: Redis lets two pass before a new master accepts commands.
    pub fn start_cluster(&self) -> Cluster {
        self.start_cluster_on(&<[Host; 6]>::default())
    }

    /// The same with each node on a host of its own.
    pub fn start_cluster_on(&self, hosts: &[Host; 6]) -> Cluster {
        let nodes = hosts.iter().enumerate();
        Cluster::form(nodes.map(|(index, host)| self.start_node(true, index, host)).collect())
    }

    /// Starts a sentinel that watches `primary` as [`Watched::NAME`], and replaces it if `quorum` sentinels find it gone
    /// for a second. Its own settings, password and TLS are this builder's.
    pub fn start_sentinel_of(&self, primary: &Server, quorum: usize) -> Server {
        Builder { sentinel: true, ..self.clone() }.watching(&format!("127.0.0.1 {}", primary.port()), quorum).start()
    }

    fn start_node(&self, in_cluster: bool, index: usize, host: &Host) -> Server {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            let server = Server {
                process: Mutex::new(None),
                dir: TempDir::new_in(process::root()).expect("a temporary folder can be made"),
                port: Port::reserve(),
                host: host.clone(),
                password: self.password.clone(),
                tls: self.tls.clone(),
                sentinel: self.sentinel,
                skew: self.skews.iter().find(|(node, _)| *node == index).map(|(_, skew)| skew.clone()),
            };
            let config = self.config_file(&server, in_cluster);
            fs::write(server.path("redis.conf"), config).expect("our own folder can be written to");
            if server.boot() {
                return server;
            }
            log = server.log();
        }
        panic!("no server came up on {ATTEMPTS} ports; the last one said:\n{log}");
    }

    /// The text of a configuration file. (Redis does not mind indented lines.)
    fn config_file(&self, server: &Server, in_cluster: bool) -> String {
        let port = server.port();
        let plain_port = if self.tls.is_some() { 0 } else { port };
        let (socket, dir) = (server.socket(), server.dir.path());
        let (socket, dir, address) = (socket.display(), dir.display(), &server.host.address);
        let mut text = format!(
            "bind {address}
            protected-mode no
            port {plain_port}
            unixsocket \"{socket}\"
            dir \"{dir}\"
            daemonize no
            user {ADMIN} on >{ADMIN} ~* &* +@all\n"
        );
        if !self.sentinel {
            text += &format!(
                "save \"\"
                appendonly no
                enable-debug-command local
                masteruser {ADMIN}
                masterauth {ADMIN}
                repl-diskless-sync-delay 0\n"
            );
        }
        if let Some(tls) = &self.tls {
            let (ca, cert, key) = (tls.ca(), tls.server_cert(), tls.server_key());
            let (ca, cert, key) = (ca.display(), cert.display(), key.display());
            text += &format!(
                "tls-port {port}
                tls-ca-cert-file \"{ca}\"
                tls-cert-file \"{cert}\"
                tls-key-file \"{key}\"
                tls-auth-clients optional
                tls-replication yes
                tls-cluster yes\n"
            );
        }
        if in_cluster {
            // The last line: no node changes its master unless a test says so, or one dies.
            let bus = port + BUS;
            text += &format!(
                "cluster-enabled yes
                cluster-port {bus}
                cluster-announce-ip {address}
                cluster-node-timeout 2000
                cluster-allow-replica-migration no\n"
            );
        }
        for line in &self.settings {
            writeln!(text, "{line}").expect("a String takes any text");
        }
        text
    }
}

/// A server process. Its methods take `&self`, so that one thread may hurt it while others use it.
#[derive(Debug)]
pub struct Server {
    // Dropped in this order: the port is free again only when nobody listens on it.
    process: Mutex<Option<Process>>,
    dir: TempDir,
    port: Port,
    host: Host,
    password: Option<String>,
    tls: Option<Arc<Tls>>,
    /// Whether it runs as a sentinel.
    sentinel: bool,
    skew: Option<String>,
}

impl Server {
    /// A server without password or TLS.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// What [`Server::start`] starts, to be changed first.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The port, the same for the life of this value.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The address that it listens on: 127.0.0.1 unless it was given a host.
    pub fn address(&self) -> &str {
        &self.host.address
    }

    /// `redis://127.0.0.1:PORT`, with `rediss` for TLS, and with the password if the default user has one.
    pub fn url(&self) -> String {
        self.url_with(&self.password.as_ref().map_or_else(String::new, |password| format!(":{password}@")))
    }

    /// The same for a user of the test's own.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    fn url_with(&self, login: &str) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{login}{}:{}", self.address(), self.port())
    }

    /// The Unix socket, on which the server listens too, in plain text even if its port speaks TLS.
    pub fn socket(&self) -> PathBuf {
        self.path("redis.sock")
    }

    /// The certificates, of a server that was built with [`Builder::tls`].
    pub fn tls(&self) -> &Tls {
        self.tls.as_deref().expect("the server was built with TLS")
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("the server's log is there from its start")
    }

    /// A new connection as a user who may do anything.
    pub fn connection(&self) -> Connection {
        assert!(!self.is_paused(), "the server on port {} is paused and would not answer", self.port());
        self.try_connection().expect("a running server takes our connection")
    }

    fn try_connection(&self) -> RedisResult<Connection> {
        let admin = RedisConnectionInfo::default().set_username(ADMIN).set_password(ADMIN);
        let info = ConnectionAddr::Unix(self.socket()).into_connection_info()?.set_redis_settings(admin);
        let connection = redis::Client::open(info)?.get_connection()?;
        connection.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(connection)
    }

    /// Runs one command, its words separated by spaces, as a user who may do anything.
    #[track_caller]
    pub fn call<T: FromRedisValue>(&self, command: &str) -> T {
        match self.try_call(command) {
            Ok(answer) => answer,
            Err(error) => panic!("{command:?} failed on the server on port {}: {error}", self.port()),
        }
    }

    /// The same, if the answer may be an error.
    pub fn try_call<T: FromRedisValue>(&self, command: &str) -> RedisResult<T> {
        let mut words = command.split_whitespace();
        let mut request = redis::cmd(words.next().unwrap_or_default());
        request.arg(words.collect::<Vec<_>>()).query(&mut self.try_connection()?)
    }

    /// A field of INFO.
    #[track_caller]
    pub fn info(&self, field: &str) -> Option<String> {
        let info: String = self.call("INFO everything");
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned())
    }

    /// Removes every key.
    pub fn flush(&self) {
        self.call::<()>("FLUSHALL");
    }

    /// Whether the process is there and not paused.
    pub fn is_running(&self) -> bool {
        self.process().as_mut().is_some_and(|process| !process.has_exited() && !process.is_paused())
    }

    fn is_paused(&self) -> bool {
        self.process().as_ref().is_some_and(Process::is_paused)
    }

    /// Stops the process where it stands (SIGSTOP): connections stay open, and nothing answers.
    pub fn pause(&self) {
        self.process().as_mut().expect("only a running server can be paused").pause();
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.process().as_mut().expect("only a paused server can be resumed").resume();
    }

    /// Ends the process at once (SIGKILL).
    pub fn kill(&self) {
        drop(self.process().take());
    }

    /// Ends the process as an administrator would (SIGTERM).
    pub fn stop(&self) {
        let process = self.process().take();
        if let Some(process) = process {
            process.stop();
        }
    }

    /// Starts the server again, on the same port, as it was configured at first; kills it before if need be. It comes
    /// back empty, but in a cluster it knows its place.
    pub fn restart(&self) {
        self.kill();
        assert!(self.boot(), "the server on port {} did not come back:\n{}", self.port(), self.log());
    }

    /// Starts the process and waits until it answers; false if it ends before that.
    fn boot(&self) -> bool {
        let log = File::options().create(true).append(true).open(self.path("log")).expect("our folder is writable");
        let mut command = std::env::var("TIDEGATE_TEST_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        if let Some(skew) = &self.skew {
            command = process::on_wrong_clock(&command, skew);
        }
        let command = format!("{} {command}", self.host.enter);
        let config = self.path("redis.conf");
        let arguments = [config.as_os_str(), OsStr::new("--sentinel")];
        let mut process = Process::start(&command, &arguments[..1 + usize::from(self.sentinel)], log)
            .unwrap_or_else(|error| panic!("cannot run setpriv (of util-linux) or {command:?}: {error}"));
        let answers = poll(ANSWER_LIMIT, || {
            let answers = self.try_call::<()>("PING").is_ok();
            (answers || process.has_exited()).then_some(answers)
        });
        *self.process() = Some(process);
        answers == Some(true)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // A test that failed with the lock in its hand leaves a process that is still to be ended.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// A server that all tests of this process share. Use keys of your own, and leave the process alone.
pub fn shared_server() -> &'static Server {
    static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
    &SERVER
}

/// A cluster that all tests of this process share. Use keys of your own, and leave its nodes and slots alone.
pub fn shared_cluster() -> &'static Cluster {
    static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);
    &CLUSTER
}

/// The keys of one node that would stay for ever, in order.
pub fn keys_without_ttl(connection: &mut Connection) -> Vec<Vec<u8>> {
    let mut found = BTreeSet::new();
    let mut cursor = 0_u64;
    loop {
        let mut scan = redis::cmd("SCAN");
        let scanned = scan.arg(cursor).arg("COUNT").arg(1_000).query(connection);
        let (next, keys): (_, Vec<Vec<u8>>) = scanned.expect("an administrator may scan");
        let mut ask = redis::pipe();
        for key in &keys {
            ask.cmd("PTTL").arg(key);
        }
        let times: Vec<i64> = if keys.is_empty() {
            Vec::new() // The client refuses to send nothing.
        } else {
            ask.query(connection).expect("a node answers for the keys that it lists")
        };
        // -1 is "no expiry"; -2 would be a key that expired since the scan.
        found.extend(keys.into_iter().zip(times).filter(|(_, time)| *time == -1).map(|(key, _)| key));
        cursor = next;
        if cursor == 0 {
            return found.into_iter().collect();
        }
    }
}

/// Waits until `condition` holds, and fails the test if it does not within `limit`.
#[track_caller]
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) {
    assert!(poll(limit, || condition().then_some(())).is_some(), "still not so after {limit:?}");
}

/// Asks again and again until there is an answer, for `limit` at most.
#[allow(clippy::disallowed_methods, reason = "the one place where tests wait for something outside of this process")]
fn poll<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || start.elapsed() >= limit {
            return answer;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

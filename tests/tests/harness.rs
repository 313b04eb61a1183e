//! The harness does what it promises: else every test that uses it would be in doubt.

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use redis::{Client, ErrorKind, ServerErrorKind, TlsCertificates};
use tidegate_tests::servers::{
    Cluster, Server, Tls, eventually, keys_without_ttl, shared_cluster, shared_server, slot,
};

const SOON: Duration = Duration::from_secs(10);

fn open(url: &str) -> redis::RedisResult<redis::Connection> {
    let connection = Client::open(url)?.get_connection_with_timeout(SOON)?;
    connection.set_read_timeout(Some(Duration::from_millis(300)))?;
    Ok(connection)
}

fn ping(connection: &mut redis::Connection) -> bool {
    redis::cmd("PING").query::<String>(connection).is_ok_and(|answer| answer == "PONG")
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn a_server_starts_empty_and_ends_when_dropped() {
    let server = Server::start();
    assert!(ping(&mut open(&server.url()).expect("the server is up")));
    assert_eq!(server.call::<u64>("DBSIZE"), 0);
    assert_eq!(server.call::<(String, String)>("CONFIG GET save"), ("save".to_owned(), String::new()));
    assert!(server.is_running());
    assert!(server.log().contains("Ready to accept connections"));

    let (port, socket) = (server.port(), server.socket());
    let folder = socket.parent().expect("the socket is in the server's folder");
    assert!(folder.exists());
    drop(server);
    assert!(!listens(port));
    assert!(!folder.exists());
}

#[test]
fn a_paused_server_takes_connections_but_does_not_answer() {
    let server = Server::start();
    let mut connection = open(&server.url()).expect("the server is up");
    server.pause();
    assert!(!server.is_running());
    assert!(listens(server.port()));
    assert!(!ping(&mut connection));
    server.resume();
    assert!(server.is_running());
    assert!(ping(&mut open(&server.url()).expect("the server goes on")));
}

#[test]
fn a_killed_server_comes_back_on_its_port_and_empty() {
    let server = Server::builder().config("maxmemory 3mb").start();
    let url = server.url();
    server.call::<()>("SET key value");
    for end in [Server::kill, Server::stop, Server::pause] {
        end(&server);
        assert!(!server.is_running());
        server.restart();
        assert!(server.is_running());
        assert_eq!(server.url(), url);
        assert!(ping(&mut open(&url).expect("the server is back")));
        assert_eq!(server.call::<u64>("DBSIZE"), 0);
        assert_eq!(server.info("maxmemory").as_deref(), Some("3145728"));
    }
    server.kill();
    assert!(open(&url).is_err());
    server.kill();
}

#[test]
fn a_server_that_ends_by_itself_is_seen_as_such() {
    let server = Server::start();
    assert!(server.try_call::<()>("SHUTDOWN NOSAVE").is_err());
    eventually(SOON, || !server.is_running());
}

#[test]
#[should_panic(expected = "no-such-setting")]
fn a_server_that_cannot_start_says_why() {
    Server::builder().config("no-such-setting 1").start();
}

#[test]
fn a_password_and_users_are_asked_for_and_the_harness_needs_none() {
    let server = Server::builder().password("secret").user("app on >pass ~tidegate:* +@all -flushall").start();
    let mut admin = open(&server.url()).expect("the url has the password");
    assert!(ping(&mut admin));
    let anonymous = open(&format!("redis://127.0.0.1:{}", server.port()));
    assert!(!ping(&mut anonymous.expect("connecting needs no password")));

    let mut app = open(&server.url_as("app", "pass")).expect("the user is known");
    redis::cmd("SET").arg("tidegate:x").arg(1).exec(&mut app).expect("the user may write there");
    for forbidden in [redis::cmd("SET").arg("other").arg(1), redis::cmd("FLUSHALL").arg("SYNC")] {
        let error = forbidden.exec(&mut app).expect_err("the user may not do that");
        assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm));
    }
    server.flush();

    let closed = Server::builder().user("default off").start();
    assert!(!open(&closed.url()).is_ok_and(|mut connection| ping(&mut connection)));
    assert_eq!(closed.call::<String>("PING"), "PONG");
}

/// Trusts `trusted`, and shows a client's certificate if there is one.
fn open_tls(url: &str, trusted: &Tls, client: Option<&Tls>) -> redis::RedisResult<redis::Connection> {
    let _ = rustls::crypto::ring::default_provider().install_default(); // Fails if it is installed already.
    let read = |path| fs::read(path).expect("the certificates are there");
    let certificates = TlsCertificates {
        root_cert: Some(read(trusted.ca())),
        client_tls: client.map(|tls| redis::ClientTlsConfig {
            client_cert: read(tls.client_cert()),
            client_key: read(tls.client_key()),
        }),
    };
    let mut connection = Client::build_with_tls(url, certificates)?.get_connection()?;
    redis::cmd("PING").exec(&mut connection)?;
    Ok(connection)
}

#[test]
fn tls_shows_a_certificate_that_can_be_checked() {
    let server = Server::builder().tls(&["localhost", "127.0.0.1"]).password("secret").start();
    assert!(server.url().starts_with("rediss://:secret@127.0.0.1:"));
    open_tls(&server.url(), server.tls(), None).expect("the certificate is for 127.0.0.1");
    assert!(open(&server.url().replace("rediss", "redis")).is_err(), "plain text is refused");

    let stranger = Tls::new(&["127.0.0.1"]);
    assert!(open_tls(&server.url(), &stranger, None).is_err(), "another authority did not sign it");

    let elsewhere = Server::builder().tls(&["elsewhere.test"]).start();
    assert!(open_tls(&elsewhere.url(), elsewhere.tls(), None).is_err(), "it is not for 127.0.0.1");

    let strict = Server::builder().tls(&["127.0.0.1"]).config("tls-auth-clients yes").start();
    assert!(open_tls(&strict.url(), strict.tls(), None).is_err(), "it wants the client's certificate");
    open_tls(&strict.url(), strict.tls(), Some(strict.tls())).expect("the client's certificate is good");
}

#[test]
fn a_replica_can_be_had_without_a_cluster() {
    let master = Server::builder().password("secret").start();
    let replica = Server::builder().config(&format!("replicaof 127.0.0.1 {}", master.port())).start();
    eventually(SOON, || replica.info("master_link_status").as_deref() == Some("up"));
    master.call::<()>("SET key value");
    eventually(SOON, || replica.call::<Option<String>>("GET key").as_deref() == Some("value"));
    let error = replica.try_call::<()>("SET key other").expect_err("a replica takes no writes");
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly));
}

#[test]
fn keys_without_ttl_are_found_among_many() {
    let server = Server::start();
    assert!(keys_without_ttl(&mut server.connection()).is_empty());
    let mut fill = redis::pipe();
    for i in 0..3_000 {
        fill.cmd("SET").arg(format!("mortal {i}")).arg("").arg("PX").arg(60_000);
    }
    let eternal = [b"\xff\0".to_vec(), b"eternal".to_vec()];
    for key in &eternal {
        fill.cmd("SET").arg(key).arg("");
    }
    fill.exec(&mut server.connection()).expect("the server takes keys");
    let mut found = keys_without_ttl(&mut server.connection());
    found.reverse();
    assert_eq!(found, eternal);
}

#[test]
fn slots_are_those_of_the_server() {
    let server = shared_cluster().node(0);
    for key in ["", "a", "123456789", "{a}b", "x{a}b{c}", "{}a", "{a", "a}{b}", "{{a}}", "tidegate:1:{bob}:r:w"] {
        let theirs: u16 = redis::cmd("CLUSTER")
            .arg(&["KEYSLOT", key])
            .query(&mut server.connection())
            .expect("KEYSLOT takes any key");
        assert_eq!(slot(key.as_bytes()), theirs, "of {key:?}");
    }
    assert_eq!(slot(b"123456789"), 0x31c3);
}

#[test]
fn a_cluster_has_three_masters_with_a_replica_each() {
    let cluster = shared_cluster();
    assert_eq!(cluster.nodes().len(), 6);
    let masters: Vec<u16> = cluster.masters().iter().map(|node| node.port()).collect();
    assert_eq!(masters, cluster.nodes()[..3].iter().map(Server::port).collect::<Vec<_>>());
    for (i, first) in [(0, 0), (1, 5_462), (2, 10_924)] {
        assert_eq!(cluster.master_of(first).port(), cluster.node(i).port());
        assert_eq!(cluster.replica_of(cluster.node(i)).port(), cluster.node(i + 3).port());
    }
    for node in cluster.nodes() {
        assert_eq!(node.call::<Vec<redis::Value>>("CLUSTER SLOTS").len(), 3);
        assert!(cluster.url().contains(&format!("127.0.0.1:{}", node.port())));
    }
    assert!(cluster.url().starts_with("redis+cluster://127.0.0.1:"));
}

#[test]
fn a_slot_moves_with_its_keys_and_answers_ask_halfway() {
    let cluster = Cluster::start();
    let (a, b) = ("{s}:a", "{s}:b");
    let moving = slot(a.as_bytes());
    let from = cluster.master_of(moving);
    let to = cluster.masters().into_iter().find(|node| node.port() != from.port()).expect("there are three masters");
    from.call::<()>(&format!("SET {a} 1 PX 60000"));
    from.call::<()>(&format!("SET {b} 2"));
    assert_eq!(cluster.keys_without_ttl(), [b.as_bytes()]);
    let error_kind = |node: &Server, command: &str| match node.try_call::<()>(command).map_err(|error| error.kind()) {
        Err(ErrorKind::Server(kind)) => kind,
        other => panic!("{command} gave {other:?}"),
    };

    cluster.begin_move(moving, to);
    cluster.move_key(a.as_bytes(), to);
    assert_eq!(error_kind(from, &format!("GET {a}")), ServerErrorKind::Ask);
    assert_eq!(error_kind(from, "GET {s}:unknown"), ServerErrorKind::Ask);
    assert_eq!(from.call::<u8>(&format!("GET {b}")), 2);
    assert_eq!(error_kind(from, &format!("MGET {a} {b}")), ServerErrorKind::TryAgain);
    assert_eq!(error_kind(to, &format!("GET {a}")), ServerErrorKind::Moved);
    let mut asking = to.connection();
    redis::cmd("ASKING").exec(&mut asking).expect("a node of a cluster knows ASKING");
    assert_eq!(redis::cmd("GET").arg(a).query::<u8>(&mut asking).expect("the key is there"), 1);

    cluster.move_slot(moving, to);
    assert_eq!(cluster.master_of(moving).port(), to.port());
    assert_eq!(to.call::<Vec<u8>>(&format!("MGET {a} {b}")), [1, 2]);
    assert!(to.call::<i64>(&format!("PTTL {a}")) > 0);
    for node in cluster.nodes().iter().filter(|node| node.port() != to.port()) {
        let moved = node.try_call::<()>(&format!("SET {a} 1")).expect_err("the key is elsewhere").to_string();
        assert!(moved.contains(&to.port().to_string()), "{moved}");
    }

    cluster.move_slot(moving, from);
    assert_eq!(from.call::<Vec<u8>>(&format!("MGET {a} {b}")), [1, 2]);
    cluster.flush();
    assert_eq!(from.call::<u64>("DBSIZE"), 0);
}

#[test]
fn masters_and_replicas_change_places_by_order_and_by_death() {
    let cluster = Server::builder().config("cluster-node-timeout 1000").password("secret").start_cluster();
    let (master, replica) = (cluster.node(0), cluster.node(3));
    let first = cluster.master_of(0).port();
    assert_eq!(first, master.port());

    cluster.failover(replica);
    assert_eq!(cluster.master_of(0).port(), replica.port());
    assert_eq!(cluster.replica_of(replica).port(), master.port());

    replica.kill();
    eventually(SOON, || cluster.master_of(0).port() == master.port());
    replica.restart();
    cluster.settle();
    assert_eq!(cluster.replica_of(master).port(), replica.port());

    master.pause();
    eventually(SOON, || cluster.master_of(0).port() == replica.port());
    master.resume();
    cluster.settle();
    assert_eq!(cluster.masters().len(), 3);
    assert_eq!(cluster.replica_of(replica).port(), master.port());
}

#[test]
fn a_cluster_can_speak_tls() {
    let cluster = Server::builder().tls(&["127.0.0.1"]).start_cluster();
    assert!(cluster.url().starts_with("rediss+cluster://127.0.0.1:"));
    let node = cluster.node(1);
    open_tls(&node.url(), node.tls(), None).expect("every node has the certificate");
    let (from, to) = (cluster.master_of(slot(b"a")), cluster.node(0));
    from.call::<()>("SET a 1");
    cluster.move_slot(slot(b"a"), to);
    assert_eq!(to.call::<u8>("GET a"), 1);
}

#[test]
fn a_shared_server_outlives_the_thread_that_asked_first() {
    let port = thread::spawn(|| shared_server().port()).join().expect("the server starts");
    assert!(listens(port));
    assert_eq!(shared_server().port(), port);
    assert_eq!(shared_server().call::<String>("PING"), "PONG");
}

/// Runs this very test in a process of its own, which starts a shared server and then ends or is killed.
#[test]
fn nothing_outlives_the_test_process() {
    const NOTE: &str = "TIDEGATE_HARNESS_NOTE";
    const WAITS: &str = "TIDEGATE_HARNESS_WAITS";
    if let Ok(note) = std::env::var(NOTE) {
        let server = shared_server();
        let text = format!("{}\n{}\n.", server.port(), server.socket().display());
        fs::write(note, text).expect("the parent has made the folder");
        if std::env::var(WAITS).is_ok() {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("the parent holds our input open");
        }
        return;
    }
    for is_killed in [false, true] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let note = folder.path().join("note");
        let mut process = Command::new(std::env::current_exe().expect("a test is a program"));
        process.args(["--exact", "nothing_outlives_the_test_process"]).env(NOTE, &note);
        process.stdin(Stdio::piped()).stdout(Stdio::null());
        if is_killed {
            process.env(WAITS, "");
        }
        let mut process = process.spawn().expect("a test can be run again");
        let read = || fs::read_to_string(&note).unwrap_or_default();
        eventually(SOON, || read().ends_with('.'));
        let text = read();
        let (port, socket) = text.split_once('\n').expect("the note has lines");
        let port = port.parse().expect("the first is the port");
        let socket = std::path::Path::new(socket.trim_end_matches(['\n', '.']));
        if is_killed {
            assert!(listens(port));
            assert!(socket.exists());
            process.kill().expect("it is our child");
        }
        process.wait().expect("it is our child");
        eventually(SOON, || !listens(port));
        let root = socket.ancestors().nth(2).expect("a server's folder is in its process's folder");
        eventually(SOON, || !root.exists());
    }
}

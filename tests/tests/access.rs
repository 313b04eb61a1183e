//! Who may connect, and how: ACL, passwords, TLS, sockets, databases, servers that are too old.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{Algorithm, Builder, Document, ErrorKind, Limit, Limiter, Origin, Rule};
use tidegate_tests::servers::{self, Server, eventually};

const SECOND: Duration = Duration::from_secs(1);

fn limiter(url: &str) -> Builder {
    Limiter::builder().rule("r", "5/m").url(url).deadline(SECOND)
}

fn decides(limiter: &Limiter, key: &str) -> bool {
    limiter.check("r", key).wait().expect("a legal call").origin() == Origin::Store
}

fn document(text: &str) -> Limiter {
    let document = Document::from_toml(&format!("version = 1\n[rules]\nr = \"5/m\"\n{text}")).expect("a document");
    Limiter::builder().document(&document).deadline(SECOND).build().expect("a limiter")
}

/// The permissions that the README lists.
fn listed_permissions() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("user tidegate on >PASSWORD").expect("the README has the ACL");
    let (acl, _) = rest.split_once("```").expect("the ACL ends");
    acl.split_whitespace().map(str::to_owned).collect()
}

/// Every call, in all the ways that read and write differently. Whether all of them were allowed.
fn exercise([limiter, timed]: &[Limiter; 2], clock: &AtomicU64, key: &str) -> bool {
    decides(timed, key)
        && Algorithm::ALL.iter().copied().all(|algorithm| exercise_one(limiter, clock, algorithm, key).is_ok())
        && limiter.log("sliding_window_log", key).wait().is_ok()
}

fn exercise_one(
    limiter: &Limiter,
    clock: &AtomicU64,
    algorithm: Algorithm,
    key: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let rule = algorithm.name();
    let at = |micros: u64| clock.store(1_800_000_000_000_000 + micros, Ordering::SeqCst);
    let check = |cost: u64| -> Result<tidegate::Decision, Box<dyn std::error::Error>> {
        let mut check = limiter.check(rule, key).cost(cost);
        if algorithm == Algorithm::SlidingWindowLog {
            check = check.request_id(format!("{cost} at {}", clock.load(Ordering::SeqCst)));
        }
        let decision = check.wait()?;
        decision.failure().cloned().map_or(Ok(decision), |failure| Err(failure.into()))
    };
    at(0);
    let (first, merged) = (check(1)?, check(1)?);
    at(10);
    let middle = check(2)?;
    at(20);
    let last = check(3)?;
    check(4)?;
    if let Some(failure) = limiter.peek(rule, key).cost(3).wait()?.failure() {
        return Err(failure.clone().into());
    }
    for receipt in [&middle, &last, &first, &merged].map(tidegate::Decision::receipt) {
        limiter.refund(&receipt).wait()?;
    }
    let hour = 3_600_000_000;
    for after in [0, 5, 10, 3 * hour, 4 * hour - 1, 4 * hour + 1, 9 * hour] {
        at(hour + after);
        check(1)?;
    }
    limiter.count(rule, key, SECOND).add(2).wait()?;
    limiter.count(rule, key, SECOND).add(1).wait()?;
    limiter.reset(rule, key).wait()?;
    Ok(())
}

/// A limiter on a given clock, and one on the server's own.
fn for_exercise(url: &str, clock: &Arc<AtomicU64>) -> [Limiter; 2] {
    let rules = Algorithm::ALL.iter().copied().map(|algorithm| {
        Rule::new(algorithm.name(), [Limit::new(8, 3600 * SECOND).algorithm(algorithm)]).expect("a rule")
    });
    let given = Limiter::builder().rules(rules).url(url).deadline(10 * SECOND).clock(clock);
    [given, limiter(url).prefix("tidegate:timed")].map(|builder| builder.build().expect("a limiter"))
}

#[test]
fn the_readmes_acl_is_enough_and_every_permission_in_it_is_needed() {
    let server = Server::start();
    let clock = Arc::new(AtomicU64::new(0));
    let cluster_only = ["+cluster|slots", "+asking"];
    let listed = listed_permissions();
    let set = |name: &str, permissions: &[&String]| {
        let permissions: Vec<&str> = permissions.iter().map(|permission| permission.as_str()).collect();
        server.call::<()>(&format!("ACL SETUSER {name} reset on >secret {}", permissions.join(" ")));
        for_exercise(&server.url_as(name, "secret"), &clock)
    };
    let all = set("all", &listed.iter().collect::<Vec<_>>());
    assert!(exercise(&all, &clock, "all"), "the README's ACL is not enough");
    for (number, left_out) in listed.iter().enumerate() {
        if !left_out.starts_with('+') || cluster_only.contains(&&**left_out) {
            continue;
        }
        let others: Vec<&String> = listed.iter().filter(|permission| *permission != left_out).collect();
        let limiter = set(&format!("user{number}"), &others);
        server.call::<()>("SCRIPT FLUSH");
        assert!(!exercise(&limiter, &clock, left_out), "{left_out} is in the README's ACL, and nothing needs it");
    }
}

#[test]
fn the_readmes_acl_is_enough_on_a_cluster() {
    let acl = format!("tidegate on >secret {}", listed_permissions().join(" "));
    let cluster = Server::builder().user(&acl).start_cluster();
    let url = cluster.url().replace("://", "://tidegate:secret@");
    let limiter = limiter(&url).build().expect("a limiter");
    limiter.ready(10 * SECOND).wait().expect("the cluster is there");
    let slot = servers::slot(b"tidegate:1:{moving}:r:sliding_window:60000");
    let target = cluster.masters().into_iter().find(|node| node.port() != cluster.master_of(slot).port());
    cluster.begin_move(slot, target.expect("another master"));
    assert!(decides(&limiter, "moving"), "an ASK needs its permission");
}

#[test]
fn a_wrong_password_follows_on_error_and_a_rotated_one_needs_no_restart() {
    let server = Server::builder().user("app on >first ~tidegate:* +@all").start();
    let wrong = limiter(&server.url_as("app", "wrong")).build().expect("building needs no server");
    let decision = wrong.check("r", "a").wait().expect("a decision");
    assert_eq!(decision.origin(), Origin::Open);
    let failure = decision.failure().expect("a reason");
    assert_eq!(failure.kind(), ErrorKind::StoreUnavailable);
    assert!(failure.to_string().contains("login"), "{failure}");

    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "first\n").expect("written");
    let url = server.url().replace("://", "://app@");
    let rotating = document(&format!("[store]\nurl = \"{url}\"\npassword_file = \"{}\"", file.path().display()));
    assert!(decides(&rotating, "a"));
    server.call::<()>("ACL SETUSER app resetpass >second");
    server.call::<i64>("CLIENT KILL USER app");
    std::fs::write(file.path(), "second\n").expect("written");
    eventually(10 * SECOND, || decides(&rotating, "a"));
}

#[test]
fn no_password_shows_in_errors_or_debug_output() {
    let url = "redis://app:hunter2@127.0.0.1:1";
    let built = limiter(url);
    assert!(!format!("{built:?}").contains("hunter2"));
    let limiter = built.build().expect("building needs no server");
    assert!(!format!("{limiter:?}").contains("hunter2"));
    let decision = limiter.check("r", "a").wait().expect("a decision");
    assert!(!format!("{decision:?}").contains("hunter2"));
    for bad in ["redis://app:hunter2@", "redis//app:hunter2@host", "ftp://app:hunter2@host", "redis://app:hunter2@h:0"]
    {
        let error = Limiter::builder().rule("r", "5/m").url(bad).build().expect_err("a bad url");
        assert_eq!(error.kind(), ErrorKind::InvalidDocument);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn tls_trusts_the_given_authority_and_checks_the_servers_name() {
    let server = Server::builder().tls(&["redis.example"]).config("tls-auth-clients yes").start();
    let (url, tls) = (server.url(), server.tls());
    let (ca, certificate, key) = (tls.ca(), tls.client_cert(), tls.client_key());
    let trusting =
        |more: &str| document(&format!("[store]\nurl = \"{url}\"\n[store.tls]\nca = \"{}\"\n{more}", ca.display()));
    let shown = format!("certificate = \"{}\"\nkey = \"{}\"", certificate.display(), key.display());

    assert!(decides(&trusting(&format!("{shown}\nserver_name = \"redis.example\"")), "a"));
    let refused = |limiter: &Limiter| limiter.ready(SECOND / 2).wait().expect_err("refused").to_string();
    let other_name = refused(&trusting(&format!("{shown}\nserver_name = \"other.example\"")));
    assert!(other_name.contains("not valid for name"), "{other_name}");
    let unknown = refused(&document(&format!("[store]\nurl = \"{url}\"\n[store.tls]\n{shown}")));
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
    assert!(!decides(&trusting("server_name = \"redis.example\""), "a"), "the server asks for a certificate");
}

#[test]
fn a_socket_and_a_database_are_reached_by_their_urls() {
    let server = Server::start();
    let socket = format!("redis+unix://{}?db=3", server.socket().display());
    assert!(decides(&limiter(&socket).build().expect("a limiter"), "a"));
    assert!(decides(&limiter(&format!("{}/3", server.url())).build().expect("a limiter"), "a"));
    server.call::<()>("SELECT 3");
    let here = limiter(&format!("{}/3", server.url())).build().expect("a limiter");
    assert_eq!(here.peek("r", "a").wait().expect("a peek").remaining(), 3);
    let elsewhere = limiter(&server.url()).build().expect("a limiter");
    assert_eq!(elsewhere.peek("r", "a").wait().expect("a peek").remaining(), 5);
}

#[test]
fn a_plain_url_of_a_clusters_node_is_used_as_the_cluster() {
    let cluster = servers::shared_cluster();
    let limiter = limiter(&cluster.node(0).url()).prefix("plain").build().expect("a limiter");
    for number in 0..64 {
        assert!(decides(&limiter, &format!("user {number}")));
    }
}

#[test]
fn limiters_of_one_url_share_a_connection_and_name_it() {
    let server = Server::start();
    let limiters: Vec<Limiter> = (0..4).map(|_| limiter(&server.url()).build().expect("a limiter")).collect();
    assert!(limiters.iter().all(|limiter| decides(limiter, "a")));
    let clients = || server.call::<String>("CLIENT LIST");
    assert_eq!(clients().matches("name=tidegate ").count(), 1, "{}", clients());
    // One more, for those that are alone and wait.
    eventually(Duration::from_secs(20), || {
        assert!(limiters.iter().all(|limiter| decides(limiter, "a")));
        clients().contains("name=tidegate-lane ")
    });
    assert_eq!(clients().matches("name=tidegate").count(), 2, "{}", clients());
}

/// A server that says it is Redis 6.2, which cannot read the script's first line.
#[test]
fn an_old_server_is_refused_when_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten().take(8) {
            let mut asked = [0; 512];
            while stream.read(&mut asked).is_ok_and(|read| read > 0) {
                let _ = stream.write_all(b"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.2.7\r\n");
            }
        }
    });
    let old = limiter(&format!("redis://127.0.0.1:{port}")).build().expect("building needs no server");
    let error = old.ready(5 * SECOND).wait().expect_err("too old");
    assert_eq!(error.kind(), ErrorKind::UnsupportedServer);
    assert!(error.to_string().contains("6.2.7"), "{error}");
}

//! `tidegate doctor` on real servers, well and unwell.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{Ran, command, tidegate};
use serde_json::{Value, json};
use tidegate::{Builder, Limiter};
use tidegate_tests::servers::{Cluster, Server, Watched, eventually, keys_without_ttl, shared_cluster};

fn doctor(url: &str) -> Ran {
    tidegate(&["doctor", "--url", url])
}

/// The report for programs, with the exit code that belongs to it.
fn report(url: &str) -> Value {
    let ran = tidegate(&["doctor", "--json", "--url", url]);
    let report = ran.json();
    let code = if report["ok"] == true { 0 } else { 1 };
    assert_eq!((ran.exits(code).err, &report["ok"]), (String::new(), &Value::Bool(report["problems"] == 0)));
    assert_eq!(report["version"], 1);
    let (fields, documented) = (fields(&report), documented());
    assert!(fields.is_subset(&documented), "not documented: {:?}", fields.difference(&documented));
    report
}

/// The names of a report's fields, as docs/doctor.md writes them.
fn fields(report: &Value) -> BTreeSet<String> {
    fn collect(value: &Value, name: &str, names: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                    collect(value, &name, names);
                    names.insert(name);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, &format!("{name}[]"), names)),
            _ => {}
        }
    }
    let mut names = BTreeSet::new();
    collect(report, "", &mut names);
    names
}

/// The fields that the page lists: in the first column, and the parts of one in the second.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/doctor.md");
    let (_, rest) = page.split_once("## Fields").expect("the page lists the fields");
    let (rows, _) = rest.split_once("## Codes").expect("and the codes after them");
    let named = |row: &'static str| {
        let first = row.split('|').nth(1).unwrap_or_default();
        let quoted = |text: &'static str| text.split('`').skip(1).step_by(2);
        quoted(first).chain(quoted(row).filter(|name| name.contains("[].")))
    };
    rows.lines().filter(|line| line.starts_with("| `")).flat_map(named).map(str::to_owned).collect()
}

/// What was found of a level, as `subject: text`.
fn found(report: &Value, level: &str) -> Vec<String> {
    let findings = report["findings"].as_array().expect("a list").iter();
    let text = |finding: &Value| {
        let part = |name| finding[name].as_str().expect("a text").to_owned();
        format!("{}: {}", part("subject"), part("text"))
    };
    findings.filter(|finding| finding["level"] == level).map(text).collect()
}

#[track_caller]
fn has(report: &Value, level: &str, text: &str) {
    assert!(found(report, level).iter().any(|finding| finding.contains(text)), "{level} {text:?} in {report:#}");
}

/// The README's user, with its name and password, for the given prefix.
fn least() -> String {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("user tidegate on >PASSWORD").expect("the README has the ACL");
    let (acl, _) = rest.split_once("```").expect("the ACL ends");
    format!("app on >secret {}", acl.trim())
}

#[test]
fn a_server_that_is_well_has_no_problem_and_nothing_is_left_on_it() {
    let server = Server::builder().config("maxmemory-policy noeviction").start();
    let ran = doctor(&server.url()).exits(0);
    for text in [
        "ok       connection   127.0.0.1:",
        "user         default is allowed all that is needed\n",
        "checks       a check by each algorithm was decided",
        "memory       maxmemory-policy is noeviction\n",
        "this machine's",
        "round trip   median ",
        "batches      checks that queue leave together\n",
        "\nno problems, no warnings\n",
    ] {
        ran.says(text);
    }
    assert!(ran.err.is_empty() && !ran.out.contains('\u{1b}'), "{ran:#?}");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{}", ran.out);
    assert_eq!(server.call::<u64>("DBSIZE"), 0);

    let report = report(&server.url());
    let node = &report["nodes"][0];
    assert_eq!((&report["cluster"], &node["place"], &node["checks"]), (&Value::Null, &"alone".into(), &true.into()));
    assert_eq!(
        node["version"].as_str().map(str::to_owned),
        server.info("redis_version").or(server.info("valkey_version"))
    );
    assert_eq!(node["maxmemory_policy"], "noeviction");
    assert!(node["round_trip_worst_us"].as_u64() >= node["round_trip_median_us"].as_u64(), "{report:#}");
}

#[test]
fn a_server_that_evicts_or_is_nearly_full_is_warned_of() {
    let server = Server::builder().config("maxmemory-policy allkeys-lru").start();
    let ran = doctor(&server.url()).exits(0);
    ran.says("warning  memory       maxmemory-policy is allkeys-lru");
    ran.says("try: CONFIG SET maxmemory-policy noeviction");
    ran.says("\nno problems, 1 warning\n");
    server.call::<()>("CONFIG SET maxmemory-policy noeviction");
    let used = server.info("used_memory").and_then(|used| used.parse::<u64>().ok()).expect("it tells");
    server.call::<()>(&format!("CONFIG SET maxmemory {used}"));
    has(&report(&server.url()), "warning", "of its maxmemory is used");
    server.call::<()>("CONFIG SET maxmemory 1");
    has(&report(&server.url()), "problem", "out of memory");
}

#[test]
fn the_least_that_a_user_must_be_allowed_is_no_problem_and_what_is_not_known_is_said() {
    let server = Server::builder().user(&least()).start();
    let told = report(&server.url_as("app", "secret"));
    assert_eq!(found(&told, "problem"), [""; 0], "{told:#}");
    has(&told, "ok", "user: app is allowed all that is needed");
    has(&told, "ok", "checks: ");
    has(&told, "note", "maxmemory-policy is not known");
    server.call::<()>("ACL SETUSER app +config|get");
    assert_eq!(report(&server.url_as("app", "secret"))["nodes"][0]["maxmemory_policy"], "noeviction");
    assert_eq!(server.call::<u64>("DBSIZE"), 0);
}

#[test]
fn commands_that_a_server_does_not_have_are_not_taken_for_what_a_user_lacks() {
    let server = Server::builder().user(&least()).config("rename-command CONFIG \"\"").start();
    let url = server.url_as("app", "secret");
    let memory = |report: &Value| {
        let findings = report["findings"].as_array().expect("a list").iter();
        let mut memory = findings.filter(|finding| finding["code"] == "eviction_unknown").cloned();
        memory.next().map(|finding| (finding["text"].to_string(), finding["advice"].to_string()))
    };
    let (text, advice) = memory(&report(&url)).expect("nothing tells");
    assert!(text.contains("app is not allowed to ask") && advice.contains("ACL SETUSER app +info"), "{text} {advice}");
    server.call::<()>("ACL SETUSER app +info");
    assert_eq!(memory(&report(&url)), None, "the advice helps");

    let neither = Server::builder().config("rename-command CONFIG \"\"").config("rename-command INFO \"\"").start();
    let (text, advice) = memory(&report(&neither.url())).expect("nothing tells");
    assert!(text.contains("unknown command 'INFO'") && !text.contains("not allowed"), "{text}");
    assert!(advice.contains("server's configuration") && !advice.contains("ACL"), "{advice}");
}

#[test]
fn what_a_user_lacks_is_named_and_what_to_type() {
    let server = Server::builder().user(&least()).start();
    let url = server.url_as("app", "secret");
    let told = |change: &str, back: &str| {
        server.call::<()>(&format!("ACL SETUSER app {change}"));
        let told = report(&url);
        server.call::<()>(&format!("ACL SETUSER app {back}"));
        assert_eq!((&told["problems"], found(&told, "problem").len()), (&1.into(), 1), "{told:#}");
        let problem = told["findings"].as_array().expect("a list").iter().find(|finding| finding["level"] == "problem");
        (told["nodes"][0]["lacks"].clone(), problem.expect("it was counted")["advice"].clone())
    };
    let advice = |lacks: &str| {
        Value::from(format!("ACL SETUSER app {lacks}, and the same in the ACL file; the README has the whole line"))
    };
    for lacking in ["rpush", "set", "psetex", "evalsha", "eval", "zremrangebyscore", "time", "del"] {
        let (lacks, advised) = told(&format!("-{lacking}"), &format!("+{lacking}"));
        assert_eq!((lacks, advised), (json!([format!("+{lacking}")]), advice(&format!("+{lacking}"))));
    }
    assert_eq!(told("-set -psetex", "+set +psetex").0, json!(["+set", "+psetex"]));
    assert_eq!(told("resetkeys ~other:*", "resetkeys ~tidegate:*").1, advice("~tidegate:*"));
    let shop = tidegate(&["doctor", "--prefix", "shop", "--url", &url]).exits(1);
    shop.says("problem  user         app is not allowed all that is needed, and lacks ~shop:*\n");
    // What could not be deleted has a TTL.
    assert!(keys_without_ttl(&mut server.connection()).is_empty());
}

#[test]
fn who_cannot_be_reached_or_refuses_is_a_problem_with_what_to_do() {
    let server = Server::builder().password("right").tls(&["127.0.0.1"]).start();
    let plain = Server::builder().password("right").start();
    let wrong = doctor(&plain.url().replace("right", "hunter2")).exits(1);
    wrong.says("problem  connection   ");
    wrong.says("try: correct username and password");
    assert!(!wrong.out.contains("hunter2") && wrong.err.is_empty(), "{wrong:#?}");
    doctor("redis://127.0.0.1:1").exits(1).says("try: start the server, or correct the url");
    doctor(&server.url()).exits(1).says("TLS");
    let ca = server.tls().ca();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("tidegate.toml");
    let (url, ca) = (server.url(), ca.display());
    let text = format!("version = 1\n[store]\nurl = \"{url}\"\n[store.tls]\nca = \"{ca}\"\n[rules]\nlogin = \"1/h\"\n");
    std::fs::write(&path, text).expect("our own folder can be written to");
    tidegate(&["doctor", "--config", path.to_str().expect("it has a plain name")]).exits(0).says("no problems");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "that it ends in time is what is claimed")]
fn a_server_that_hangs_is_told_in_time() {
    let server = Server::start();
    server.pause();
    let began = Instant::now();
    doctor(&server.url()).exits(1).says("did not answer within 1500 ms");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let inspected = Limiter::builder().url(&server.url()).inspect(Duration::from_millis(200)).wait();
    let error = inspected.expect("it can be meant").nodes.remove(0).server.expect_err("it hangs");
    assert!(error.message().ends_with("had not answered when the time for the whole inspection was up"), "{error}");
}

#[test]
fn an_inspection_refuses_what_a_limiter_would_and_a_timeout_out_of_range() {
    let refused = |change: fn(Builder) -> Builder, timeout| {
        let inspected = change(Limiter::builder().url("redis://127.0.0.1:1")).inspect(timeout).wait();
        inspected.expect_err("it cannot be meant")
    };
    let (none, soon) = (Duration::ZERO, Duration::from_secs(5));
    let changes: [fn(Builder) -> Builder; 5] = [
        |builder| builder.prefix("no spaces"),
        |builder| builder.deadline(Duration::ZERO),
        |builder| builder.max_keys(0),
        |builder| builder.deny_cache_max(Duration::from_secs(61)),
        |builder| builder.breaker(0, Duration::from_millis(100), Duration::from_secs(1)),
    ];
    for change in changes {
        let built = change(Limiter::builder().url("redis://127.0.0.1:1").rule("r", "1/s")).build();
        let error = refused(change, soon);
        assert_eq!((error.code(), error.message()), ("invalid_document", built.expect_err("it too").message()));
    }
    for timeout in [none, Duration::from_millis(60_001)] {
        let error = refused(|builder| builder, timeout);
        assert_eq!(
            (error.code(), error.message()),
            ("invalid_request", "the timeout is out of range; write 1 ms to 60 s")
        );
    }
}

#[test]
fn a_replica_that_is_given_as_the_server_names_its_primary() {
    let primary = Server::start();
    let replica = Server::builder().config(&format!("replicaof 127.0.0.1 {}", primary.port())).start();
    eventually(Duration::from_secs(10), || replica.info("master_link_status").as_deref() == Some("up"));
    let ran = doctor(&replica.url()).exits(1);
    ran.says("problem  role         it is a read-only replica of 127.0.0.1:");
    ran.says(&format!("127.0.0.1:{}\n", primary.port()));
    ran.says("\n1 problem, no warnings\n");
}

/// Waits until a new cluster calls its replicas ready: a primary pings them every ten seconds.
fn with_replicas(url: &str) {
    eventually(Duration::from_secs(40), || report(url)["nodes"].as_array().is_some_and(|nodes| nodes.len() == 6));
}

#[test]
fn a_cluster_that_is_well_has_no_problem() {
    let cluster = shared_cluster();
    with_replicas(&cluster.url());
    let told = report(&cluster.url());
    assert_eq!((found(&told, "problem"), found(&told, "warning")), (vec![], vec![]), "{told:#}");
    has(&told, "ok", "connection: 6 nodes reached");
    has(&told, "ok", "cluster: 3 primaries and 3 replicas, all slots have a node");
    has(&told, "ok", "batches: checks of several slots leave together");
    has(&told, "ok", "clock: 6 clocks differ by ");
    assert_eq!((&told["cluster"]["slots"], &told["cluster"]["state"]), (&16_384.into(), &"ok".into()));
    let places = told["nodes"].as_array().expect("a list").iter();
    let tried = places.filter(|node| node["batches_across_slots"] == true && node["place"] == "primary").count();
    assert_eq!(tried, 3, "{told:#}");
    // Both ways to be led to it.
    let plain = report(&cluster.node(0).url());
    has(&plain, "note", "used as a cluster");
    let seeds = report(&cluster.url().replace("://", "://127.0.0.1:1,"));
    has(&seeds, "warning", "the url names it, and the cluster does not");
    assert_eq!(seeds["ok"], true);
    let emitted = &fields(&told) | &fields(&seeds);
    assert_eq!(emitted, documented(), "these reports have every field");
}

#[test]
fn the_least_is_enough_on_a_cluster_and_clocks_that_differ_are_warned_of() {
    let cluster = Server::builder().user(&least()).skewed(4, "+0.3s").start_cluster();
    let url = cluster.url().replace("://", "://app:secret@");
    with_replicas(&url);
    let told = report(&url);
    assert_eq!(found(&told, "problem"), [""; 0], "{told:#}");
    has(&told, "warning", &format!("127.0.0.1:{} is ahead of", cluster.node(4).port()));
    has(&told, "note", "its state, and which nodes fail, is not all known: app is not allowed to ask");
    has(&told, "ok", "batches: ");
    let skewed = format!("127.0.0.1:{}", cluster.node(4).port());
    let clock = |node: &Value| {
        let number = |name| node[name].as_i64().expect("a number");
        (number("clock_ahead_us"), number("clock_within_us"))
    };
    let nodes = told["nodes"].as_array().expect("a list");
    let (ahead, within) = nodes.iter().find(|node| node["address"] == *skewed).map(clock).expect("it is among them");
    for (other, within_other) in nodes.iter().filter(|node| node["address"] != *skewed).map(clock) {
        // What was cut off to whole microseconds comes on top.
        let off = (ahead - other - 300_000).abs();
        assert!(off <= within + within_other + 10, "{off} us, and measured within {within} and {within_other}");
    }
    cluster.nodes().iter().for_each(|node| node.call::<()>("ACL SETUSER app -cluster|slots"));
    has(&report(&url), "problem", "cluster: ");
}

#[test]
fn a_cluster_without_one_of_its_primaries_has_a_problem() {
    let cluster = Cluster::start();
    let (primary, replica) = (cluster.node(0), cluster.node(3));
    replica.kill();
    eventually(Duration::from_secs(20), || {
        let nodes: String = cluster.node(1).call("CLUSTER NODES");
        nodes.lines().any(|line| line.contains(&format!(":{}@", replica.port())) && line.contains("fail "))
    });
    // The replicas of the others may not be ready yet.
    let bare = report(&cluster.url());
    has(&bare, "warning", "no replica is ready");
    assert_eq!(bare["ok"], true, "{bare:#}");
    primary.kill();
    let state = |state: &str| cluster.node(1).call::<String>("CLUSTER INFO").contains(state);
    eventually(Duration::from_secs(20), || state("cluster_state:fail"));
    let ran = doctor(&cluster.url()).exits(1);
    ran.says("cluster_state is fail");
    ran.says(&format!("the cluster says that 127.0.0.1:{} fails", primary.port()));
    ran.says(&format!("127.0.0.1:{} cannot be reached", primary.port()));
}

#[test]
fn what_cannot_be_meant_says_what_to_write() {
    tidegate(&["doctor"]).exits(2).complains("redis://127.0.0.1:6379");
    doctor("redis//u:hunter2@h").exits(2).complains("no scheme");
    tidegate(&["doctor", "--config", "/no/such.toml"]).exits(2).complains("/no/such.toml");
    doctor("redis+cluster://127.0.0.1:1/3").exits(2).complains("database 0");
    let server = Server::start();
    let cluster = doctor(&server.url().replace("://", "+cluster://")).exits(1);
    cluster.says("write redis:// instead");
    let mut elsewhere = command(&["doctor"]);
    elsewhere.env("TIDEGATE_URL", server.url());
    Ran::from(elsewhere.output().expect("the binary was built for this test")).exits(0).says("no problems");
}

#[test]
fn sentinels_are_asked_for_the_primary_which_is_looked_at() {
    let watched = Watched::start();
    let well = report(&watched.url());
    has(&well, "ok", &format!("127.0.0.1:{} reached, and logged in", watched.servers()[0].port()));
    assert_eq!(well["problems"], 0);
    let unknown = report(&watched.url().replace("/main", "/other"));
    has(&unknown, "problem", "the sentinels do not know \"other\"");
    watched.sentinels().iter().for_each(Server::kill);
    let gone = report(&watched.url());
    has(&gone, "problem", "asking a sentinel");
    assert_eq!(gone["ok"], false);
}

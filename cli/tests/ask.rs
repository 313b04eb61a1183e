//! `tidegate check`, `peek`, `show` and `reset` on a real server.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use common::{Ran, command, tidegate};
use serde_json::{Value, json};
use tidegate_tests::servers::{Server, shared_server};

/// A command on the shared server, with a key that no other test uses.
fn on_server(arguments: &[&str]) -> Ran {
    tidegate(&[arguments, &["--url", &shared_server().url()]].concat())
}

#[test]
fn check_charges_until_the_limit_and_its_exit_code_tells() {
    let check = || on_server(&["check", "api", "charged", "--limits", "2/h"]);
    check().exits(0).says("Allowed: charged by rule api; 1 left.");
    check().exits(0).says("Allowed: charged by rule api; 0 left.");
    let refused = check().exits(1);
    refused.says("Refused: charged by rule api; try again in ");
    refused.says(" 2 per 1h   sliding_window ");
    assert_eq!(refused.err, "");
    assert!(!refused.out.contains('\u{1b}'), "no colour without a terminal");
}

#[test]
fn peek_says_what_check_would_and_charges_nothing() {
    let peek = |cost| on_server(&["peek", "api", "peeked", "--limits", "5/h", "--cost", cost]);
    for _ in 0..3 {
        peek("5").exits(0).says("Would be allowed: peeked by rule api; 5 left.");
    }
    peek("6").exits(1).says("Would be refused: peeked by rule api; a cost of 6 never passes.");
    assert_eq!(shared_server().call::<u64>("EXISTS tidegate:1:{peeked}:api:sliding_window:3600000"), 0);
}

#[test]
fn show_tells_what_is_used_and_reset_forgets_it() {
    let limits = ["--limits", "4/h; 10/d burst 20 named daily shadow; 0/s"];
    let ask = |arguments: &[&str]| on_server(&[arguments, &limits].concat());
    ask(&["check", "api", "shown"]).exits(1).says("a cost of 1 never passes");
    on_server(&["check", "api", "shown", "--cost", "3", "--limits", "4/h"]).exits(0);
    let shown = ask(&["show", "api", "shown"]).exits(0);
    shown.says("4 per 1h, sliding_window\n");
    shown.says("3 of 4 used, 1 left\n  whole again in ");
    shown.says("daily: 10 per 24h, burst 20, shadow, token_bucket\n");
    shown.says("0 of 20 used, 20 left\n  untouched\n");
    shown.says("refuses everything\n");
    ask(&["reset", "api", "shown"]).exits(0).says("Reset: rule api begins anew for shown.");
    ask(&["show", "api", "shown"]).exits(0).says("0 of 4 used, 4 left\n  untouched\n");
}

#[test]
fn show_lists_what_a_log_keeps() {
    let limits = ["--limits", "9/h sliding_window_log; 50/h"];
    let ask = |arguments: &[&str]| on_server(&[arguments, &limits].concat());
    assert!(!ask(&["show", "api", "logged"]).exits(0).out.contains("Log"));
    ask(&["check", "api", "logged"]).exits(0);
    ask(&["check", "api", "logged", "--cost", "2"]).exits(0);
    let shown = ask(&["show", "api", "logged"]).exits(0);
    shown.says("3 of 9 used, 6 left");
    shown.says("Log, newest first: 2 of 2\n");
    let log = ask(&["show", "api", "logged", "--json"]).exits(0).json()["log"].clone();
    let units: Vec<_> = log.as_array().expect("a list").iter().map(|entry| entry["units"].clone()).collect();
    assert_eq!(units, [1, 2], "the oldest first: {log}");
    assert!(log[0]["at_us"].as_u64() < log[1]["at_us"].as_u64(), "{log}");
}

#[test]
fn json_is_one_line_with_times_in_milliseconds() {
    let ask = |what: &str| {
        let ran = on_server(&[what, "api", "tenant 7", "alice", "--limits", "1/h named one", "--json"]);
        assert_eq!(ran.err, "");
        (ran.code, ran.json())
    };
    let limit = json!({
        "name": "one", "algorithm": "sliding_window", "limit": 1, "window_ms": 3_600_000, "burst": 1, "enforced": true,
        "allowed": true, "remaining": 0, "reset_after_ms": 3_600_000, "retry_after_ms": null,
    });
    let decision = json!({
        "rule": "api", "key": ["tenant 7", "alice"], "cost": 1, "allowed": true, "limit": 1, "remaining": 0,
        "reset_after_ms": 3_600_000, "retry_after_ms": null, "origin": "store", "limits": [limit],
    });
    assert_eq!(ask("check"), (Some(0), decision));
    let (code, refused) = ask("check");
    assert_eq!((code, &refused["allowed"]), (Some(1), &Value::Bool(false)));
    assert!(refused["retry_after_ms"].as_u64().is_some_and(|wait| wait <= 3_600_000), "{refused}");
    assert_eq!(ask("peek").1["allowed"], Value::Bool(false));
    assert_eq!(ask("show").1["limits"][0]["used"], json!(1));
    assert_eq!(ask("reset"), (Some(0), json!({ "rule": "api", "key": ["tenant 7", "alice"], "reset": true })));
    assert_eq!(ask("peek").1["allowed"], Value::Bool(true));
}

#[test]
fn a_key_may_be_any_bytes() {
    let mut check = command(&["check", "api", "--limits", "1/h", "--url", &shared_server().url()]);
    check.arg(OsStr::from_bytes(b"\xff\x1b[31m"));
    let ran = Ran::from(check.output().expect("the binary was built for this test")).exits(0);
    ran.says("\\u{1b}[31m");
    assert_eq!(shared_server().call::<u64>("EXISTS tidegate:1:{%FF%1B%5B31m}:api:sliding_window:3600000"), 1);
}

#[test]
fn rules_and_server_may_come_from_a_document() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("tidegate.toml");
    let url = shared_server().url();
    let document = format!("version = 1\n[store]\nurl = \"{url}\"\nprefix = \"shop\"\n[rules]\nlogin = \"1/h\"\n");
    std::fs::write(&path, document).expect("our own folder can be written to");
    let config = ["--config", path.to_str().expect("temporary folders have plain names")];
    let ask = |arguments: &[&str]| tidegate(&[arguments, &config].concat());

    ask(&["check", "login", "doc"]).exits(0);
    ask(&["check", "login", "doc"]).exits(1);
    ask(&["check", "login", "doc", "--limits", "3/h"]).exits(0).says("1 left");
    ask(&["check", "login", "doc", "--prefix", "other"]).exits(0);
    assert_eq!(shared_server().call::<u64>("EXISTS shop:1:{doc}:login:sliding_window:3600000"), 1);
    ask(&["reset", "login", "doc", "--limits", "3/h"]).exits(0);
    assert_eq!(shared_server().call::<u64>("EXISTS shop:1:{doc}:login:sliding_window:3600000"), 0);
    ask(&["check", "logon", "doc"]).exits(2).complains("the rules are: login");
    ask(&["check", "login", "doc", "--url", "redis://127.0.0.1:1"]).exits(3).complains("store_unavailable");

    let mut elsewhere = command(&[&["check", "login", "doc"], &config[..]].concat());
    elsewhere.env("TIDEGATE_URL", "redis://127.0.0.1:1");
    Ran::from(elsewhere.output().expect("the binary was built for this test")).exits(3).complains("store_unavailable");
    tidegate(&["check", "login", "doc", "--config", "/no/such.toml"]).exits(2).complains("/no/such.toml");
}

#[test]
fn a_store_that_fails_is_neither_allowed_nor_refused() {
    let server = Server::start();
    let url = server.url();
    server.kill();
    for what in ["check", "peek", "show", "reset"] {
        let ran = tidegate(&[what, "api", "x", "--limits", "1/h", "--url", &url]).exits(3);
        ran.complains("store_unavailable");
        assert!(ran.err.contains("try: start the server"), "{ran:#?}");
    }
}

#[test]
fn corrupt_state_is_told_and_cured() {
    let ask = |what| on_server(&[what, "api", "corrupt", "--limits", "1/h"]);
    shared_server().call::<()>("SET tidegate:1:{corrupt}:api:sliding_window:3600000 nonsense");
    let ran = ask("check").exits(3);
    ran.complains("corrupt_state");
    assert!(ran.err.contains("`tidegate reset`"), "{ran:#?}");
    ask("reset").exits(0);
    ask("check").exits(0);
}

#[test]
fn the_exit_code_is_right_even_if_nobody_reads_the_rest() {
    // A pipe whose reader has gone before the command starts.
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    for code in [0, 1] {
        let mut check = command(&["check", "api", "unread", "--limits", "1/h", "--url", &shared_server().url()]);
        check.stdout(writer.try_clone().expect("a pipe can be cloned")).stderr(Stdio::piped());
        let ran = Ran::from(check.output().expect("the binary was built for this test"));
        assert_eq!(ran.exits(code).err, "");
    }
}

#[test]
fn what_cannot_be_meant_says_what_to_write() {
    for (arguments, complaint) in [
        (&["check", "api", "x"][..], "add --limits 100/m, or --config FILE"),
        (&["check", "api", "--limits", "1/h"], "<KEY>"),
        (&["check", "api", "x", "--limits", "1/h"], "add --url redis://"),
        (&["peek", "api", "x", "--limits", "1/h"], "add --url redis://"),
        (&["show", "api", "x", "--limits", "1/h"], "add --url redis://"),
        (&["reset", "api", "x", "--limits", "1/h"], "add --url redis://"),
        (&["check", "api", "x", "--limits", "1/h", "--url", "redis//x"], "no scheme"),
        (&["check", "api", "x", "--limits", "1/h", "--url", "redis://127.0.0.1:1", "--prefix", "a b"], "prefix"),
        (&["show", "api", "x", "--limits", "1/h", "--cost", "1"], "--cost"),
    ] {
        tidegate(arguments).exits(2).complains(complaint);
    }
    for (arguments, complaint) in [
        (&["check", "api", "x", "--limits", "1"][..], "write 1/m"),
        (&["check", "api", "x", "--limits", "1/h", "--cost", "0"], "use peek"),
        (&["check", "api", "x", "--limits", "1/h", "--cost", "-1"], "write a whole number"),
        (&["check", "api", "", "--limits", "1/h"], "the key is empty"),
    ] {
        on_server(arguments).exits(2).complains(complaint);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    tidegate(&["--version"]).exits(0).says(&format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
    for command in ["demo", "replay", "check", "peek", "show", "reset", "doctor"] {
        let ran = tidegate(&[command, "--help"]).exits(0);
        ran.says("Examples:\n  tidegate ");
        ran.says("Exit codes: 0 ");
        assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{}", ran.out);
    }
    tidegate(&["--help"]).exits(0).says("Examples:");
    let ran = tidegate(&[]).exits(2);
    assert!(ran.err.contains("Usage: tidegate <COMMAND>") && ran.out.is_empty(), "{ran:#?}");
}

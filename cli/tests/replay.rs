//! `tidegate replay`: logs as they really are, and as they should not be.

mod common;

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use common::{Ran, command, tidegate, tidegate_reading};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// Lines of the combined format on 17 May 2015.
fn lines(address: &str, time: &str, times: usize) -> String {
    format!("{address} - - [17/May/2015:{time} +0000] \"GET /a?b HTTP/1.1\" 200 7 \"-\" \"test\"\n").repeat(times)
}

/// The log on standard input, by 20 a minute.
fn replay(log: impl AsRef<[u8]>, options: &[&str]) -> Ran {
    tidegate_reading(log.as_ref(), &[&["replay", "-", "--limit", "20/m"], options].concat())
}

fn replay_json(log: impl AsRef<[u8]>) -> Value {
    replay(log, &["--json"]).exits(0).json()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory takes any bytes");
    encoder.finish().expect("memory takes any bytes")
}

fn counts(allowed: u64, denied: u64) -> Value {
    json!({ "allowed": allowed, "denied": denied })
}

/// Forty requests of one address on both sides of a minute's boundary.
fn boundary() -> String {
    lines("203.0.113.7", "10:05:59", 20) + &lines("203.0.113.7", "10:06:01", 20)
}

#[test]
fn the_json_line_has_its_fields_in_their_order() {
    let ran = replay(boundary() + &lines("2001:db8::1", "10:06:02", 1), &["--json"]).exits(0);
    assert_eq!(
        ran.out,
        "{\"requests\":41,\"keys\":2,\"unreadable\":0,\"algorithms\":{\
         \"sliding_window_log\":{\"allowed\":21,\"denied\":20},\
         \"sliding_window\":{\"allowed\":21,\"denied\":20},\
         \"token_bucket\":{\"allowed\":21,\"denied\":20},\
         \"sliding_window_counter\":{\"allowed\":21,\"denied\":20},\
         \"fixed_window\":{\"allowed\":41,\"denied\":0}}}\n"
    );
    assert_eq!(ran.err, "");
}

#[test]
fn a_log_is_replayed_in_the_order_of_its_own_times() {
    // As written, the first request would stand in the way of those that come a minute before it.
    let log = lines("::1", "10:06:10", 1) + &lines("::1", "10:05:00", 20);
    assert_eq!(replay_json(&log)["algorithms"]["sliding_window"], counts(21, 0));
    replay(&log, &[]).exits(0).says("lines out of order: 1");
}

#[test]
fn times_are_compared_across_time_zones() {
    let log = lines("::1", "10:05:00", 20) + &lines("::1", "12:05:00", 1).replace("+0000", "+0200");
    assert_eq!(replay_json(log)["algorithms"]["sliding_window"], counts(20, 1));
}

#[test]
fn gzip_is_told_by_its_bytes_and_may_have_several_members() {
    let half = lines("::1", "10:05:00", 15);
    let log = [gzip(&half), gzip(&half)].concat();
    assert_eq!(replay_json(&log)["algorithms"]["sliding_window"], counts(20, 10));

    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("access.log");
    fs::write(&path, &log).expect("our own folder can be written to");
    let path = path.to_str().expect("temporary folders have plain names");
    let ran = tidegate(&["replay", path, "--limit", "20/m"]).exits(0);
    ran.says("30 requests, 1 address");
}

#[test]
fn gzip_that_ends_early_is_an_error_and_not_half_a_result() {
    let log = gzip(&lines("::1", "10:05:00", 1_000));
    let ran = replay(&log[..log.len() - 9], &["--json"]).exits(2);
    ran.complains("cannot be read beyond its line");
}

#[test]
fn what_cannot_be_read_is_counted_and_never_fatal() {
    let mut log = b"\xff\xfe not UTF-8 \x00\nnonsense\n".to_vec();
    log.extend(lines("::1", "10:05:00", 2).bytes());
    log.extend(lines("::1", "10:65:00", 1).bytes());
    log.extend([b'x'; 1_000_000]);
    log.push(b'\n');
    // Carriage returns, and a last line without its end.
    log.extend(lines("::1", "10:05:01", 1).replace('\n', "\r\n").bytes());
    log.extend(lines("::1", "10:05:02", 1).trim_end().bytes());
    let line = replay_json(&log);
    assert_eq!((&line["requests"], &line["unreadable"]), (&json!(4), &json!(4)));
    replay(&log, &[]).exits(0).says("unreadable lines: 4, left out");
}

#[test]
fn bytes_that_are_no_text_are_still_addresses_apart() {
    let line = |address: &[u8]| {
        let rest = lines("", "10:05:00", 1);
        [address, rest.as_bytes()].concat()
    };
    let line = [line(b"\xff"), line(b"\xfe"), line(b"\x1b[31mred")].concat();
    assert_eq!(replay_json(&line)["keys"], json!(3));
    let ran = tidegate_reading(&line, &["replay", "-", "--limit", "0/m"]).exits(0);
    ran.says("\\u{1b}[31mred");
    assert!(!ran.out.contains('\u{1b}'), "neither colour nor the log's own escapes: {ran:#?}");
}

#[test]
fn an_empty_log_is_no_error() {
    for log in [Vec::new(), gzip("")] {
        let line = replay_json(&log);
        assert_eq!((&line["requests"], &line["algorithms"]["fixed_window"]), (&json!(0), &counts(0, 0)));
        replay(&log, &[]).exits(0).says("There is nothing to replay.");
    }
    replay("{}\n", &[]).exits(0).says("Is the log in the common or the combined format");
}

#[test]
fn only_the_algorithms_asked_for_are_replayed_in_their_order() {
    let names = |options: &[&str]| {
        let line = replay(boundary(), &[options, &["--json"]].concat()).exits(0).json();
        line["algorithms"].as_object().expect("an object").keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&["--algorithm", "fixed_window,gcra"]), ["fixed_window", "token_bucket"]);
    let twice = ["--algorithm", "gcra", "--algorithm", "fixed_window", "--algorithm", "token_bucket"];
    assert_eq!(names(&twice), ["token_bucket", "fixed_window"]);
}

#[test]
fn the_keys_denied_most_are_those_of_the_first_algorithm() {
    let log = boundary() + &lines("198.51.100.9", "10:05:00", 25);
    let ran = replay(&log, &[]).exits(0);
    ran.says("Denied most by sliding_window\n");
    let (most, other) = (ran.out.find(" 203.0.113.7 "), ran.out.find(" 198.51.100.9 "));
    assert!(most < other && most.is_some(), "{ran:#?}");
    let ran = replay(&log, &["--algorithm", "fixed_window,sliding_window"]).exits(0);
    ran.says("Denied most by fixed_window\n");
    assert!(!ran.out.contains(" 203.0.113.7 "), "{ran:#?}");
    replay(lines("::1", "10:05:00", 1), &[]).exits(0).says("sliding_window would have denied nobody.");
}

#[test]
fn a_limit_of_several_rates_and_a_burst_suits_every_algorithm() {
    let log = boundary();
    let replay =
        |limit: &str| tidegate_reading(log.as_bytes(), &["replay", "-", "--json", "--limit", limit]).exits(0).json();
    let line = replay("20/m burst 30; 25 per hour sliding_window_log");
    assert_eq!(line["algorithms"]["fixed_window"], counts(25, 15));
    assert_eq!(line["algorithms"]["token_bucket"], counts(25, 15));
    assert_eq!(replay("20/m burst 30")["algorithms"]["token_bucket"], counts(30, 10));
    assert_eq!(replay("0/s")["algorithms"]["sliding_window"], counts(0, 40));
}

#[test]
fn users_and_paths_can_be_limited_instead() {
    let log = lines("::1", "10:05:00", 3).replace("- - [", "- alice [")
        + &lines("::2", "10:05:00", 2)
        + &lines("::3", "10:05:00", 1).replace("GET /a?b HTTP/1.1", "\\x16\\x03");
    let by = |what: &str| replay(&log, &["--by", what, "--json"]).exits(0).json();
    let (ip, user, path) = (by("ip"), by("user"), by("path"));
    assert_eq!((&ip["requests"], &ip["keys"], &ip["without_key"]), (&json!(6), &json!(3), &Value::Null));
    assert_eq!((&user["requests"], &user["keys"], &user["without_key"]), (&json!(3), &json!(1), &json!(3)));
    assert_eq!((&path["requests"], &path["keys"], &path["without_key"]), (&json!(5), &json!(1), &json!(1)));
    replay(&log, &["--by", "user"]).exits(0).says("requests without a user: 3, left out");
}

#[test]
fn many_keys_are_all_kept_apart() {
    let log: String = (0..45_000).map(|number| lines(&format!("key-{number}"), "10:05:00", 1)).collect();
    let line = replay_json(log.repeat(2));
    assert_eq!((&line["requests"], &line["keys"]), (&json!(90_000), &json!(45_000)));
    assert_eq!(line["algorithms"]["sliding_window"], counts(90_000, 0));
    let line = tidegate_reading(log.repeat(2).as_bytes(), &["replay", "-", "--limit", "1/m", "--json"]).exits(0).json();
    assert_eq!(line["algorithms"]["sliding_window"], counts(45_000, 45_000));
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    for options in [&["--json"][..], &[]] {
        let mut command = command(&[&["replay", "-", "--limit", "20/m"], options].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built for this test");
        // It waits for its input, so it cannot have written anything yet.
        drop(child.stdout.take());
        drop(child.stdin.take());
        let ran = Ran::from(child.wait_with_output().expect("the command ends"));
        assert_eq!(ran.exits(0).err, "");
    }
}

#[test]
fn what_cannot_be_meant_says_what_to_write() {
    for (arguments, complaint) in [
        (&["replay", "-"][..], "--limit"),
        (&["replay", "--limit", "20/m"], "<LOG>"),
        (&["replay", "-", "--limit", "20"], "write 20/m"),
        (&["replay", "-", "--limit", "20/m burst 5 fixed_window"], "burst is of token_bucket alone"),
        (&["replay", "-", "--limit", "20/m", "--algorithm", "leaky"], "write one of sliding_window_log"),
        (&["replay", "-", "--limit", "20/m", "--by", "cookie"], "possible values: ip, user, path"),
        (&["replay", "/no/such.log", "--limit", "20/m"], "/no/such.log cannot be read"),
        (&["replay", "/", "--limit", "20/m"], "give the path of an access log"),
    ] {
        tidegate(arguments).exits(2).complains(complaint);
    }
}

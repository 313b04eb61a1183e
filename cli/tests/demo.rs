//! `tidegate demo`, in memory and on real servers.

mod common;

use common::{Ran, tidegate};
use tidegate_tests::servers::{Cluster, Server, keys_without_ttl};

/// The numbers of the first line that begins with a word, thousands together.
fn figures(ran: &Ran, word: &str) -> Vec<u64> {
    let line = ran.out.lines().find(|line| line.trim_start().starts_with(word));
    let words = line.unwrap_or_else(|| panic!("{word:?} in {ran:#?}")).split_whitespace();
    words.filter_map(|word| word.replace(',', "").parse().ok()).collect()
}

/// Part 1 runs in real time, so more than the first second's may have passed, but never too many.
fn assert_part_1(ran: &Ran) {
    let (admitted, refused) = (figures(ran, "store")[0], figures(ran, "refused")[0]);
    assert_eq!(admitted + refused, 10_000, "{ran:#?}");
    assert!(admitted >= 500, "{ran:#?}");
    ran.says("Exact:");
    assert!(!ran.out.contains("open"), "the store decided everything: {ran:#?}");
}

#[test]
fn in_memory_the_boundary_is_simulated_and_shows_the_flaw() {
    let ran = tidegate(&["demo"]).exits(0);
    assert_part_1(&ran);
    ran.says("made now in this process");
    ran.says("Simulated time");
    for exact in ["sliding_window_log", "sliding_window "] {
        assert_eq!(figures(&ran, exact), [100, 0, 100]);
    }
    assert_eq!(figures(&ran, "fixed_window"), [100, 100, 200]);
    assert_eq!(ran.err, "", "no progress bar without a terminal");
    assert!(!ran.out.contains('\u{1b}'), "no colour without a terminal");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{}", ran.out);
}

/// Real time on a machine that may be busy: the boundary may be missed, which the demo then has to say.
fn assert_part_2(ran: &Ran) {
    if ran.out.contains("did not stay close to the boundary") {
        return;
    }
    ran.says("By the server's clock, the first burst ran from");
    assert_eq!(figures(ran, "sliding_window "), [100, 0, 100]);
    assert_eq!(figures(ran, "fixed_window"), [100, 100, 200]);
}

#[test]
fn on_a_server_both_parts_are_real_and_leave_nothing_for_ever() {
    let server = Server::start();
    let mine = "tidegate:1:{demo}:crowd:sliding_window:1000";
    server.call::<()>(&format!("SET {mine} untouched"));
    let ran = tidegate(&["demo", "--url", &server.url()]).exits(0);
    assert_part_1(&ran);
    ran.says("made now on the server");
    assert_part_2(&ran);
    assert_eq!(server.call::<String>(&format!("GET {mine}")), "untouched");
    let keys: Vec<String> = server.call("KEYS *");
    assert!(keys.iter().all(|key| key == mine || key.starts_with("tidegate:demo:1:{demo-")), "{keys:?}");
    assert_eq!(keys_without_ttl(&mut server.connection()), [mine.as_bytes()]);
}

#[test]
fn a_user_who_may_use_the_default_prefix_may_run_it() {
    let server = Server::builder().user("app on >pass ~tidegate:* +@all").start();
    let ran = tidegate(&["demo", "--url", &server.url_as("app", "pass")]).exits(0);
    assert_part_1(&ran);
}

#[test]
fn it_runs_on_a_cluster() {
    let cluster = Cluster::start();
    let ran = tidegate(&["demo", "--url", &cluster.url()]).exits(0);
    assert_part_1(&ran);
    assert_part_2(&ran);
}

#[test]
fn a_server_that_cannot_be_reached_is_told_with_what_to_do() {
    let server = Server::start();
    let url = server.url();
    server.kill();
    let ran = tidegate(&["demo", "--url", &url]).exits(1);
    ran.complains("store_unavailable");
    assert!(ran.err.contains("try: start the server"), "{ran:#?}");
}

#[test]
fn a_wrong_command_line_is_told_before_anything_runs() {
    tidegate(&["demo", "--url", "http://127.0.0.1"]).exits(2).complains("redis+cluster://");
    tidegate(&["demo", "--url"]).exits(2).complains("--url");
    tidegate(&["demo", "now"]).exits(2).complains("unexpected argument");
}

//! The axum example under load: the limit holds by the store's clock, and is not wasted.

mod service;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate_tests::servers::Server;

use service::{Service, client};

const LIMIT: usize = 1_000;
const SECOND: u64 = 1_000_000;
const CONNECTIONS: usize = 16;

/// Asks on one connection until it is told to stop: how often it passed, and how often it was refused.
fn ask(url: &str, stop: &AtomicBool) -> [usize; 2] {
    let client = client();
    let mut counts = [0, 0];
    while !stop.load(Ordering::Relaxed) {
        let mut response = client.get(url).call().expect("an answer");
        // Read to its end, so that the connection is used again.
        response.body_mut().read_to_vec().expect("a body");
        match response.status().as_u16() {
            200 => counts[0] += 1,
            429 => counts[1] += 1,
            other => panic!("answered with {other}"),
        }
    }
    counts
}

fn load(url: &str, time: Duration) -> [usize; 2] {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let askers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(|| ask(url, &stop))).collect();
        // Nobody sends: this is the time that passes.
        let (_open, silence) = mpsc::channel::<()>();
        let _ = silence.recv_timeout(time);
        stop.store(true, Ordering::Relaxed);
        let counts = askers.into_iter().map(|asker| asker.join().expect("it was answered"));
        counts.fold([0, 0], |sum, counts| [sum[0] + counts[0], sum[1] + counts[1]])
    })
}

#[test]
fn no_second_holds_more_than_the_limit_and_hardly_less() {
    let seconds = std::env::var("LOAD_SECONDS").map_or(3, |text| text.parse().expect("whole seconds in LOAD_SECONDS"));
    let server = Server::start();
    let service = Service::start(&server);
    let [passed, refused] = load(&service.url("/"), Duration::from_secs(seconds));

    let page = client().get(service.url("/internal/charges")).call().expect("an answer").body_mut().read_to_string();
    let mut charges: Vec<u64> = page.expect("text").lines().map(|line| line.parse().expect("microseconds")).collect();
    charges.sort_unstable();
    // Two less than a second apart are in one window.
    let most = (0..charges.len()).map(|first| charges[first..].partition_point(|at| at - charges[first] < SECOND));
    let most = most.max().unwrap_or(0);
    let told = format!("{passed} passed and {refused} were refused in {seconds} s, at most {most} in a second");
    assert_eq!(charges.len(), passed, "each that passed was charged by the store: {told}");
    assert!(most <= LIMIT, "{told}");

    let (limit, seconds) = (LIMIT, usize::try_from(seconds).expect("few"));
    let enough = seconds * limit * 11 / 10;
    assert!(passed + refused >= enough, "the load was too small to say anything, on a slow machine perhaps: {told}");
    assert!(passed >= seconds * limit * 99 / 100, "the limit was not used up: {told}");
}

//! The cases and their bars.

use tidegate_benches::report::Bar;

use crate::script::Limits;

/// One case: a rule, its textbook peer, and the state in which both are asked.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The rule, as text.
    pub(crate) rule: &'static str,
    pub(crate) peer: Peer,
    pub(crate) what: What,
    pub(crate) bar: Bar,
}

/// The textbook script of the same kind, with the same limits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    Log(Limits),
    Bucket(Limits),
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Log(_) => "textbook sorted-set log",
            Peer::Bucket(limits) if limits.len() > 1 => "textbook hash token bucket, a call for each limit",
            Peer::Bucket(_) => "textbook hash token bucket",
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    /// Instructions of a check.
    Check(Shape),
    /// Bytes of a key, of so many keys with so many checks each.
    Key { keys: u32, checks: u32 },
}

/// The state in which a check is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Units charged before, the middle of them where each key is called several times.
    pub(crate) live: u32,
    /// Whether there is one entry more, which has died since.
    pub(crate) dying: bool,
    /// How often each key is called. No call may change what the next one meets, or only by this little.
    pub(crate) per_key: u32,
    /// How many calls are counted in each server, ours and the peer's. (The textbook's keys of 5,000 entries take long to make.)
    pub(crate) calls: u32,
    pub(crate) peer_calls: u32,
    pub(crate) admitted: bool,
}

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const CALLS: u32 = 1_000;

/// Every check of one key.
const BASE: Shape = Shape { live: 0, dying: false, per_key: u32::MAX, calls: CALLS, peer_calls: CALLS, admitted: true };
/// Ten checks of a key, so that it has `live` entries in their middle.
const LIVE: Shape = Shape { per_key: 10, ..BASE };
/// One check of a key: it drops the one that is dead.
const DYING: Shape = Shape { dying: true, per_key: 1, ..BASE };
const REFUSED: Shape = Shape { live: 100, admitted: false, ..BASE };

fn case(name: &'static str, rule: &'static str, peer: Peer, what: What, bar: Bar) -> Case {
    Case { name, rule, peer, what, bar }
}

fn bucket(name: &'static str, rule: &'static str, limits: Limits, shape: Shape, bar: u64) -> Case {
    case(name, rule, Peer::Bucket(limits), What::Check(shape), Bar::Most(bar))
}

fn window(name: &'static str, shape: Shape, bar: u64) -> Case {
    case(name, "1000000/h sliding_window", Peer::Log(&[(1_000_000, HOUR)]), What::Check(shape), Bar::Most(bar))
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::from(windows());
    cases.extend(buckets());
    cases.extend(logs());
    cases.extend(counters());
    cases.extend(memory());
    cases
}

fn buckets() -> [Case; 3] {
    let three = "10000/m token_bucket; 20000/h token_bucket; 25000/d token_bucket";
    let three_limits: Limits = &[(10_000, 60 * SECOND), (20_000, HOUR), (25_000, DAY)];
    [
        bucket("token_bucket-allowed", "100000/h token_bucket", &[(100_000, HOUR)], BASE, 64_000),
        bucket("token_bucket-refused", "100/d token_bucket", &[(100, DAY)], REFUSED, 46_000),
        bucket("three_buckets-allowed", three, three_limits, BASE, 150_000),
    ]
}

fn windows() -> [Case; 7] {
    let refused = What::Check(REFUSED);
    [
        window("sliding_window-dying-10", Shape { live: 10, ..DYING }, 74_000),
        window("sliding_window-dying-100", Shape { live: 100, ..DYING }, 74_000),
        window("sliding_window-dying-5000", Shape { live: 5_000, peer_calls: 50, ..DYING }, 74_000),
        window("sliding_window-allowed-10", Shape { live: 10, ..LIVE }, 66_000),
        window("sliding_window-allowed-100", Shape { live: 100, ..LIVE }, 66_000),
        window("sliding_window-allowed-5000", Shape { live: 5_000, peer_calls: 100, ..LIVE }, 66_000),
        case("sliding_window-refused", "100/h sliding_window", Peer::Log(&[(100, HOUR)]), refused, Bar::Most(50_000)),
    ]
}

fn logs() -> [Case; 2] {
    let rules = ["1000000/h sliding_window_log", "100/h sliding_window_log"];
    let allowed = What::Check(Shape { live: 100, ..LIVE });
    let refused = What::Check(REFUSED);
    [
        case("sliding_window_log-allowed", rules[0], Peer::Log(&[(1_000_000, HOUR)]), allowed, Bar::RatioMost(1_350)),
        case("sliding_window_log-refused", rules[1], Peer::Log(&[(100, HOUR)]), refused, Bar::RatioMost(1_500)),
    ]
}

/// No bar is set for these but to cost no more than the textbook's log.
fn counters() -> [Case; 4] {
    let refused = What::Check(REFUSED);
    let case = |name, rule, limits: Limits, what| case(name, rule, Peer::Log(limits), what, Bar::RatioMost(1_000));
    let (many, few): (Limits, Limits) = (&[(1_000_000, HOUR)], &[(100, HOUR)]);
    let allowed = What::Check(Shape { live: 100, ..LIVE });
    [
        case("sliding_window_counter-allowed", "1000000/h sliding_window_counter", many, allowed),
        case("sliding_window_counter-refused", "100/h sliding_window_counter", few, refused),
        case("fixed_window-allowed", "1000000/h fixed_window", many, allowed),
        case("fixed_window-refused", "100/h fixed_window", few, refused),
    ]
}

fn memory() -> [Case; 6] {
    let (hundred, thousand) = (What::Key { keys: 10_000, checks: 100 }, What::Key { keys: 1_000, checks: 1_000 });
    let few = What::Key { keys: 10_000, checks: 3 };
    [
        case("window_bytes-100", "100/h sliding_window", Peer::Log(&[(100, HOUR)]), hundred, Bar::Most(1_550)),
        case("window_bytes-1000", "1000/h sliding_window", Peer::Log(&[(1_000, HOUR)]), thousand, Bar::Most(12_350)),
        case("log_bytes-100", "100/h sliding_window_log", Peer::Log(&[(100, HOUR)]), hundred, Bar::RatioMost(1_000)),
        case("counter_bytes", "100/h sliding_window_counter", Peer::Log(&[(100, HOUR)]), few, Bar::RatioMost(1_000)),
        case("fixed_bytes", "100/h fixed_window", Peer::Log(&[(100, HOUR)]), few, Bar::RatioMost(1_000)),
        case("bucket_bytes", "100/h token_bucket", Peer::Bucket(&[(100, HOUR)]), few, Bar::Most(210)),
    ]
}

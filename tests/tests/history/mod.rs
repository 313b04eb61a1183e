//! Random histories of calls on one key. Limits keep their algorithms and windows while their numbers change, so that
//! state outlives changes; times dwell on edges.

use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) start: u64,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Microseconds; a clock may step back.
    pub(crate) advance: i64,
    pub(crate) op: Op,
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Check {
        limits: String,
        cost: u64,
        id: Option<String>,
    },
    Peek {
        limits: String,
        cost: u64,
    },
    /// The receipt of an earlier check, by its number; copies are refused.
    Refund {
        which: usize,
    },
    Reset {
        limits: String,
    },
    Add {
        units: u64,
    },
    TakeBack {
        units: u64,
        stale: bool,
    },
}

/// A limit whose state outlives changes: its algorithm and window.
#[derive(Debug, Clone)]
struct Kind {
    algorithm: &'static str,
    window_ms: u64,
    precise: bool,
}

pub(crate) fn histories(length: usize) -> impl Strategy<Value = History> {
    let kinds = prop::collection::vec(kind(), 1..=3);
    (kinds, starts()).prop_flat_map(move |(kinds, start)| {
        let window = kinds[0].window_ms * 1000;
        let steps = prop::collection::vec(step(kinds, window), length);
        steps.prop_map(move |steps| History { start, steps })
    })
}

/// Beginnings: this year, the end of the short form of times, and long after it.
fn starts() -> impl Strategy<Value = u64> {
    let short_ends = 1_767_225_600_000_000 + (1 << 48);
    prop_oneof![
        8 => 1_767_225_600_000_000_u64..1_800_000_000_000_000,
        1 => Just(short_ends - 40_000),
        1 => Just(short_ends + 1_000_000_000),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    let algorithm = prop_oneof![
        1 => Just("sliding_window_log"),
        3 => Just("sliding_window"),
        2 => Just("token_bucket"),
        1 => Just("sliding_window_counter"),
        1 => Just("fixed_window"),
    ];
    let window_ms = prop_oneof![
        1 => Just(1_u64),
        4 => Just(10),
        2 => Just(1_000),
        1 => Just(60_000),
        1 => Just(86_400_000),
        1 => Just(366 * 86_400_000),
    ];
    (algorithm, window_ms, prop::bool::ANY).prop_map(|(algorithm, window_ms, precise)| Kind {
        algorithm,
        window_ms,
        precise: precise && algorithm == "sliding_window" && window_ms > 2,
    })
}

fn step(kinds: Vec<Kind>, window: u64) -> impl Strategy<Value = Step> {
    (advance(window), op(kinds)).prop_map(|(advance, op)| Step { advance, op })
}

/// Mostly none or little, often about a window, sometimes far, sometimes back.
fn advance(window: u64) -> impl Strategy<Value = i64> {
    let window = i64::try_from(window).expect("windows fit");
    prop_oneof![
        4 => Just(0),
        4 => 1..=20_i64,
        6 => 0..=window / 4,
        2 => (window - 2)..=(window + 2),
        1 => 0..=window * 3,
        1 => -window..=-1_i64,
        1 => -20..=-1_i64,
    ]
}

fn op(kinds: Vec<Kind>) -> impl Strategy<Value = Op> {
    let has_log = kinds.iter().any(|kind| kind.algorithm == "sliding_window_log");
    let most = if has_log { 12 } else { 5_000_000_u64 };
    let cost = prop_oneof![6 => Just(1_u64), 4 => 1..=12_u64, 1 => 1..=most];
    let ids = if has_log { 3 } else { 0 };
    let id = prop_oneof![7 => Just(None), ids => (0..6_u8).prop_map(|id| Some(format!("request {id}")))];
    let limits = limits(kinds).boxed();
    prop_oneof![
        12 => (limits.clone(), cost.clone(), id).prop_map(|(limits, cost, id)| check(limits, cost, id)),
        3 => (limits.clone(), cost).prop_map(|(limits, cost)| Op::Peek { limits, cost }),
        4 => (0..120_usize).prop_map(|which| Op::Refund { which }),
        1 => limits.prop_map(|limits| Op::Reset { limits }),
        1 => (0..4_u64).prop_map(|units| Op::Add { units }),
        1 => (0..4_u64, prop::bool::ANY).prop_map(|(units, stale)| Op::TakeBack { units, stale }),
    ]
}

/// An id needs a log that is enforced.
fn check(limits: String, cost: u64, id: Option<String>) -> Op {
    let enforced = limits.split(';').any(|limit| limit.contains("sliding_window_log") && !limit.contains("shadow"));
    Op::Check { limits, cost, id: id.filter(|_| enforced) }
}

fn limits(kinds: Vec<Kind>) -> impl Strategy<Value = String> {
    let each: Vec<_> = kinds.into_iter().enumerate().map(|(place, kind)| limit(place, kind)).collect();
    each.prop_map(|limits| limits.join("; "))
}

fn limit(place: usize, kind: Kind) -> impl Strategy<Value = String> {
    let small = prop_oneof![1 => Just(0_u64), 20 => 1..=12_u64, 3 => 1..=200_u64];
    let quota = prop_oneof![12 => small, 1 => 1..=10_000_000_u64];
    let shadow = prop_oneof![5 => Just(false), 1 => Just(true)];
    (quota.clone(), prop::option::of(quota), shadow, 1..=kind.window_ms).prop_map(
        move |(quota, burst, shadow, grid)| {
            let Kind { algorithm, window_ms, precise } = &kind;
            let mut text = format!("{quota}/{window_ms}ms {algorithm} named n{place}");
            // A whole bucket must be refilled within 70 years.
            let burst = burst.filter(|burst| *algorithm == "token_bucket" && burst.div_ceil(64) <= quota);
            if let Some(burst) = burst {
                text.push_str(&format!(" burst {burst}"));
            }
            if *precise {
                text.push_str(&format!(" precision {grid}ms"));
            }
            if shadow {
                text.push_str(" shadow");
            }
            text
        },
    )
}

//! The script with which [Tidegate](https://docs.rs/tidegate) decides on Redis and Valkey, as constants.
//!
//! One script, assembled from parts of about sixty lines: each algorithm is a part of the same name. What a check
//! rarely needs stands in `rare/`, inside one function that makes its own helpers: to define a function costs the
//! server as much as ten steps of arithmetic, at every call. `decide.lua` documents the arguments and the reply.
//!
//! `#!lua` makes the server refuse a script on a read-only replica or out of memory before it has run.

macro_rules! script {
    ($clock:expr) => {
        concat!(
            "#!lua\n",
            $clock,
            "local function algorithm(what, code, key, quota, window, extra, cost, life, id, a, b, c, d, e)\n",
            include_str!("../deny_all.lua"),
            include_str!("../sliding_window.lua"),
            include_str!("../token_bucket.lua"),
            include_str!("../sliding_window_log.lua"),
            include_str!("../sliding_window_counter.lua"),
            include_str!("../fixed_window.lua"),
            include_str!("../count.lua"),
            "local function rare(what, ...)\n",
            include_str!("../rare/amend.lua"),
            include_str!("../rare/sliding_window_log.lua"),
            include_str!("../rare/sliding_window_counter.lua"),
            include_str!("../rare/sliding_window.lua"),
            include_str!("../rare/sliding_window_refund.lua"),
            include_str!("../rare/exact.lua"),
            include_str!("../rare/token_bucket.lua"),
            "end\n",
            "return rare(what, key, quota, window, extra, cost, life, id, a, b, c, d, e)\n",
            "end\n",
            include_str!("../decide.lua"),
            include_str!("../main.lua"),
        )
    };
}

/// The script, on the server's own clock.
pub const SCRIPT: &str = script!(include_str!("../clock.lua"));

/// The script on a clock that its last argument gives, for tests alone.
#[cfg(feature = "testing")]
pub const SCRIPT_ON_GIVEN_CLOCK: &str = script!(include_str!("../clock_testing.lua"));

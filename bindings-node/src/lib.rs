//! `native`: what JavaScript calls of the core. Nothing is judged here; each file carries one thing over the border.
//! No other thread ever calls JavaScript: results come through one queue, which the thread of its event loop drains.
//!
//! Many checks and requests cross in one call, as numbers and bytes in memory that both sides keep, and so do their answers:
//! `args.rs` reads what `lib/crossing.ts` has been given, `lib/record.ts` what `record.rs` has written.
//!
//! More than the few hundred lines that a binding should have: a third of them is these two forms, which halve what a check
//! costs. What Node's own types could carry would be a string or an object for each figure.

#![allow(missing_debug_implementations, reason = "JavaScript shows its objects itself")]
#![allow(unreachable_pub, reason = "what is exported to JavaScript has to be pub for the macro that exports it")]
#![cfg_attr(test, allow(dead_code, reason = "the macro exports nothing of a build for tests"))]
#![allow(clippy::needless_pass_by_value, reason = "what JavaScript gives comes by value")]

mod admission;
mod args;
mod clock;
mod error;
mod limiter;
mod logging;
mod policy;
mod queue;
mod record;
mod watch;

use std::collections::HashMap;

use napi_derive::napi;
use tidegate::http::Outcome;
use tidegate::{Algorithm, ErrorKind, Origin};

use crate::error::Result;

/// Whether servers take a test's clock: never in a released addon.
#[napi]
pub const TESTING: bool = cfg!(feature = "testing");

#[napi]
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The names behind the numbers of records, each in its order.
#[napi]
pub fn names() -> HashMap<String, Vec<&'static str>> {
    let errors = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    let origins = Origin::ALL.iter().map(|origin| origin.name()).collect();
    let algorithms = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
    let outcomes = Outcome::ALL.iter().map(|outcome| outcome.name()).collect();
    let lists = [("errors", errors), ("origins", origins), ("algorithms", algorithms), ("outcomes", outcomes)];
    lists.into_iter().map(|(what, names)| (what.to_owned(), names)).collect()
}

/// The JSON Schema of documents.
#[napi]
pub fn schema() -> String {
    tidegate::Document::schema().to_string()
}

/// The milliseconds of a duration such as `"10s"`.
#[napi]
pub fn duration(text: String) -> Result<f64> {
    Ok(args::milliseconds(tidegate::parse_duration(&text).map_err(error::thrown)?))
}

//! `tidegate` for languages that UniFFI speaks: what Kotlin, Ruby and Swift call of the core. Nothing is judged here; each
//! file carries one thing over the border.
//!
//! There are three ways to the same calls, for three kinds of languages. [`Limiter`] and [`Policy`] block the thread that
//! calls; [`AsyncLimiter`] and [`AsyncPolicy`] are awaited; a [`Queue`] takes many calls at once and answers many at once, for
//! the JVM, where each crossing costs more than a decision.

#![allow(clippy::needless_pass_by_value, reason = "what other languages give comes by value")]
#![allow(unreachable_pub, reason = "what is exported has to be pub for the macro that exports it")]

mod args;
mod asynchronous;
mod call;
mod clock;
mod crossing;
mod decision;
mod error;
mod limiter;
mod logging;
mod policy;
mod queue;

pub use args::{Key, NamedRule, Options, Source};
pub use asynchronous::{AsyncLimiter, AsyncPolicy};
pub use call::{Answer, Ask, Call, Completed};
pub use clock::Clock;
pub use decision::{Algorithm, Decision, LimitDecision, Origin};
pub use error::{Failure, TidegateError};
pub use limiter::{Acquiring, Counted, Limiter};
pub use logging::Line;
pub use policy::{Admission, AdmissionOutcome, Charge, Header, HeaderLine, Needs, Policy, Told, Value};
pub use queue::Queue;

uniffi::setup_scaffolding!("tidegate_ffi");

/// Whether servers take a test's clock: never in a released library.
#[uniffi::export]
pub fn is_for_testing() -> bool {
    cfg!(feature = "testing")
}

/// The version of this library.
#[uniffi::export]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The code of every kind of error, in the order in which they are documented.
#[uniffi::export]
pub fn error_codes() -> Vec<String> {
    tidegate::ErrorKind::ALL.iter().map(|kind| kind.code().to_owned()).collect()
}

/// The JSON Schema of documents.
#[uniffi::export]
pub fn schema() -> String {
    tidegate::Document::schema().to_string()
}

/// The milliseconds of a duration such as `10s`, rounded up.
#[uniffi::export]
pub fn duration_ms(text: String) -> Result<i64, TidegateError> {
    Ok(args::milliseconds(tidegate::parse_duration(&text)?))
}

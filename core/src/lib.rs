//! Exact, atomic rate limiting: on memory, on Redis and Valkey, and on Redis Cluster.
//!
//! ```
//! use tidegate::Limiter;
//!
//! let limiter = Limiter::builder().rule("login", "3/m").build()?;
//! for _ in 0..3 {
//!     assert!(limiter.check("login", "alice").wait()?.allowed());
//! }
//! let decision = limiter.check("login", "alice").wait()?;
//! assert!(!decision.allowed());
//! assert!(decision.retry_after().is_some());
//! # Ok::<(), tidegate::Error>(())
//! ```

mod algorithm;
mod blocking;
mod cache;
mod clock;
mod decision;
mod document;
mod error;
mod io;
mod key;
mod limiter;
mod plan;
mod rates;
mod receipt;
mod request_id;
mod rule;
mod simulation;
mod spent;
mod store;

pub use decision::{Decision, LimitDecision, Origin};
pub use document::{Document, Format};
pub use error::{Error, ErrorKind, Result};
pub use key::Key;
pub use limiter::{Acquire, Builder, Check, Count, Counted, Limiter, LogEntry, Pending, Usage};
pub use receipt::Receipt;
pub use rule::{Algorithm, Limit, OnError, Rule};
pub use simulation::Simulation;

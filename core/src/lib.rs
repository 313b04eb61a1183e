//! Exact, atomic rate limiting: in memory, on Redis and Valkey, and on Redis Cluster.
//!
//! A [`Limiter`] has rules, and decides whether somebody may pass one:
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
//! println!("try again in {:?}", decision.retry_after());
//! # Ok::<(), tidegate::Error>(())
//! ```
//!
//! Every call ends in `.await`, under any executor, or in `.wait()`, on a plain thread. Without a URL state lives in
//! this process; with `.url("redis://...")` or `.url("redis+cluster://...")` it is shared, and nothing else changes.
//!
//! # Several limits, several rules
//!
//! A rule may have many limits, and a call many rules. They are decided together: all are charged, or none.
//!
//! ```
//! # use tidegate::Limiter;
//! let limiter = Limiter::builder().rule("user", "2/s; 5/h").rule("tenant", "100/m").build()?;
//! let decision = limiter.check_all(["user", "tenant"], "acme").wait()?;
//! assert_eq!(decision.limits().map(|limit| limit.remaining()).collect::<Vec<_>>(), [1, 4, 99]);
//! assert_eq!(decision.binding().limit(), 2); // the one with the least left
//! # Ok::<(), tidegate::Error>(())
//! ```
//!
//! # Costs, refunds, repeats
//!
//! ```
//! # use tidegate::Limiter;
//! let limiter = Limiter::builder().rule("export", "10/h sliding_window_log").build()?;
//! let decision = limiter.check("export", "alice").cost(4).request_id("job 17").wait()?;
//! assert_eq!(decision.remaining(), 6);
//!
//! // The same request again is allowed, and charged nothing.
//! assert_eq!(limiter.check("export", "alice").cost(4).request_id("job 17").wait()?.remaining(), 6);
//!
//! // It failed for no fault of alice's.
//! limiter.refund(&decision.receipt()).wait()?;
//! assert_eq!(limiter.peek("export", "alice").wait()?.remaining(), 10);
//! # Ok::<(), tidegate::Error>(())
//! ```
//!
//! # When the store fails
//!
//! Then `check`, `peek` and `acquire` answer all the same, by the deadline, as the rule's [`OnError`] says: allow unless
//! told otherwise. [`Decision::origin`] tells who decided, and [`Decision::failure`] why. The other calls return the
//! error. A node that fails five times in a row is left alone for a while, and `OnError` answers at once.
//!
//! # Forks and event loops
//!
//! A limiter may be used, the process forked, and the limiter used in parent and child: a child has an I/O thread and
//! connections of its own from its first call on. New in the child are also what [`OnError::Local`] has counted, the
//! refusals that are remembered, the receipts that were refunded, and who waits in [`Limiter::acquire`]. A call that was
//! under way at the fork is answered in the child as by a store that fails. What a limiter keeps in memory is copied as
//! it stands: do not fork while other threads use it. The parent's sockets stay open in the child until that ends, and
//! nobody uses them. A fork by a bare system call, past the C library, is not noticed.
//!
//! [`Completions`] are for bindings: results for an event loop of another language, which cannot be called from the
//! I/O thread. [`Decision::record`] is a decision as plain numbers.
//!
//! # HTTP
//!
//! A [`Policy`](http::Policy) decides requests by a document's routes: which rules, whose address, what the response says.
//! The feature `tower` has a layer for axum, hyper and tonic.
//!
//! # What it does not do
//!
//! It does not shape traffic beyond [`Limiter::acquire`]; and it cannot undo
//! what a failover of Redis loses. Time is the store's: clients' clocks do not matter.

mod algorithm;
mod blocking;
mod breaker;
mod cache;
mod clock;
mod completion;
mod decision;
mod deny_cache;
mod document;
mod error;
mod fork;
pub mod http;
mod inspection;
mod io;
mod key;
mod limiter;
pub mod lines;
mod metrics;
mod plan;
mod rates;
mod receipt;
mod record;
mod request_id;
mod rule;
mod simulation;
mod spent;
mod store;
#[cfg(feature = "tower")]
pub mod tower;
mod trace;

pub use completion::{Completed, Completions, Outcome, Submitted};
pub use decision::{Decision, LimitDecision, Origin};
pub use document::{Document, Format};
pub use error::{Error, ErrorKind, Result};
pub use inspection::{
    ClockInspection, ClusterInspection, Inspection, MemoryInspection, NodeInspection, Place, RoundTrip,
    ServerInspection, ShardInspection,
};
pub use key::Key;
pub use limiter::{Acquire, Begun, Builder, Check, Count, Counted, Limiter, LogEntry, Pending};
pub use metrics::{BreakerState, DecisionCount, ErrorCount, Histogram, Metrics, NodeMetrics};
pub use rates::parse_duration;
pub use receipt::Receipt;
pub use record::Record;
pub use rule::{Algorithm, Limit, OnError, Rule};
pub use simulation::Simulation;
pub use store::redis::LoopSocket;

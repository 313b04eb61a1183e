//! Calls that cross many at once, and their answers.

use tidegate::{Completed as Done, Limiter, Outcome};

use crate::args::{Key, Options};
use crate::decision::Decision;
use crate::error::{Failure, TidegateError};
use crate::limiter::Counted;
use crate::policy::{Admission, Needs, Told};

/// A call, and the number under which it is answered.
#[derive(Debug, Clone, uniffi::Record)]
pub struct Call {
    /// Told with the answer.
    pub ticket: i64,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked; as the methods of [`Limiter`](crate::Limiter) and [`Policy`](crate::Policy).
#[derive(Debug, Clone, uniffi::Enum)]
#[allow(missing_docs, reason = "the methods document their arguments")]
pub enum Ask {
    Check {
        rules: Vec<String>,
        key: Key,
        options: Options,
    },
    Peek {
        rules: Vec<String>,
        key: Key,
        options: Options,
    },
    Acquire {
        rule: String,
        key: Key,
        options: Options,
        timeout_ms: i64,
    },
    Refund {
        receipt: String,
    },
    Reset {
        rule: String,
        key: Key,
        limits: Option<String>,
    },
    Count {
        rule: String,
        key: Key,
        window_ms: i64,
        add: i64,
    },
    TakeBack {
        rule: String,
        key: Key,
        window_ms: i64,
        units: i64,
        start: i64,
    },
    Ready {
        timeout_ms: i64,
    },
    /// `asked` says that the application was asked for what the route needs; where it was not and would have to be, the answer
    /// is what it needs.
    Admit {
        method: String,
        path: String,
        told: Told,
        asked: bool,
    },
}

/// A call that has ended.
#[derive(Debug, Clone, uniffi::Record)]
pub struct Completed {
    /// The number of the call.
    pub ticket: i64,
    /// What it came to.
    pub answer: Answer,
}

/// What a call comes to.
#[derive(Debug, Clone, uniffi::Enum)]
#[allow(missing_docs, reason = "each is named after what it holds")]
pub enum Answer {
    Decided {
        decision: Decision,
    },
    Admitted {
        admission: Admission,
    },
    Needing {
        needs: Needs,
    },
    Counting {
        counted: Counted,
    },
    /// Of a refund: whether anything was given back.
    Refunded {
        is_so: bool,
    },
    /// Of what answers nothing.
    Done,
    Failed {
        failure: Failure,
    },
}

impl Answer {
    pub(crate) fn failed(error: TidegateError) -> Answer {
        Answer::Failed { failure: error.into() }
    }

    /// `limiter` is whose refusals the caller may repeat.
    pub(crate) fn of(done: tidegate::Result<Outcome>, limiter: Option<&Limiter>) -> Answer {
        match done {
            Ok(Outcome::Decision(decision)) => Answer::Decided {
                decision: limiter
                    .map_or_else(|| Decision::from(&decision), |limiter| Decision::repeatable(&decision, limiter)),
            },
            Ok(Outcome::Refunded(is_so)) => Answer::Refunded { is_so },
            Ok(Outcome::Counted(counted)) => Answer::Counting { counted: counted.into() },
            Ok(Outcome::Admission(admission)) => Answer::Admitted { admission: Admission::of(admission) },
            // A log is never asked for here.
            Ok(_) => Answer::Done,
            Err(error) => Answer::Failed { failure: Failure::from(&error) },
        }
    }
}

impl Completed {
    pub(crate) fn of(done: Done, limiter: Option<&Limiter>) -> Completed {
        Completed { ticket: done.ticket.cast_signed(), answer: Answer::of(done.result, limiter) }
    }
}

//! Decisions as they cross.

use tidegate::Limiter;

use crate::args::{milliseconds, signed};
use crate::error::Failure;

/// An enumeration of core's, by the same names in the same order; core's may grow, and a test compares them.
macro_rules! mirrored {
    ($(#[$doc:meta])* $name:ident of $core:ty: $first:ident $(, $other:ident)* $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
        #[allow(missing_docs, reason = "core documents them")]
        pub enum $name {
            $first,
            $($other,)*
        }

        impl From<$core> for $name {
            fn from(one: $core) -> $name {
                #[allow(unreachable_patterns, reason = "core's may grow")]
                match one {
                    $(<$core>::$other => $name::$other,)*
                    _ => $name::$first,
                }
            }
        }

        #[cfg(test)]
        impl $name {
            pub(crate) const NAMES: &'static [&'static str] = &[stringify!($first) $(, stringify!($other))*];
        }
    };
}
pub(crate) use mirrored;

mirrored! {
    /// Who decided: the store; a refusal that this process remembers; or, where the store failed, this process by itself
    /// (`Local`) or the rule's failure policy (`Open` lets pass, `Closed` refuses).
    Origin of tidegate::Origin: Store, DenyCache, Local, Open, Closed
}

mirrored! {
    /// How a limit counts.
    Algorithm of tidegate::Algorithm:
    SlidingWindowLog, SlidingWindow, TokenBucket, SlidingWindowCounter, FixedWindow
}

/// Whether a request may pass, and how its limits stand. Times are whole milliseconds, rounded up.
///
/// When the failure policy decided nothing is known: `remaining` is 0, and both times are none.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Decision {
    /// Whether the request may pass.
    pub allowed: bool,
    /// The units per window of the limit that binds.
    pub limit: i64,
    /// The largest cost admissible now, after this charge.
    pub remaining: i64,
    /// Milliseconds until this cost passes if nobody else comes; none when allowed, and when it never can.
    pub retry_after_ms: Option<i64>,
    /// Milliseconds until every quota is whole; none if that never is, or is not known.
    pub reset_after_ms: Option<i64>,
    /// Whether the request's id had been charged before: allowed, and nothing charged again.
    pub repeat: bool,
    /// Who decided.
    pub origin: Origin,
    /// The place of the limit that binds among `limits`.
    pub binding: i32,
    /// Every limit with its own figures, in the order written.
    pub limits: Vec<LimitDecision>,
    /// Why the failure policy decided; none if it did not.
    pub failure: Option<Failure>,
    /// What was charged, as text that `refund` takes and that may be kept; empty if nothing was.
    pub receipt: String,
    /// How long whoever asked may repeat this refusal to the same check without asking again, in milliseconds from before he
    /// asked, while the limiter's `refusals_ended` stays; 0 where he may not.
    pub repeats_ms: i64,
}

/// How one limit of a decision stands.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct LimitDecision {
    /// The rule that the limit belongs to.
    pub rule: String,
    /// The limit's name, if it was given one.
    pub name: Option<String>,
    /// How it counts.
    pub algorithm: Algorithm,
    /// Units per window.
    pub limit: i64,
    /// The window, in milliseconds.
    pub window_ms: i64,
    /// The units that a token bucket admits at once; the limit for the other algorithms.
    pub burst: i64,
    /// The grid to which a sliding window rounds its times up, in milliseconds; none if they are exact.
    pub precision_ms: Option<i64>,
    /// Whether it blocks; a shadow limit only reports.
    pub enforced: bool,
    /// Whether this limit alone would let the request pass.
    pub allowed: bool,
    /// The largest cost admissible now.
    pub remaining: i64,
    /// Milliseconds until this cost passes; none when it does, and when it never can.
    pub retry_after_ms: Option<i64>,
    /// Milliseconds until the quota is whole; none if it never is.
    pub reset_after_ms: Option<i64>,
}

impl From<&tidegate::Decision> for Decision {
    fn from(decision: &tidegate::Decision) -> Decision {
        let record = decision.record();
        Decision {
            allowed: record.allowed,
            limit: record.limit.into(),
            remaining: record.remaining.into(),
            retry_after_ms: record.retry_after_ms.map(signed),
            reset_after_ms: record.reset_after_ms.map(signed),
            repeat: record.repeat,
            origin: record.origin.into(),
            binding: record.binding.into(),
            limits: decision.limits().map(|limit| LimitDecision::from(&limit)).collect(),
            failure: decision.failure().map(Failure::from),
            receipt: receipt(decision),
            repeats_ms: 0,
        }
    }
}

impl Decision {
    /// The same for whoever repeats refusals.
    pub(crate) fn repeatable(decision: &tidegate::Decision, limiter: &Limiter) -> Decision {
        // Rounded down: nobody may repeat it for longer than it holds.
        let hold = limiter.may_repeat(decision).map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        Decision { repeats_ms: hold.unwrap_or(0), ..Decision::from(decision) }
    }
}

/// Empty where nothing was charged.
fn receipt(decision: &tidegate::Decision) -> String {
    if !decision.allowed() {
        return String::new();
    }
    let receipt = decision.receipt();
    if receipt.is_empty() { String::new() } else { receipt.to_string() }
}

impl From<&tidegate::LimitDecision<'_>> for LimitDecision {
    fn from(limit: &tidegate::LimitDecision<'_>) -> LimitDecision {
        LimitDecision {
            rule: limit.rule().to_owned(),
            name: limit.name().map(str::to_owned),
            algorithm: limit.algorithm().into(),
            limit: limit.limit().into(),
            window_ms: milliseconds(limit.window()),
            burst: limit.burst().into(),
            precision_ms: limit.precision().map(milliseconds),
            enforced: limit.enforced(),
            allowed: limit.allowed(),
            remaining: limit.remaining().into(),
            retry_after_ms: limit.retry_after_ms().map(signed),
            reset_after_ms: limit.reset_after_ms().map(signed),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `deny_cache` is `DenyCache`.
    pub(crate) fn camel(name: &str) -> String {
        name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
    }

    #[test]
    fn enumerations_are_those_of_the_core() {
        let origins: Vec<String> = tidegate::Origin::ALL.iter().map(|one| camel(one.name())).collect();
        assert_eq!(Origin::NAMES, origins, "write core's origins, in their order, into mirrored! above");
        let algorithms: Vec<String> = tidegate::Algorithm::ALL.iter().map(|one| camel(one.name())).collect();
        assert_eq!(Algorithm::NAMES, algorithms, "write core's algorithms, in their order, into mirrored! above");
        for origin in tidegate::Origin::ALL {
            assert_eq!(format!("{:?}", Origin::from(*origin)), format!("{origin:?}"));
        }
        for algorithm in tidegate::Algorithm::ALL {
            assert_eq!(format!("{:?}", Algorithm::from(*algorithm)), format!("{algorithm:?}"));
        }
    }
}

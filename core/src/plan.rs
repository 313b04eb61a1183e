//! What a call asks: the limits of one or more rules, and the rest of the call once it is judged.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::key::Subject;
use crate::metrics::{Counters, Rows};
use crate::request_id::{self, RequestId};
use crate::rule::{Algorithm, BoundLimit, MAX_UNITS, OnError, Rule};

/// The limits of the rules that one call names, in the order written.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) limits: Vec<Arc<BoundLimit>>,
    /// What stored keys begin with.
    pub(crate) prefix: Arc<str>,
    pub(crate) on_error: OnError,
    /// What decides in this process while the store fails, where that is the policy.
    pub(crate) local: Option<Arc<Plan>>,
    pub(crate) enforces: bool,
    pub(crate) has_log: bool,
    /// Whether its limits were given at the call.
    pub(crate) at_call: bool,
    has_enforced_log: bool,
    /// Where its decisions are counted, if anywhere.
    pub(crate) rows: Rows,
    /// Twice the row's number where there is one, and beyond all rows otherwise: one look-up for nearly every call.
    pub(crate) place: usize,
    pub(crate) counters: Option<Arc<Counters>>,
}

/// The most units that a log, which keeps each of them, charges at once.
const MAX_LOG_COST: u64 = 10_000;

impl Plan {
    pub(crate) fn new<'a>(rules: impl IntoIterator<Item = &'a Rule>, prefix: &Arc<str>) -> Result<Plan> {
        let (mut limits, mut shared): (Vec<Arc<BoundLimit>>, Vec<Arc<BoundLimit>>) = (Vec::new(), Vec::new());
        let mut on_error = OnError::Allow;
        for rule in rules {
            let share = match rule.failure_policy() {
                OnError::Local { share: 0 } => {
                    let message = format!("rule {:?}: share is 0; write how many processes serve it", rule.name());
                    return Err(Error::new(ErrorKind::InvalidRule, message));
                }
                OnError::Local { share } => share,
                OnError::Allow | OnError::Deny => 1,
            };
            // Deny over local over allow.
            on_error = match (on_error, rule.failure_policy()) {
                (OnError::Deny, _) | (_, OnError::Deny) => OnError::Deny,
                (local @ OnError::Local { .. }, _) | (_, local @ OnError::Local { .. }) => local,
                (OnError::Allow, OnError::Allow) => OnError::Allow,
            };
            for limit in rule.limits() {
                if limits.iter().any(|other| other.suffix == limit.suffix) {
                    let message = format!("the call names rule {:?} twice; name each rule once", rule.name());
                    return Err(Error::new(ErrorKind::InvalidRequest, message));
                }
                limits.push(Arc::clone(limit));
                shared.push(Arc::new(limit.shared(share)));
            }
        }
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            let message = format!("a call has 1 to {MAX_LIMITS} limits, and this one has {}", limits.len());
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let local = matches!(on_error, OnError::Local { .. }).then(|| Arc::new(Plan::of(shared, prefix, on_error)));
        Ok(Plan { local, ..Plan::of(limits, prefix, on_error) })
    }

    /// The same plan, whose decisions are counted.
    pub(crate) fn counted(mut self, rows: Rows, counters: &Arc<Counters>) -> Plan {
        // Made with it, and nobody else has it yet.
        if let Some(local) = self.local.as_mut().and_then(Arc::get_mut) {
            (local.rows, local.counters) = (rows.clone(), Some(Arc::clone(counters)));
        }
        let place = if let [row] = &rows[..] { 2 * row.number as usize } else { NOWHERE };
        Plan { rows, place, counters: Some(Arc::clone(counters)), ..self }
    }

    fn of(limits: Vec<Arc<BoundLimit>>, prefix: &Arc<str>, on_error: OnError) -> Plan {
        let is_log = |limit: &&Arc<BoundLimit>| limit.algorithm == Algorithm::SlidingWindowLog;
        Plan {
            prefix: Arc::clone(prefix),
            on_error,
            local: None,
            enforces: limits.iter().any(|limit| limit.enforce),
            has_log: limits.iter().any(|limit| is_log(&limit)),
            has_enforced_log: limits.iter().any(|limit| is_log(&limit) && limit.enforce),
            at_call: false,
            rows: Rows::new(),
            place: NOWHERE,
            counters: None,
            limits,
        }
    }

    /// The same plan, of limits that were given at a call.
    pub(crate) fn given_at_call(self) -> Plan {
        Plan { at_call: true, ..self }
    }

    /// The names of its rules, in the order written.
    pub(crate) fn rules(&self) -> Vec<&str> {
        let mut rules: Vec<&str> = self.limits.iter().map(|limit| &*limit.rule).collect();
        rules.dedup();
        rules
    }

    /// How many members a charge of so much adds to logs, which keep one for each unit.
    pub(crate) fn units_kept(&self, cost: u32) -> u32 {
        if !self.has_log {
            return 0;
        }
        let logs = self.limits.iter().filter(|limit| limit.algorithm == Algorithm::SlidingWindowLog).count();
        cost.saturating_mul(u32::try_from(logs).unwrap_or(u32::MAX))
    }

    /// The cost, if it can be meant.
    #[inline]
    pub(crate) fn judged_cost(&self, cost: u64) -> Result<u32> {
        let most = if self.has_log { MAX_LOG_COST } else { MAX_UNITS };
        match u32::try_from(cost) {
            Ok(0) => Err(Error::new(ErrorKind::InvalidRequest, "cost 0 charges nothing; use peek to look")),
            Ok(judged) if cost <= most => Ok(judged),
            _ => Err(Error::new(ErrorKind::InvalidRequest, format!("cost {cost} is too large; write 1 to {most}"))),
        }
    }

    /// The id that a log would keep: the application's, else one of ours, else none is needed.
    #[inline]
    pub(crate) fn judged_id(&self, given: Option<&[u8]>) -> Result<RequestId> {
        match given {
            Some(id) if self.has_enforced_log => request_id::given(id),
            Some(_) => Err(Error::new(
                ErrorKind::InvalidRequest,
                "a request id needs a sliding_window_log limit that is enforced, and this call has none; \
                 add one to the rule, or leave the id out",
            )),
            None if self.has_log => request_id::ours(),
            None => Ok(RequestId::default()),
        }
    }

    /// Whether what was charged under an id may be asked again when no answer came (law 14).
    pub(crate) fn is_repeatable(&self, id: &[u8], deadline: Duration) -> bool {
        let outlasts = |limit: &Arc<BoundLimit>| {
            limit.enforce
                && limit.algorithm == Algorithm::SlidingWindowLog
                && Duration::from_micros(limit.window) > deadline
        };
        request_id::is_given(id) && self.limits.iter().any(outlasts)
    }
}

/// The place of a plan with several rows.
const NOWHERE: usize = usize::MAX - 1;
/// The most limits that one call may have.
const MAX_LIMITS: usize = 64;

/// Charge if admitted, or only look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Check,
    Peek,
}

/// A call, judged.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) plan: Arc<Plan>,
    pub(crate) subject: Subject,
    pub(crate) action: Action,
    pub(crate) cost: u32,
    pub(crate) id: RequestId,
    pub(crate) deadline: Duration,
    /// Whether it is counted: not while it only looks, nor while it goes on for another that is.
    pub(crate) counts: bool,
}

impl Call {
    /// The same call as this process decides it while the store fails.
    pub(crate) fn local(self) -> Call {
        let plan = self.plan.local.as_ref().map_or_else(|| Arc::clone(&self.plan), Arc::clone);
        Call { plan, counts: false, ..self }
    }
}

//! What a rule would have decided at times of the past.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, FARTHEST};
use crate::decision::Decision;
use crate::error::Result;
use crate::key::Key;
use crate::plan::{Action, Call, Plan};
use crate::rule::Rule;
use crate::store::memory::{DEFAULT_MAX_KEYS, MemoryStore};

/// A rule on times that the caller gives, in memory: for replaying logs and for looking at what a rule does.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Rule, Simulation};
///
/// let simulation = Simulation::new(&Rule::parse("pages", "1/m")?)?;
/// let at = Duration::from_secs(1_767_225_600);
/// assert!(simulation.check("203.0.113.7", 1, at)?.allowed());
/// assert!(!simulation.check("203.0.113.7", 1, at + Duration::from_secs(59))?.allowed());
/// assert!(simulation.check("203.0.113.7", 1, at + Duration::from_secs(60))?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug)]
pub struct Simulation {
    plan: Arc<Plan>,
    store: MemoryStore,
}

impl Simulation {
    /// A simulation of one rule, at first untouched.
    ///
    /// # Errors
    /// `invalid_request` if the rule has more limits than one call may.
    pub fn new(rule: &Rule) -> Result<Simulation> {
        let (plan, store) =
            (Arc::new(Plan::new([rule], &"simulation".into())?), MemoryStore::new(DEFAULT_MAX_KEYS, Clock::default()));
        Ok(Simulation { plan, store })
    }

    /// Decides at a time since 1970. Times may step back, as a clock may: that never frees anything.
    ///
    /// # Errors
    /// `invalid_request` for an empty key or a cost out of range.
    pub fn check(&self, key: impl Into<Key>, cost: u64, at: Duration) -> Result<Decision> {
        let call = Call {
            plan: Arc::clone(&self.plan),
            subject: key.into().into_subject(None)?,
            action: Action::Check,
            cost: self.plan.judged_cost(cost)?,
            id: self.plan.judged_id(None)?,
            deadline: Duration::ZERO,
            counts: false,
        };
        let reply = self.store.decide_at(&call, u64::try_from(at.as_micros()).unwrap_or(u64::MAX).min(FARTHEST));
        Ok(Decision::from_store(call, reply))
    }
}

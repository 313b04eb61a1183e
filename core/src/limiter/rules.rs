//! A limiter's rules, and the exchange of them while the store stays.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Inner, Limiter, PLANS, Store};
use crate::cache::Cache;
use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;
use crate::metrics::{Row, Rows};
use crate::plan::Plan;
use crate::rule::{OnError, Rule};

/// A rule, and what a call of it asks.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) rule: Rule,
    pub(super) plan: Arc<Plan>,
    /// Where its decisions are counted.
    pub(super) row: Arc<Row>,
}

/// The row of each rule by name, of rules that the store had before too: one that comes back goes on from its own. There
/// are as many as there were names, each of some 100 bytes, and with the memory store of 16 bytes a shard.
pub(super) type AllRows = HashMap<String, Arc<Row>>;

impl Limiter {
    /// A limiter of other rules on the same store: state, connections and lines stay, and what was counted. Refusals
    /// that are remembered are of the old rules, so the new ones ask. Either limiter goes on, and they count together.
    ///
    /// # Errors
    /// `invalid_rule`, as of a builder.
    pub(crate) fn with_rules(&self, rules: Vec<Rule>) -> Result<Limiter> {
        Ok(Limiter { inner: Arc::new(self.inner.with_rules(rules)?) })
    }

    /// Whether the other is this one, with other rules perhaps.
    pub(crate) fn shares_state(&self, other: &Limiter) -> bool {
        Arc::ptr_eq(&self.inner.counters, &other.inner.counters)
    }

    /// The same in public, for tests.
    ///
    /// # Errors
    /// `invalid_rule`, as of a builder.
    #[cfg(feature = "testing")]
    pub fn exchange_rules(&self, rules: Vec<Rule>) -> Result<Limiter> {
        self.with_rules(rules)
    }
}

impl Inner {
    pub(super) fn with_rules(&self, rules: Vec<Rule>) -> Result<Inner> {
        let (rules, rows) = self.bind(rules)?;
        if matches!(self.store, Store::Redis(_)) {
            self.announce(&rules);
        }
        let limits = rules.iter().flat_map(|bound| &bound.plan.limits);
        Ok(Inner {
            store: self.store.clone(),
            prefix: Arc::clone(&self.prefix),
            secret: self.secret.clone(),
            deadline: self.deadline,
            plans: PerProcess::new(Cache::new(PLANS)),
            rates: limits.map(|limit| (limit.suffix.text().to_owned(), limit.quota)).collect(),
            lines: Arc::clone(&self.lines),
            counters: Arc::clone(&self.counters),
            rules,
            rows,
        })
    }

    /// The rules by name, each with what a call of it asks; and all rows.
    fn bind(&self, mut rules: Vec<Rule>) -> Result<(Vec<Bound>, AllRows)> {
        if rules.is_empty() {
            let message = "the limiter has no rule; give it one, such as (\"login\", \"5/m\")";
            return Err(Error::new(ErrorKind::InvalidRule, message));
        }
        rules.sort_by(|a, b| a.name().cmp(b.name()));
        if let Some(twins) = rules.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            let message = format!("two rules are named {:?}; give each a name of its own", twins[0].name());
            return Err(Error::new(ErrorKind::InvalidRule, message));
        }
        // All of them before any row is made: nothing comes of a bad rule.
        let plans = rules.iter().map(|rule| Plan::new([rule], &self.prefix)).collect::<Result<Vec<_>>>()?;
        let mut rows = self.rows.clone();
        let bound = rules.into_iter().zip(plans).map(|(rule, plan)| {
            let row = rows.entry(rule.name().to_owned()).or_insert_with(|| self.counters.row());
            let plan = Arc::new(plan.counted(Rows::from_iter([Arc::clone(row)]), &self.counters));
            Bound { rule, plan, row: Arc::clone(row) }
        });
        Ok((bound.collect(), rows))
    }

    /// Says once which rules let everything pass while the store fails: nobody should find out on the day.
    fn announce(&self, rules: &[Bound]) {
        let is_open = |bound: &&Bound| bound.plan.on_error == OnError::Allow && bound.plan.enforces;
        let was_open = |name: &str| self.find(name).as_ref().is_some_and(is_open);
        let names = rules.iter().filter(is_open).map(|bound| bound.rule.name()).filter(|name| !was_open(name));
        let names = names.collect::<Vec<_>>().join(", ");
        if !names.is_empty() {
            log::warn!("while the store fails, requests pass under {names}; on_error = \"deny\" refuses them");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decision::Decision;
    use crate::plan::Action;

    fn rules(rules: &[(&str, &str)]) -> Vec<Rule> {
        rules.iter().map(|(name, limits)| Rule::parse(*name, limits).expect("the rule can be meant")).collect()
    }

    fn limiter(of: &[(&str, &str)]) -> Limiter {
        Limiter::builder().rules(rules(of)).build().expect("the rules can be meant")
    }

    fn exchanged(limiter: &Limiter, of: &[(&str, &str)]) -> Limiter {
        limiter.with_rules(rules(of)).expect("the rules can be meant")
    }

    fn check(limiter: &Limiter, rule: &str) -> bool {
        limiter.check(rule, "k").wait().expect("the call can be meant").allowed()
    }

    /// What was counted, rule by rule: allowed, and refused.
    fn told(limiter: &Limiter) -> Vec<(String, u64, u64)> {
        let rows = limiter.metrics().decisions;
        rows.chunks(2).map(|pair| (pair[0].rule.clone(), pair[0].count, pair[1].count)).collect()
    }

    fn row(name: &str, allowed: u64, refused: u64) -> (String, u64, u64) {
        (name.to_owned(), allowed, refused)
    }

    #[test]
    fn state_and_counters_go_on_under_other_rules() {
        let old = limiter(&[("kept", "3/h"), ("gone", "1/h")]);
        assert_eq!([(); 4].map(|()| check(&old, "kept")), [true, true, true, false]);
        assert!(check(&old, "gone"));

        let new = exchanged(&old, &[("zz", "1/h"), ("kept", "5/h"), ("added", "1/h")]);
        assert_eq!(told(&new), [row("added", 0, 0), row("kept", 3, 1), row("zz", 0, 0)]);
        assert!(!check(&old, "kept"), "calls under way have the old limits");
        assert_eq!([(); 3].map(|()| check(&new, "kept")), [true, true, false]);
        assert!(check(&new, "added") && !check(&old, "gone"));
        assert!(new.check("gone", "k").wait().is_err());
        assert_eq!(told(&new), [row("added", 1, 0), row("kept", 5, 3), row("zz", 0, 0)]);
        assert_eq!(told(&old), [row("gone", 1, 1), row("kept", 5, 3)], "they count together");

        // Several rules, and limits that are given at the call, count as of either.
        let many = |limiter: &Limiter| limiter.check_all(["kept", "added"], "other").wait().expect("it can be meant");
        assert!(many(&new).allowed() && !many(&new).allowed());
        assert!(old.check("kept", "k").limits("99/h").wait().is_ok_and(|decision| decision.allowed()));
        assert_eq!(told(&new)[..2], [row("added", 2, 1), row("kept", 7, 4)]);
        assert!(new.metrics().errors.iter().any(|error| error.kind == ErrorKind::UnknownRule && error.count == 1));
        assert_eq!(old.metrics().errors, new.metrics().errors);
    }

    #[test]
    fn a_rule_that_comes_back_goes_on_from_its_row_and_no_name_has_two() {
        let (one, other): (&[_], &[_]) = (&[("a", "9/h"), ("b", "9/h")], &[("b", "9/h"), ("c", "9/h")]);
        let mut limiter = limiter(one);
        assert!(check(&limiter, "a"));
        for round in 0..50 {
            limiter = exchanged(&limiter, if round % 2 == 0 { other } else { one });
            limiter.with_rules(rules(&[("d", "1/h"), ("d", "1/h")])).expect_err("two of one name");
            limiter.with_rules(Vec::new()).expect_err("no rule");
        }
        assert_eq!(told(&limiter), [row("a", 1, 0), row("b", 0, 0)]);
        assert_eq!((limiter.inner.rows.len(), limiter.inner.counters.row().number), (3, 3));
    }

    #[test]
    fn a_refund_of_what_another_limiter_charged_is_of_the_same_state() {
        let old = limiter(&[("r", "2/h"), ("gone", "2/h")]);
        let charge = |rule: &str| old.check(rule, "k").cost(2).wait().as_ref().map(Decision::receipt).expect("allowed");
        let receipts = [charge("r"), charge("gone")];
        let new = exchanged(&old, &[("r", "3/h")]);
        assert!(receipts.iter().all(|receipt| new.refund(receipt).wait().is_ok_and(|refunded| refunded)));
        assert_eq!(new.peek("r", "k").wait().expect("it can be meant").remaining(), 3);
        assert_eq!(old.peek("gone", "k").wait().expect("it can be meant").remaining(), 2);
    }

    #[test]
    fn a_plan_that_was_resolved_once_decides_as_its_rules() {
        let limiter = limiter(&[("a", "3/h"), ("b", "2/h; 9/d")]);
        let plan = limiter.plan_of(&["b".to_owned(), "a".to_owned()]).expect("there are such rules");
        assert_eq!(plan.rules(), ["b", "a"]);
        assert_eq!(limiter.peek_planned(&plan, "k".into()).wait().expect("it can be meant").remaining(), 2);
        let decided = [(); 3].map(|()| limiter.check_planned(&plan, "k".into()).wait().expect("it can be meant"));
        assert_eq!(decided.map(|decision| decision.allowed()), [true, true, false]);
        assert_eq!(told(&limiter), [row("a", 2, 1), row("b", 2, 1)], "and a peek is none");

        let one = limiter.plan_of(&["b".to_owned()]).expect("there is such a rule");
        let raised = limiter.check_planned(&one, "k".into()).limits("3/h").wait().expect("of one rule");
        assert!(raised.allowed() && raised.limits().len() == 1);
        let error = limiter.check_planned(&plan, "k".into()).limits("3/h").wait().expect_err("of several rules");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert_eq!(
            limiter.plan_of(&["a".to_owned(), "nobody".to_owned()]).expect_err("no such rule").kind(),
            ErrorKind::UnknownRule
        );
        assert_eq!(limiter.plan_of(&[]).expect_err("no rule").kind(), ErrorKind::InvalidRequest);
        assert!(limiter.check_planned(&plan, "k".into()).remembered().is_none(), "nothing is, in memory");
    }

    #[test]
    fn who_waits_for_the_same_limits_stands_in_one_line_whichever_limiter_was_asked() {
        let old = limiter(&[("same", "1/h"), ("raised", "1/h"), ("shadow", "1/h")]);
        let new = exchanged(&old, &[("same", "1/h"), ("raised", "2/h"), ("shadow", "1/h shadow")]);
        assert!(Arc::ptr_eq(&old.inner.lines, &new.inner.lines));
        let line = |limiter: &Limiter, rule: &str| {
            super::super::line::name(&limiter.check(rule, "k").judged().expect("it can be meant"))
        };
        assert_eq!(line(&old, "same"), line(&new, "same"));
        assert_ne!(line(&old, "raised"), line(&new, "raised"));
        assert_ne!(line(&old, "shadow"), line(&new, "shadow"));
    }

    #[test]
    fn a_raised_limit_admits_at_once_while_others_wait_under_the_old_one() {
        let old = limiter(&[("r", "1/h")]);
        assert!(check(&old, "r"));
        let waits = old.acquire("r", "k").timeout(Duration::from_secs(2 * 3_600));
        let mut waiting = std::pin::pin!(waits.into_future());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "for an hour");
        let new = exchanged(&old, &[("r", "2/h")]);
        let decision = new.acquire("r", "k").timeout(Duration::from_secs(20)).wait().expect("it can be meant");
        assert!(decision.allowed());
    }

    #[test]
    fn a_peek_is_no_check() {
        let limiter = limiter(&[("r", "1/h")]);
        let plan = limiter.plan_of(&["r".to_owned()]).expect("there is such a rule");
        let action = |check: crate::Check<'_>| check.judged().expect("it can be meant").action;
        assert_eq!(action(limiter.peek_planned(&plan, "k".into())), Action::Peek);
        assert_eq!(action(limiter.check_planned(&plan, "k".into())), Action::Check);
    }
}

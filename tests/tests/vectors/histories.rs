//! Plays a case step by step on one store.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate::{Check, Decision, Error, Limiter, Receipt, Result};

use crate::answers::{differences, of_count, of_decision, of_error};
use crate::files::{Failure, History, Op, Step, each};
use crate::stage::{Kind, Snapshot, Stage};
use crate::stored;

pub(crate) fn play(file: &str, stage: &mut Stage) -> Vec<Failure> {
    each(file, |case: &History| {
        let looks_at_redis = case.steps.iter().any(|step| matches!(step.op, Op::Set | Op::Persist));
        if looks_at_redis && !stage.has_keys() {
            return Ok(());
        }
        stage.clear();
        let mut scene = Scene::begin(stage, case);
        let mut steps = case.steps.iter().enumerate();
        steps.try_for_each(|(number, step)| {
            scene.play(step).map_err(|text| format!("  step {number}, {:?} at {}\n{text}", step.op, step.at))
        })
    })
}

/// A case while it is played.
struct Scene<'a> {
    stage: &'a mut Stage,
    limiter: Limiter,
    start: u64,
    /// What is configured now.
    rules: Map<String, Value>,
    /// What the limiter was made with.
    made_with: Map<String, Value>,
    receipts: HashMap<String, Receipt>,
    /// All that was stored after the last step.
    stored: Snapshot,
}

/// What came of a step.
struct Outcome {
    found: Value,
    /// Whether it may have written. What may not leaves everything as it was.
    may_write: bool,
}

impl<'a> Scene<'a> {
    fn begin(stage: &'a mut Stage, case: &History) -> Scene<'a> {
        let rules = case.rules.clone();
        let mut made_with = rules.clone();
        if stage.kind == Kind::Memory {
            // A new limiter would begin empty. So this one is made with the rules as they are in the end, and is given
            // those of the moment at the call.
            made_with.extend(case.steps.iter().filter_map(|step| step.rules.clone()).flatten());
        }
        stage.set_clock(case.start);
        let limiter = stage.limiter(&made_with, &Map::new()).expect("the rules of a case can be meant");
        Scene { stage, limiter, start: case.start, rules, made_with, receipts: HashMap::new(), stored: Snapshot::new() }
    }

    /// Plays one step; says what is not as expected.
    fn play(&mut self, step: &Step) -> Result<(), String> {
        let now = self.start.checked_add_signed(step.at).expect("no case goes back before 1970");
        self.stage.set_clock(now);
        let Some(outcome) = self.outcome(step) else { return Ok(()) };
        if let Some(expected) = &step.expect {
            differences(expected, &outcome.found)?;
        } else if outcome.found.get("error").is_some() {
            return Err(format!("  found {}", outcome.found));
        }
        self.check_laws(outcome.may_write)
    }

    /// Laws 2 and 8, of what is stored.
    fn check_laws(&mut self, may_write: bool) -> Result<(), String> {
        let before = std::mem::replace(&mut self.stored, self.stage.snapshot());
        if !may_write && before != self.stored {
            let keys = before.keys().chain(self.stored.keys());
            let changed =
                keys.filter(|key| before.get(*key) != self.stored.get(*key)).map(|key| String::from_utf8_lossy(key));
            return Err(format!("  it charged nothing, and yet it changed {:?}", changed.collect::<BTreeSet<_>>()));
        }
        let eternal = self.stage.eternal(&self.stored);
        if eternal.is_empty() { Ok(()) } else { Err(format!("  without a TTL: {eternal:?}")) }
    }

    /// What came of a step; nothing if it cannot be played here.
    fn outcome(&mut self, step: &Step) -> Option<Outcome> {
        Some(match step.op {
            Op::Check => self.check(step)?,
            Op::Peek => {
                let answer = self.asked(step)?.wait();
                Outcome { may_write: false, ..answered(answer, |decision| of_decision(&decision)) }
            }
            Op::Refund => self.refund(step),
            Op::Reset => self.reset(step),
            Op::Count => self.count(step),
            Op::Rules => self.configure(step),
            Op::Set => {
                self.stage.plant(stored(step), step);
                Outcome { found: Value::Null, may_write: true }
            }
            Op::Persist => {
                self.stage.rob(stored(step));
                Outcome { found: Value::Null, may_write: true }
            }
            Op::State if !self.stage.has_keys() => return None,
            Op::State => Outcome { found: stored::state(self.stage, &self.stored, self.start), may_write: false },
        })
    }

    /// The same check so many times: what came of the last.
    fn check(&mut self, step: &Step) -> Option<Outcome> {
        let times = step.times.unwrap_or(1);
        let mut admitted = 0;
        for _ in 1..times {
            admitted += u64::from(self.asked(step)?.wait().is_ok_and(|decision| decision.allowed()));
            self.stage.set_clock(self.stage.now() + step.every_us);
        }
        if times > 1 {
            self.stored = self.stage.snapshot();
        }
        let answer = self.asked(step)?.wait();
        let may_write = answer.as_ref().is_ok_and(|decision| !decision.receipt().is_empty());
        if let (Some(name), Ok(decision)) = (&step.save, &answer) {
            self.receipts.insert(name.clone(), decision.receipt());
        }
        let found = answered(answer, |decision: Decision| {
            let mut found = of_decision(&decision);
            found["admitted"] = (admitted + u64::from(decision.allowed())).into();
            found
        });
        Some(Outcome { may_write, ..found })
    }

    /// A check or peek, as far as it can be said in Rust: costs are whole numbers from 0.
    fn asked(&self, step: &Step) -> Option<Check<'_>> {
        let (names, key) = (step.rule.as_ref().expect("which rule").names(), key(step));
        let mut check = match (step.op, names.as_slice()) {
            (Op::Peek, [name]) => self.limiter.peek(name, key),
            (Op::Peek, _) => self.limiter.peek_all(names.iter().copied(), key),
            (_, [name]) => self.limiter.check(name, key),
            _ => self.limiter.check_all(names.iter().copied(), key),
        };
        if let Some(cost) = &step.cost {
            check = check.cost(cost.as_u64()?);
        }
        if let Some(id) = &step.id {
            check = check.request_id(id.bytes());
        }
        Some(match self.limits(step) {
            Some(limits) => check.limits(limits),
            None => check,
        })
    }

    /// The limits to give at the call: the step's own, else what the rule has become since the limiter was made.
    fn limits<'s>(&'s self, step: &'s Step) -> Option<&'s str> {
        step.limits.as_deref().or_else(|| {
            let names = step.rule.as_ref().expect("which rule").names();
            let changed =
                |name: &&str| self.rules.contains_key(*name) && self.rules.get(*name) != self.made_with.get(*name);
            let name = names.iter().copied().find(changed)?;
            assert_eq!(names.len(), 1, "a changed rule is asked alone, so that memory can play it");
            Some(self.rules[name].as_str().expect("a changed rule is text, so that memory can play it"))
        })
    }

    fn refund(&mut self, step: &Step) -> Outcome {
        let name = step.receipt.as_ref().expect("which receipt");
        let answer = self.limiter.refund(&self.receipts[name]).wait();
        let may_write = matches!(answer, Ok(true));
        Outcome { may_write, ..answered(answer, |refunded| json!({"refunded": refunded})) }
    }

    fn reset(&mut self, step: &Step) -> Outcome {
        let (names, key) = (step.rule.as_ref().expect("which rule").names(), key(step));
        let pending = match self.limits(step) {
            Some(limits) => self.limiter.reset_with_limits(names[0], key, limits),
            None => self.limiter.reset(names[0], key),
        };
        answered(pending.wait(), |()| Value::Null)
    }

    fn count(&mut self, step: &Step) -> Outcome {
        let names = step.rule.as_ref().expect("which rule").names();
        let window = Duration::from_micros(step.window_us.expect("how long"));
        let (count, n) = (self.limiter.count(names[0], key(step), window), step.n.expect("how many"));
        let answer = if n < 0 {
            let start = self.start.checked_add_signed(step.start_us.expect("of which window")).expect("a time");
            count.take_back(n.unsigned_abs(), start).wait()
        } else {
            count.add(n.unsigned_abs()).wait()
        };
        let (may_write, start) = (n != 0 && answer.is_ok(), self.start);
        Outcome { may_write, ..answered(answer, |counted| of_count(&counted, start)) }
    }

    /// Configures anew, as another process would; the state stays.
    fn configure(&mut self, step: &Step) -> Outcome {
        self.rules.extend(step.rules.clone().expect("which rules"));
        if self.stage.kind != Kind::Memory {
            self.made_with.clone_from(&self.rules);
            self.limiter = self.stage.limiter(&self.rules, &Map::new()).expect("the rules of a case can be meant");
        }
        Outcome { found: Value::Null, may_write: false }
    }
}

/// An answer, or the code of an error. An error writes nothing.
fn answered<T>(answer: Result<T, Error>, found: impl FnOnce(T) -> Value) -> Outcome {
    match answer {
        Ok(answer) => Outcome { found: found(answer), may_write: true },
        Err(error) => Outcome { found: of_error(&error), may_write: false },
    }
}

fn key(step: &Step) -> &str {
    step.key.as_deref().expect("whose key")
}

fn stored(step: &Step) -> &str {
    step.stored.as_deref().expect("which stored key")
}

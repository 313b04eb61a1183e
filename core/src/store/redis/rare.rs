//! What is asked seldom, each call by itself: to give back, to count, to forget, to read a log.

use std::sync::Arc;
use std::time::Instant;

use super::script::{self, Request};
use super::{Owed, RedisStore, is_halfway, slot};
use crate::algorithm::{Logged, Step, Tally};
use crate::error::Result;
use crate::key::{Subject, Suffix};
use crate::receipt::Receipt;
use crate::rule::BoundLimit;

impl RedisStore {
    pub(crate) fn refund(self: &Arc<Self>, receipt: &Receipt, rates: &[u32], deadline: Instant) -> Result<Owed<bool>> {
        let (request, subject) = (Request::refund(receipt, rates), receipt.subject.clone());
        let store = Arc::clone(self);
        // Before and after: a refusal that comes meanwhile may be of either time.
        self.denied.forget(&subject);
        self.owe(deadline, async move {
            let reply = store.run(request, deadline, false, None).await;
            store.denied.forget(&subject);
            script::refunded(&reply?)
        })
    }

    pub(crate) fn count(
        self: &Arc<Self>,
        suffix: &Suffix,
        window_ms: u64,
        subject: &Subject,
        step: Step,
        deadline: Instant,
    ) -> Result<Owed<Tally>> {
        let request = Request::count(format!("{}{suffix}", subject.base(&self.prefix)), window_ms, step, self.lease());
        let store = Arc::clone(self);
        self.owe(deadline, async move { script::tally(&store.run(request, deadline, false, None).await?) })
    }

    pub(crate) fn reset(
        self: &Arc<Self>,
        limits: &[Arc<BoundLimit>],
        subject: &Subject,
        deadline: Instant,
    ) -> Result<Owed<()>> {
        let base = subject.base(&self.prefix);
        let suffixes = limits.iter().flat_map(|limit| [limit.suffix.text(), limit.count_suffix.text()]);
        let keys: Vec<String> = suffixes.map(|suffix| format!("{base}{suffix}")).collect();
        let (store, subject) = (Arc::clone(self), subject.clone());
        self.denied.forget(&subject);
        self.owe(deadline, async move {
            let outcome = store.delete(&keys, deadline).await;
            store.denied.forget(&subject);
            outcome
        })
    }

    /// Deletes keys of one slot, together; one by one where the slot is halfway to another node.
    async fn delete(self: &Arc<Self>, keys: &[String], deadline: Instant) -> Result<()> {
        let slot = slot::of(keys[0].as_bytes());
        let delete = |keys: &[String]| {
            let mut command = redis::cmd("DEL");
            command.arg(keys);
            command
        };
        match self.send(slot, deadline, false, None, |_| delete(keys)).await {
            Err(error) if is_halfway(&error) => {}
            outcome => return outcome.map(drop),
        }
        for key in keys.chunks(1) {
            self.send(slot, deadline, false, None, |_| delete(key)).await?;
        }
        Ok(())
    }

    /// What a log keeps: time, id and units, the oldest first; the newest thousand units.
    pub(crate) fn log(
        self: &Arc<Self>,
        suffix: &Suffix,
        subject: &Subject,
        deadline: Instant,
    ) -> Result<Owed<Vec<Logged>>> {
        let key = format!("{}{suffix}", subject.base(&self.prefix));
        let store = Arc::clone(self);
        self.owe(deadline, async move {
            let mut command = redis::cmd("ZRANGE");
            command.arg(&key).arg("-1000").arg("-1").arg("WITHSCORES");
            let reply = store.send(slot::of(key.as_bytes()), deadline, false, None, |_| command.clone()).await?;
            let members: Vec<(Vec<u8>, u64)> =
                redis::from_redis_value(reply).map_err(|_| script::corrupt(key.as_bytes()))?;
            Ok(script::requests(members))
        })
    }
}

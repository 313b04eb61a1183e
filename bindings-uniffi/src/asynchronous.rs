//! The same limiter and policy for callers that await. Their futures run wherever they are polled.

use crate::args::{Key, Options, duration};
use crate::decision::Decision;
use crate::limiter::{Counted, Open, Result, acquire, check, count, refund, reset};
use crate::policy::{Admission, OpenPolicy, Told, request};

/// A `Limiter`, awaited. A call that is called off gives back what it charged.
#[derive(Debug, uniffi::Object)]
pub struct AsyncLimiter(pub(crate) Open);

#[uniffi::export]
impl AsyncLimiter {
    /// As the `check` of a `Limiter`.
    pub async fn check(&self, rules: Vec<String>, key: Key, options: Options) -> Result<Decision> {
        let pending = check(&self.0.get()?, false, &rules, key, options)?.into_future();
        Ok(Decision::from(&pending.await?))
    }

    /// As the `peek` of a `Limiter`.
    pub async fn peek(&self, rules: Vec<String>, key: Key, options: Options) -> Result<Decision> {
        let pending = check(&self.0.get()?, true, &rules, key, options)?.into_future();
        Ok(Decision::from(&pending.await?))
    }

    /// Waits in line until the request may pass, at most so long: then the decision is a refusal.
    pub async fn acquire(&self, rule: String, key: Key, options: Options, timeout_ms: i64) -> Result<Decision> {
        let pending = acquire(&self.0.get()?, &rule, key, options, timeout_ms)?;
        Ok(Decision::from(&pending.await?))
    }

    /// As the `refund` of a `Limiter`.
    pub async fn refund(&self, receipt: String) -> Result<bool> {
        match refund(&self.0.get()?, &receipt)? {
            None => Ok(false),
            Some(pending) => Ok(pending.await?),
        }
    }

    /// As the `reset` of a `Limiter`.
    pub async fn reset(&self, rule: String, key: Key, limits: Option<String>) -> Result<()> {
        let pending = reset(&self.0.get()?, &rule, key, limits);
        Ok(pending.await?)
    }

    /// As the `count` of a `Limiter`.
    pub async fn count(&self, rule: String, key: Key, window_ms: i64, add: i64) -> Result<Counted> {
        let pending = count(&self.0.get()?, &rule, key, window_ms, add, None)?;
        Ok(pending.await?.into())
    }

    /// As the `take_back` of a `Limiter`.
    pub async fn take_back(&self, rule: String, key: Key, window_ms: i64, units: i64, start: i64) -> Result<Counted> {
        let pending = count(&self.0.get()?, &rule, key, window_ms, units, Some(start))?;
        Ok(pending.await?.into())
    }

    /// As the `ready` of a `Limiter`.
    pub async fn ready(&self, timeout_ms: i64) -> Result<()> {
        let pending = self.0.get()?.ready(duration(timeout_ms)?);
        Ok(pending.await?)
    }
}

/// A `Policy`, awaited.
#[derive(Debug, uniffi::Object)]
pub struct AsyncPolicy(pub(crate) OpenPolicy);

#[uniffi::export]
impl AsyncPolicy {
    /// As the `admit` of a `Policy`.
    pub async fn admit(&self, method: String, path: String, told: Told) -> Result<Admission> {
        let pending = request(&self.0.get()?, &method, &path, told)?.admit();
        Ok(Admission::of(pending.await?))
    }

    /// As the `ready` of a `Policy`.
    pub async fn ready(&self, timeout_ms: i64) -> Result<()> {
        let pending = self.0.get()?.ready(duration(timeout_ms)?);
        Ok(pending.await?)
    }
}

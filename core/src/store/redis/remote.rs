//! A limiter's store on servers, in each process of a line of forks one of its own.

use std::sync::Arc;

use super::{Config, RedisStore};
use crate::error::Result;
use crate::fork::PerProcess;

#[derive(Debug)]
pub(crate) struct Remote {
    config: Box<Config>,
    /// A child connects when it first asks, and never touches its parent's connections.
    stores: PerProcess<Arc<RedisStore>>,
}

impl Remote {
    /// Opens the store in this process.
    pub(crate) fn open(config: Config) -> Result<Remote> {
        let stores = PerProcess::new(RedisStore::open(&config)?);
        Ok(Remote { config: Box::new(config), stores })
    }

    /// This process's store, if it was opened.
    pub(crate) fn opened(&self) -> Option<&Arc<RedisStore>> {
        self.stores.made()
    }

    /// This process's store.
    ///
    /// # Errors
    /// `store_unavailable` if a forked child's I/O thread cannot be started.
    #[inline(always)]
    pub(crate) fn store(&self) -> Result<&Arc<RedisStore>> {
        self.stores.get_or_try(|| RedisStore::open(&self.config))
    }
}

//! A small bounded cache.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// Keeps what was made, up to a bound; when it is full, it starts anew. Good for few things that are made again and
/// again, and harmless for many that are not.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    entries: Mutex<HashMap<K, V>>,
    bound: usize,
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) fn new(bound: usize) -> Cache<K, V> {
        Cache { entries: Mutex::default(), bound }
    }

    /// # Errors
    /// What `make` says; errors are not kept.
    pub(crate) fn get_or_make<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.entries().get(&key) {
            return Ok(value.clone());
        }
        let value = make()?;
        let mut entries = self.entries();
        if entries.len() >= self.bound {
            entries.clear();
        }
        entries.insert(key, value.clone());
        Ok(value)
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

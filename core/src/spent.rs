//! Receipts that were refunded: the first refund spends one within this process, copies included.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::{LazyLock, Mutex, PoisonError};

use hashbrown::DefaultHashBuilder;

use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;
use crate::receipt::Receipt;

/// How many spent receipts are remembered, 16 bytes each; the oldest is forgotten first.
const REMEMBERED: usize = 65_536;

/// The process's: a copy of a receipt may be refunded through another limiter.
pub(crate) fn spent() -> &'static Spent {
    static SPENT: PerProcess<LazyLock<Spent>> = PerProcess::first(LazyLock::new(Spent::default));
    SPENT.get(|| LazyLock::new(Spent::default))
}

#[derive(Debug, Default)]
pub(crate) struct Spent {
    hasher: DefaultHashBuilder,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    marks: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Spent {
    /// # Errors
    /// `invalid_receipt` if the receipt was spent before.
    pub(crate) fn spend(&self, receipt: &Receipt) -> Result<()> {
        let mark = self.mark(receipt);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.marks.insert(mark) {
            return Err(Error::new(ErrorKind::InvalidReceipt, "the receipt was refunded already; refund each once"));
        }
        seen.order.push_back(mark);
        if seen.order.len() > REMEMBERED
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.marks.remove(&oldest);
        }
        Ok(())
    }

    /// A receipt is known by its random number, and by what it charged.
    fn mark(&self, receipt: &Receipt) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        receipt.nonce.hash(&mut hasher);
        receipt.subject.hash(&mut hasher);
        for charge in &receipt.charges {
            (charge.at, charge.units, charge.suffix.text()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

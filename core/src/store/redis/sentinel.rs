//! The sentinels: who is the primary now.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;

use super::Options;
use super::address::{Address, Addresses};
use super::connect::Access;
use super::failure::{Failure, refused, unavailable};
use super::node::Node;
use crate::clock;
use crate::error::{Error, Result};

/// How long one sentinel may take, before the next is asked.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Sentinels {
    /// Under which they know the primary.
    name: String,
    /// The one that answered last is the first.
    nodes: Mutex<VecDeque<Arc<Node>>>,
}

impl Sentinels {
    pub(super) fn new(name: String, addresses: &[Address], access: Access, options: Options) -> Sentinels {
        let access = Arc::new(access);
        let node = |address: &Address| Node::new(address.clone(), Arc::clone(&access), options);
        Sentinels { name, nodes: Mutex::new(addresses.iter().map(node).collect()) }
    }

    /// The primary as the first sentinel that answers sees it: the address that it announces, mapped.
    ///
    /// # Errors
    /// That they do not know the name, or why the last of them did not answer.
    pub(super) async fn primary(&self, addresses: &Addresses) -> Result<Address> {
        let mut failed = unavailable("the url has no sentinels");
        let mut unknown = None;
        let count = self.nodes().len();
        for _ in 0..count {
            let Some(sentinel) = self.nodes().front().cloned() else { break };
            match self.ask(&sentinel).await {
                Ok(Some((host, port))) => return Ok(addresses.reached(host, port)),
                Ok(None) => unknown = Some(self.unknown(&sentinel)),
                Err(error) => failed = error,
            }
            self.doubt();
        }
        Err(unknown.unwrap_or(failed))
    }

    /// Asks another first from now on: this one did not answer, or what it said was not so.
    pub(super) fn doubt(&self) {
        self.nodes().rotate_left(1);
    }

    /// What one sentinel says; nothing if it does not know the name.
    async fn ask(&self, sentinel: &Arc<Node>) -> Result<Option<(String, u16)>> {
        let deadline = clock::instant() + ANSWER_WITHIN;
        let link = sentinel.link(deadline).await.map_err(with_advice)?;
        if !link.sentinel {
            let message = format!("{} is no sentinel; write redis:// or redis+cluster://", sentinel.address);
            return Err(refused(&message));
        }
        let (number, mut command) = (link.number, redis::cmd("SENTINEL"));
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        match tokio::time::timeout_at(deadline.into(), sentinel.send(link, &command, false)).await {
            Err(_) => {
                sentinel.drop_link(number);
                Err(unavailable(&format!("the sentinel {} did not answer", sentinel.address)))
            }
            Ok(Ok(Value::Nil)) => Ok(None),
            Ok(Ok(reply)) => match redis::from_redis_value::<(String, u16)>(reply) {
                Ok(named) => Ok(Some(named)),
                Err(_) => Err(unavailable(&format!("the sentinel {} named no address", sentinel.address))),
            },
            Ok(Err(Failure::Lost(error) | Failure::Refused(error))) => Err(with_advice(error)),
            Ok(Err(_)) => Err(unavailable(&format!("the sentinel {} answered with a redirect", sentinel.address))),
        }
    }

    fn unknown(&self, sentinel: &Node) -> Error {
        unavailable(&format!(
            "the sentinels do not know {:?}; write the name of their `sentinel monitor` behind them in the url \
             (asked {})",
            self.name, sentinel.address
        ))
    }

    fn nodes(&self) -> MutexGuard<'_, VecDeque<Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says which login it is that a sentinel refused.
fn with_advice(error: Error) -> Error {
    let refused = error.message().contains("refused the login");
    let login = if refused { " (its username and password go into [store.sentinel])" } else { "" };
    error.within(format_args!("asking a sentinel{login}"))
}

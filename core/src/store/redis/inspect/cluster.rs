//! The cluster as one of its nodes tells it.

use std::ops::RangeInclusive;

use redis::Value;

use super::super::address::{Address, Addresses};
use super::super::failure::unavailable;
use super::super::topology::announced;
use super::visit::Visit;
use super::{Places, Slots, field, text};
use crate::error::Result;
use crate::inspection::{ClusterInspection, Place, ShardInspection};

pub(super) async fn read(
    visit: &mut Visit,
    in_url: bool,
    addresses: &Addresses,
) -> Result<(ClusterInspection, Places)> {
    let slots = visit.ask(redis::cmd("CLUSTER").arg("SLOTS")).await?;
    let shards =
        shards(&slots, &visit.address, addresses).ok_or_else(|| unavailable("it told slots that make no sense"))?;
    let info = visit.ask(redis::cmd("CLUSTER").arg("INFO")).await.and_then(|info| text(&info));
    let nodes = visit.ask(redis::cmd("CLUSTER").arg("NODES")).await.and_then(|nodes| text(&nodes));
    let cluster = ClusterInspection {
        told_by: visit.address.to_string(),
        in_url,
        state: info.map(|info| field(&info, "cluster_state").unwrap_or_default().to_owned()),
        failing: nodes.map(|nodes| failing(&nodes)),
        shards: shards.iter().map(Shard::inspection).collect(),
    };
    let primaries = shards.iter().map(|shard| (shard.primary.clone(), Place::Primary, shard.slots.clone()));
    let replicas = shards.iter().flat_map(|shard| &shard.replicas);
    let replicas = replicas.map(|replica| (replica.clone(), Place::Replica, Slots::new()));
    Ok((cluster, primaries.chain(replicas).collect()))
}

struct Shard {
    primary: Address,
    replicas: Vec<Address>,
    slots: Slots,
}

impl Shard {
    fn inspection(&self) -> ShardInspection {
        ShardInspection {
            primary: self.primary.to_string(),
            replicas: self.replicas.iter().map(Address::to_string).collect(),
            slots: self.slots.iter().map(RangeInclusive::len).sum(),
        }
    }
}

/// CLUSTER SLOTS: ranges of slots, each with its primary first, then the replicas that are well and have data.
fn shards(reply: &Value, by: &Address, addresses: &Addresses) -> Option<Vec<Shard>> {
    let mut shards: Vec<Shard> = Vec::new();
    let Value::Array(ranges) = reply else { return None };
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(from), Value::Int(to), primary, replicas @ ..] = &range[..] else { return None };
        let slots = u16::try_from(*from).ok()?..=u16::try_from(*to).ok()?;
        let primary = address(primary, by, addresses)?;
        match shards.iter_mut().find(|shard| shard.primary == primary) {
            Some(shard) => shard.slots.push(slots),
            None => {
                let replicas = replicas.iter().map(|replica| address(replica, by, addresses)).collect::<Option<_>>()?;
                shards.push(Shard { primary, replicas, slots: vec![slots] });
            }
        }
    }
    Some(shards)
}

fn address(node: &Value, by: &Address, addresses: &Addresses) -> Option<Address> {
    let Value::Array(node) = node else { return None };
    let (host, port) = announced(node, by)?;
    Some(addresses.reached(host, port))
}

/// CLUSTER NODES: lines of `id ip:port@bus,name flags ...`.
fn failing(nodes: &str) -> Vec<String> {
    let failing = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (address, flags) = (words.next()?, words.next()?);
        let fails = flags.split(',').any(|flag| flag == "fail" || flag == "fail?");
        fails.then(|| address.split(['@', ',']).next().unwrap_or(address).to_owned())
    };
    nodes.lines().filter_map(failing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_nodes_are_told_by_their_flags() {
        let nodes = "a1 127.0.0.1:7000@17000,host master,fail - 1 2 3 connected 0-5\n\
                     a2 127.0.0.1:7001@17001 slave,fail? a1 1 2 3 connected\n\
                     a3 127.0.0.1:7002@17002 myself,master,nofailover - 1 2 3 connected 6-9\n";
        assert_eq!(failing(nodes), ["127.0.0.1:7000", "127.0.0.1:7001"]);
    }

    #[test]
    fn a_primary_of_several_ranges_is_one_shard() {
        let node = |host: &str, port| Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        let range = |from, to, nodes: &[Value]| Value::Array([&[Value::Int(from), Value::Int(to)], nodes].concat());
        let (first, second) = (node("", 7000), node("b", 7001));
        let reply = Value::Array(vec![
            range(0, 9, &[first.clone(), second.clone()]),
            range(20, 29, &[first]),
            range(10, 19, &[second]),
        ]);
        let by = Address::Tcp { host: "seed".into(), port: 1 };
        let shards = shards(&reply, &by, &Addresses::default()).expect("it makes sense");
        let shards: Vec<_> = shards.iter().map(Shard::inspection).collect();
        let shard = |primary: &str, replicas: &[&str], slots| ShardInspection {
            primary: primary.into(),
            replicas: replicas.iter().map(|replica| (*replica).to_owned()).collect(),
            slots,
        };
        assert_eq!(shards, [shard("seed:7000", &["b:7001"], 20), shard("b:7001", &[], 10)]);
        assert!(super::shards(&Value::Int(1), &by, &Addresses::default()).is_none());
    }
}

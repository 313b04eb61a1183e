//! The same for programs: one line, with what was found and what it means. docs/doctor.md lists its fields.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::{ClusterInspection, Inspection, NodeInspection, Result, ServerInspection};

use super::findings::{Finding, Level};

/// Counted up when a field or a code goes or means something else; new ones do not change it.
const VERSION: u32 = 1;

pub(super) fn report(inspection: &Inspection, findings: &[Finding]) -> Value {
    let count = |level| findings.iter().filter(|finding| finding.level() == level).count();
    json!({
        "version": VERSION,
        "ok": count(Level::Problem) == 0,
        "problems": count(Level::Problem),
        "warnings": count(Level::Warning),
        "prefix": inspection.prefix,
        "deadline_ms": millis(inspection.deadline),
        "cluster": inspection.cluster.as_ref().and_then(|cluster| cluster.as_ref().ok()).map(of_cluster),
        "nodes": inspection.nodes.iter().map(of_node).collect::<Vec<_>>(),
        "findings": findings.iter().map(of_finding).collect::<Vec<_>>(),
    })
}

fn of_cluster(cluster: &ClusterInspection) -> Value {
    let shards = cluster
        .shards
        .iter()
        .map(|shard| json!({ "primary": shard.primary, "replicas": shard.replicas, "slots": shard.slots }));
    json!({
        "state": known(&cluster.state),
        "failing": known(&cluster.failing),
        "slots": cluster.shards.iter().map(|shard| shard.slots).sum::<usize>(),
        "shards": shards.collect::<Vec<_>>(),
    })
}

fn of_node(node: &NodeInspection) -> Value {
    let mut fields = json!({
        "address": node.address,
        "place": node.place.name(),
        "reached": node.server.is_ok(),
    });
    match &node.server {
        Ok(server) => of_server(server, &mut fields),
        Err(error) => fields["error"] = json!({ "code": error.code(), "message": error.message() }),
    }
    fields
}

/// What is not known is null.
fn of_server(server: &ServerInspection, fields: &mut Value) {
    let (memory, clock, trip) =
        (server.memory.as_ref().ok(), server.clock.as_ref().ok(), server.round_trip.as_ref().ok());
    fields["server"] = server.name.as_str().into();
    fields["version"] = server.version.as_str().into();
    fields["role"] = if server.is_replica { "replica" } else { "primary" }.into();
    fields["user"] = server.user.as_str().into();
    fields["lacks"] = known(&server.lacks);
    fields["checks"] = server.check.as_ref().map(Result::is_ok).into();
    fields["maxmemory_policy"] = memory.map(|memory| memory.policy.as_str()).into();
    fields["maxmemory"] = memory.map(|memory| memory.max).into();
    fields["used_memory"] = memory.and_then(|memory| memory.used).into();
    fields["clock_ahead_us"] = clock.map(|clock| clock.ahead).into();
    fields["clock_within_us"] = clock.map(|clock| micros(clock.within)).into();
    fields["round_trip_median_us"] = trip.map(|trip| micros(trip.median)).into();
    fields["round_trip_worst_us"] = trip.map(|trip| micros(trip.worst)).into();
    fields["batches_across_slots"] = server.batch.as_ref().map(Result::is_ok).into();
}

fn of_finding(finding: &Finding) -> Value {
    json!({
        "code": finding.code.name(),
        "level": finding.level().name(),
        "subject": finding.code.subject(),
        "text": finding.text,
        "advice": finding.advice,
        "nodes": finding.nodes,
    })
}

fn known<T: Clone + Into<Value>>(fact: &Result<T>) -> Value {
    fact.as_ref().map_or(Value::Null, |fact| fact.clone().into())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

//! What the facts mean: of the store as a whole, and of each node where it is about one.

use std::time::Duration;

use tidegate::{ClusterInspection, Error, Inspection, NodeInspection, Place, Result, ServerInspection};

use super::code::Code;
use super::findings::{Finding, merged};
use super::nodes;
use crate::failure;
use crate::words::count;

/// Clocks that are further apart are worth a warning: so much a window may be wrong after a failover.
const APART: Duration = Duration::from_millis(50);
const SLOTS: usize = 16_384;

pub(super) fn findings(inspection: &Inspection) -> Vec<Finding> {
    let servers: Vec<(&NodeInspection, &ServerInspection)> =
        inspection.nodes.iter().filter_map(|node| Some((node, node.server.as_ref().ok()?))).collect();
    let mut findings = connections(inspection, &servers);
    findings.extend(versions(&servers));
    if let Some(cluster) = &inspection.cluster {
        findings.extend(of_cluster(cluster, inspection));
    }
    findings.extend(merged(servers.iter().filter_map(|(node, server)| nodes::role(node, server))));
    findings.extend(merged(servers.iter().map(|(node, server)| nodes::user(node, server))));
    findings.extend(merged(servers.iter().filter_map(|(node, server)| nodes::check(node, server))));
    findings.extend(merged(servers.iter().map(|(node, server)| nodes::memory(node, server))));
    findings.extend(merged(servers.iter().filter_map(|(node, server)| nodes::room(node, server))));
    findings.extend(clocks(&servers));
    findings.extend(round_trips(inspection.deadline, &servers));
    findings.extend(batches(inspection, &servers));
    findings
}

fn connections(inspection: &Inspection, servers: &[(&NodeInspection, &ServerInspection)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let [(node, _)] = servers {
        findings
            .push(Finding::new(Code::Reached, format!("{} reached, and logged in", node.address)).at(&node.address));
    } else if !servers.is_empty() {
        let text = format!("{} nodes reached, and logged in", servers.len());
        let nodes = servers.iter().map(|(node, _)| node.address.clone()).collect();
        findings.push(Finding { nodes, ..Finding::new(Code::Reached, text) });
    }
    for node in &inspection.nodes {
        let Err(error) = &node.server else { continue };
        let text = error.message();
        let finding = match node.place {
            Place::Seed => {
                Finding::new(Code::SeedUnreached, format!("{text}; the url names it, and the cluster does not"))
                    .advice("correct the url: each address that leads nowhere costs time at a start")
            }
            Place::Replica => {
                Finding::new(Code::ReplicaUnreached, format!("{text}; it is a replica, and may be needed soon"))
                    .advice(unreached(error, inspection))
            }
            _ => Finding::new(Code::Unreached, text).advice(unreached(error, inspection)),
        };
        findings.push(finding.at(&node.address));
    }
    findings
}

/// What to do about a node that cannot be used at all.
fn unreached(error: &Error, inspection: &Inspection) -> String {
    let said = |words| error.message().contains(words);
    if error.kind() == tidegate::ErrorKind::UnsupportedServer {
        "install Redis 7.0 or Valkey 7.2, or a later one".to_owned()
    } else if said("login") {
        "correct username and password in the url or under [store]; on the server, ACL LIST and ACL LOG tell more"
            .to_owned()
    } else if said("TLS") || said("database") {
        "correct the url, or the document's [store]".to_owned()
    } else if inspection.cluster.is_some() {
        "start the server; if it runs, it must be reachable from here by the address that it announces \
         (cluster-announce-ip, cluster-announce-hostname)"
            .to_owned()
    } else {
        failure::advice(error.kind()).unwrap_or("look at the server's log").to_owned()
    }
}

fn versions(servers: &[(&NodeInspection, &ServerInspection)]) -> Vec<Finding> {
    let named = |server: &ServerInspection| {
        let name = match &server.name[..] {
            "redis" => "Redis",
            "valkey" => "Valkey",
            other => other,
        };
        format!("{name} {}", server.version)
    };
    let all = servers.iter().map(|(node, server)| Finding::new(Code::Version, named(server)).at(&node.address));
    let mut versions = merged(all);
    if versions.len() > 1 {
        let all: Vec<&str> = versions.iter().map(|finding| &finding.text[..]).collect();
        let text = format!("the nodes' versions differ: {}", all.join(", "));
        let advice = "finish the upgrade: after a failover the other version decides";
        versions.push(Finding::new(Code::VersionsDiffer, text).advice(advice));
    }
    versions
}

fn of_cluster(cluster: &Result<ClusterInspection>, inspection: &Inspection) -> Vec<Finding> {
    let cluster = match cluster {
        Ok(cluster) => cluster,
        Err(error) => return vec![Finding::new(Code::ClusterUnknown, error.message())],
    };
    let mut findings = Vec::new();
    let covered: usize = cluster.shards.iter().map(|shard| shard.slots).sum();
    let replicas: usize = cluster.shards.iter().map(|shard| shard.replicas.len()).sum();
    let told_by = &cluster.told_by;
    if covered < SLOTS {
        let text = format!("{} of {} slots have no node", count((SLOTS - covered) as u64), count(SLOTS as u64));
        let advice = format!("redis-cli --cluster check {told_by}, and then --cluster fix {told_by}");
        findings.push(Finding::new(Code::SlotsUncovered, text).advice(advice));
    }
    match &cluster.state {
        Ok(state) if state == "ok" => {}
        Ok(state) => findings.push(
            Finding::new(Code::ClusterDown, format!("cluster_state is {state}: calls are refused"))
                .advice("bring the failing nodes back, or type CLUSTER FAILOVER TAKEOVER on a replica of each"),
        ),
        Err(error) => findings.push(untold(error, inspection)),
    }
    match &cluster.failing {
        Ok(failing) => findings.extend(failing.iter().map(|node| fails(node, cluster))),
        Err(error) => findings.push(untold(error, inspection)),
    }
    let bare = cluster.shards.iter().filter(|shard| shard.replicas.is_empty());
    findings.extend(merged(bare.map(|shard| {
        Finding::new(
            Code::NoReplica,
            "no replica is ready to take over from a primary: if that fails, its slots are gone",
        )
        .advice(format!("redis-cli --cluster add-node HOST:PORT {told_by} --cluster-slave"))
        .at(&shard.primary)
    })));
    if !cluster.in_url {
        let nodes: Vec<&str> = cluster.shards.iter().take(3).map(|shard| &shard.primary[..]).collect();
        findings.push(
            Finding::new(
                Code::ClusterNotInUrl,
                "the url names one server, and it is a node of a cluster: used as a cluster",
            )
            .advice(format!(
                "redis+cluster://{} (rediss+cluster:// with TLS), so that a start does not need this one node",
                nodes.join(",")
            )),
        );
    }
    let mut findings = merged(findings);
    if covered == SLOTS && cluster.state.as_ref().map_or(true, |state| state == "ok") {
        let text = format!("{} primaries and {replicas} replicas, all slots have a node", cluster.shards.len());
        findings.insert(0, Finding::new(Code::ClusterWhole, text));
    }
    findings
}

fn fails(node: &str, cluster: &ClusterInspection) -> Finding {
    let is_primary = cluster.shards.iter().any(|shard| shard.primary == node);
    let text = format!("the cluster says that {node} fails");
    if is_primary {
        let advice = "start it; or let a replica of it take over: CLUSTER FAILOVER TAKEOVER, typed on the replica";
        Finding::new(Code::PrimaryFails, text).advice(advice)
    } else {
        let advice = "start it; or have it forgotten: redis-cli --cluster call, with CLUSTER FORGET and its id";
        Finding::new(Code::NodeFails, text).advice(advice)
    }
    .at(node)
}

fn untold(error: &Error, inspection: &Inspection) -> Finding {
    let user = inspection.nodes.iter().find_map(|node| node.server.as_ref().ok()).map_or("USER", |server| &server.user);
    let why = nodes::untold(error, user);
    let finding =
        Finding::new(Code::ClusterStateUnknown, format!("its state, and which nodes fail, is not all known: {why}"));
    if nodes::is_forbidden(error) {
        finding.advice(format!("ACL SETUSER {user} +cluster|info +cluster|nodes"))
    } else {
        finding.advice("see it where every command is allowed, or ask whoever runs the cluster")
    }
}

fn clocks(servers: &[(&NodeInspection, &ServerInspection)]) -> Vec<Finding> {
    let mut findings = merged(servers.iter().filter_map(|(node, server)| {
        let error = server.clock.as_ref().err()?;
        Some(Finding::new(Code::ClockUnknown, format!("not known: {}", error.message())).at(&node.address))
    }));
    let known = || servers.iter().filter_map(|(node, server)| Some((node, server.clock.as_ref().ok()?)));
    let (Some(last), Some(first)) =
        (known().min_by_key(|(_, clock)| clock.ahead), known().max_by_key(|(_, clock)| clock.ahead))
    else {
        return findings;
    };
    let apart = Duration::from_micros(first.1.ahead.abs_diff(last.1.ahead));
    let within = first.1.within + last.1.within;
    let local = Duration::from_micros(first.1.ahead.unsigned_abs());
    let side = if first.1.ahead < 0 { "behind" } else { "ahead of" };
    if known().count() == 1 {
        let text = format!("{} {side} this machine's, which does not matter: the server's counts", millis(local));
        findings.push(Finding::new(Code::Clock, text));
    } else if apart.saturating_sub(within) > APART {
        let text = format!(
            "the nodes' clocks differ by {}: {} is ahead of {}. After a failover state is read by another clock, so \
             that windows end so much too early or too late",
            millis(apart),
            first.0.address,
            last.0.address
        );
        let advice = "see that chrony or ntpd runs on every node: chronyc tracking";
        findings.push(Finding::new(Code::ClocksDiffer, text).advice(advice).at(&first.0.address).at(&last.0.address));
    } else {
        let text = format!("{} clocks differ by {} at the most", known().count(), millis(apart));
        findings.push(Finding::new(Code::Clock, text));
    }
    findings
}

fn round_trips(deadline: Duration, servers: &[(&NodeInspection, &ServerInspection)]) -> Vec<Finding> {
    let mut findings = merged(servers.iter().filter_map(|(node, server)| {
        let error = server.round_trip.as_ref().err()?;
        Some(Finding::new(Code::RoundTripUnknown, error.message()).at(&node.address))
    }));
    let known = || servers.iter().filter_map(|(node, server)| Some((node, server.round_trip.as_ref().ok()?)));
    let Some((node, slowest)) = known().max_by_key(|(_, trip)| trip.median) else { return findings };
    let Some((_, longest)) = known().max_by_key(|(_, trip)| trip.worst) else { return findings };
    let (median, worst) = (slowest.median, longest.worst);
    let text = format!("median {}, worst {} of {}", millis(median), millis(worst), longest.count);
    if is_slow(median, deadline) {
        let text = format!("{text}: the median is more than half of the deadline, which is {}", millis(deadline));
        let advice = "redis-cli --latency, and SLOWLOG GET on the server, tell where the time goes; a longer deadline \
                      in [store] gives it more";
        findings.push(Finding::new(Code::RoundTripSlow, text).advice(advice).at(&node.address));
    } else {
        findings.push(Finding::new(Code::RoundTrip, text));
    }
    findings
}

/// By the median: one stall, here or there, is not how long calls take.
fn is_slow(median: Duration, deadline: Duration) -> bool {
    median > deadline / 2
}

fn batches(inspection: &Inspection, servers: &[(&NodeInspection, &ServerInspection)]) -> Vec<Finding> {
    if inspection.cluster.is_none() {
        let alone = (!servers.is_empty()).then(|| Finding::new(Code::Batches, "checks that queue leave together"));
        return alone.into_iter().collect();
    }
    if !inspection.batch_across_slots {
        return vec![Finding::new(
            Code::BatchesOff,
            "checks of several slots go one by one: batch_across_slots is false",
        )];
    }
    merged(servers.iter().filter_map(|(node, server)| {
        // What keeps checks from being decided is told already.
        server.check.as_ref()?.as_ref().ok()?;
        Some(
            match server.batch.as_ref()? {
                Ok(()) => Finding::new(Code::Batches, "checks of several slots leave together"),
                Err(error) => Finding::new(
                    Code::BatchesRefused,
                    format!("checks of several slots go one by one: {}", error.message()),
                )
                .advice("nothing is wrong, only slower; a proxy between here and the node may be the reason"),
            }
            .at(&node.address),
        )
    }))
}

/// `0.3 ms`; `1,234 ms` where tenths would only be noise.
fn millis(time: Duration) -> String {
    if time < Duration::from_millis(1) {
        return format!("{} us", time.as_micros());
    }
    let tenths = (time.as_micros() + 50) / 100;
    if tenths >= 1_000 {
        return format!("{} ms", count(u64::try_from(tenths / 10).unwrap_or(u64::MAX)));
    }
    format!("{}.{} ms", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_slow_whose_median_is_more_than_half_of_the_deadline() {
        let slow = [49, 50, 51].map(|median| is_slow(Duration::from_millis(median), Duration::from_millis(100)));
        assert_eq!(slow, [false, false, true]);
    }

    #[test]
    fn times_are_as_exact_as_they_are_small() {
        let told = [40, 999, 1_049, 1_050, 99_960, 1_234_567].map(|micros| millis(Duration::from_micros(micros)));
        assert_eq!(told, ["40 us", "999 us", "1.0 ms", "1.1 ms", "100 ms", "1,234 ms"]);
    }
}

//! A network of our own, in namespaces that end with the processes in them: a host for each node, and this process as the
//! router between them. Packets that are cut off vanish; nobody is told.

use std::process::{Command, Stdio};

use tidegate_tests::servers::Host;

/// The address of this process's own end of every wire.
const ROUTER: &str = "10.77.0.1";
/// What must be permitted: mounts, links, namespaces, forwarding, rules.
const PROBE: &str = "mount -t tmpfs tmpfs /run && ip link set lo up && ip netns add n && \
    ip link add v type veth peer name eth0 netns n && echo 1 >/proc/sys/net/ipv4/ip_forward && \
    ip rule add iif v blackhole priority 100 && nsenter --net=/run/netns/n true";

/// The words that run a command in namespaces of its own: as an ordinary user if that is permitted, else as root.
///
/// # Errors
/// Why neither is permitted.
pub(crate) fn enter() -> Result<Vec<&'static str>, String> {
    let mut why = Vec::new();
    for words in [&["unshare", "--user", "--map-root-user", "--net", "--mount"][..], &["unshare", "--net", "--mount"]] {
        let mut probe = Command::new(words[0]);
        match probe.args(&words[1..]).args(["sh", "-c", PROBE]).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(words.to_vec()),
            Ok(output) => why.push(String::from_utf8_lossy(&output.stderr).trim().replace('\n', ", ")),
            Err(error) => why.push(format!("unshare (of util-linux) cannot be run: {error}")),
        }
    }
    Err(why.join("; as root: "))
}

/// The network that has been made within this process's namespaces.
#[derive(Debug)]
pub(crate) struct Net(());

impl Net {
    /// # Panics
    /// If this process is not in namespaces of its own: see [`enter`].
    pub(crate) fn make() -> Net {
        sh("mount -t tmpfs tmpfs /run && ip link set lo up && echo 1 >/proc/sys/net/ipv4/ip_forward");
        for node in 0..6 {
            let (address, inside) = (address(node), inside(node));
            sh(&format!(
                "ip netns add n{node}
                ip link add v{node} type veth peer name eth0 netns n{node}
                ip addr add {ROUTER} peer {address} dev v{node}
                ip link set v{node} up
                {inside} ip link set lo up
                {inside} ip addr add {address} peer {ROUTER} dev eth0
                {inside} ip link set eth0 up
                {inside} ip route add default via {ROUTER}
                # Whoever asks where the host is would be told, in time, that it cannot be reached.
                mac=$({inside} ip -o link show eth0 | sed 's/.*ether \\([^ ]*\\).*/\\1/')
                ip neigh replace {address} lladdr $mac dev v{node} nud permanent"
            ));
        }
        Net(())
    }

    pub(crate) fn hosts() -> [Host; 6] {
        std::array::from_fn(|node| Host { address: address(node), enter: inside(node) })
    }

    /// Cuts a node off from everybody.
    pub(crate) fn cut_off(&self, node: usize) {
        sh(&format!("{} ip link set eth0 down", inside(node)));
    }

    /// Cuts a node off from the other nodes; clients still reach all.
    pub(crate) fn cut_from_nodes(&self, node: usize) {
        let others = (0..6).filter(|other| *other != node);
        let away =
            others.map(|other| format!("ip rule add iif v{other} to {} blackhole priority 100\n", address(node)));
        sh(&format!("ip rule add iif v{node} blackhole priority 100\n{}", away.collect::<String>()));
    }

    /// Puts a node back.
    pub(crate) fn heal(&self, node: usize) {
        let inside = inside(node);
        sh("while ip rule del priority 100 2>/dev/null; do :; done");
        sh(&format!("{inside} ip link set eth0 up && {inside} ip route replace default via {ROUTER}"));
    }
}

fn address(node: usize) -> String {
    format!("10.77.0.{}", 10 + node)
}

fn inside(node: usize) -> String {
    format!("nsenter --net=/run/netns/n{node}")
}

fn sh(script: &str) {
    let run = Command::new("sh").args(["-ec", script]).stdin(Stdio::null()).output().expect("every Unix has sh");
    assert!(run.status.success(), "{script}: {}", String::from_utf8_lossy(&run.stderr));
}

//! The kinds of findings. docs/doctor.md lists them: a program may rely on a code, its level and its subject.

use super::findings::Level;

macro_rules! codes {
    ($($code:ident: $level:ident, $subject:literal, $name:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Code {
            $($code,)*
        }

        impl Code {
            #[cfg(test)]
            pub(super) const ALL: &[Code] = &[$(Code::$code),*];

            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Code::$code => $name,)*
                }
            }

            pub(super) const fn level(self) -> Level {
                match self {
                    $(Code::$code => Level::$level,)*
                }
            }

            /// What it is about, in a word or two.
            pub(super) const fn subject(self) -> &'static str {
                match self {
                    $(Code::$code => $subject,)*
                }
            }
        }
    };
}

codes! {
    Reached: Ok, "connection", "reached";
    Unreached: Problem, "connection", "unreached";
    ReplicaUnreached: Warning, "connection", "replica_unreached";
    SeedUnreached: Warning, "connection", "seed_unreached";
    Version: Ok, "version", "version";
    VersionsDiffer: Warning, "version", "versions_differ";
    ClusterWhole: Ok, "cluster", "cluster_whole";
    ClusterUnknown: Problem, "cluster", "cluster_unknown";
    ClusterDown: Problem, "cluster", "cluster_down";
    ClusterStateUnknown: Note, "cluster", "cluster_state_unknown";
    ClusterNotInUrl: Note, "cluster", "cluster_not_in_url";
    SlotsUncovered: Problem, "cluster", "slots_uncovered";
    PrimaryFails: Problem, "cluster", "primary_fails";
    NodeFails: Warning, "cluster", "node_fails";
    NoReplica: Warning, "cluster", "no_replica";
    ReadOnlyReplica: Problem, "role", "read_only_replica";
    RoleDisagrees: Warning, "role", "role_disagrees";
    Permitted: Ok, "user", "permitted";
    PermissionsLacking: Problem, "user", "permissions_lacking";
    PermissionsUnknown: Problem, "user", "permissions_unknown";
    ChecksDecided: Ok, "checks", "checks_decided";
    ChecksNotDecided: Problem, "checks", "checks_not_decided";
    NoEviction: Ok, "memory", "no_eviction";
    Evicts: Warning, "memory", "evicts";
    EvictionUnknown: Note, "memory", "eviction_unknown";
    MemoryNearlyFull: Warning, "memory", "memory_nearly_full";
    Clock: Ok, "clock", "clock";
    ClocksDiffer: Warning, "clock", "clocks_differ";
    ClockUnknown: Note, "clock", "clock_unknown";
    RoundTrip: Ok, "round trip", "round_trip";
    RoundTripSlow: Warning, "round trip", "round_trip_slow";
    RoundTripUnknown: Problem, "round trip", "round_trip_unknown";
    Batches: Ok, "batches", "batches";
    BatchesOff: Note, "batches", "batches_off";
    BatchesRefused: Warning, "batches", "batches_refused";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_each_with_its_level_and_subject() {
        let page = include_str!("../../../docs/doctor.md");
        let (_, codes) = page.split_once("## Codes").expect("the page has a chapter of codes");
        let cells = |row: &'static str| row.split('|').map(str::trim).skip(1).take(3).collect::<Vec<_>>();
        let listed: Vec<_> = codes.lines().filter(|line| line.starts_with("| `")).map(cells).collect();
        let all = Code::ALL.iter().map(|code| (format!("`{}`", code.name()), code.level().name(), code.subject()));
        let all: Vec<_> = all.collect();
        assert_eq!(
            listed,
            all.iter().map(|(name, level, subject)| vec![&name[..], level, subject]).collect::<Vec<_>>()
        );
    }
}

//! What the facts of one node mean.

use tidegate::{Error, ErrorKind, NodeInspection, Place, ServerInspection};

use super::code::Code;
use super::findings::Finding;
use crate::words;

pub(super) fn role(node: &NodeInspection, server: &ServerInspection) -> Option<Finding> {
    let finding = match (node.place, server.is_replica) {
        (Place::Alone, true) => {
            let primary = server.primary.as_deref();
            let of = primary.map(|primary| format!(" of {primary}")).unwrap_or_default();
            let advice = format!("give the primary's address in the url: {}", primary.unwrap_or("HOST:PORT"));
            Finding::new(Code::ReadOnlyReplica, format!("it is a read-only replica{of}, and decides nothing"))
                .advice(advice)
        }
        (Place::Primary, true) => {
            Finding::new(Code::RoleDisagrees, "a primary by the cluster's map, and calls itself a replica")
                .advice("if a failover is under way, look again when it is over")
        }
        _ => return None,
    };
    Some(finding.at(&node.address))
}

pub(super) fn user(node: &NodeInspection, server: &ServerInspection) -> Finding {
    let user = words::shown(server.user.as_bytes(), 64);
    let finding = match &server.lacks {
        Ok(lacks) if lacks.is_empty() => Finding::new(Code::Permitted, format!("{user} is allowed all that is needed")),
        Ok(lacks) => {
            let lacks = lacks.join(" ");
            Finding::new(
                Code::PermissionsLacking,
                format!("{user} is not allowed all that is needed, and lacks {lacks}"),
            )
            .advice(format!("ACL SETUSER {user} {lacks}, and the same in the ACL file; the README has the whole line"))
        }
        Err(error) => {
            Finding::new(Code::PermissionsUnknown, format!("what {user} is allowed is not known: {}", error.message()))
        }
    };
    finding.at(&node.address)
}

/// Whether checks are decided. What is told of the role or the user already is not told again.
pub(super) fn check(node: &NodeInspection, server: &ServerInspection) -> Option<Finding> {
    let finding = match server.check.as_ref()? {
        Ok(()) => Finding::new(Code::ChecksDecided, "a check by each algorithm was decided, and taken back"),
        Err(_) if server.is_replica || server.lacks.as_ref().is_ok_and(|lacks| !lacks.is_empty()) => return None,
        Err(error) => Finding::new(Code::ChecksNotDecided, format!("a check was not decided: {}", error.message())),
    };
    Some(finding.at(&node.address))
}

pub(super) fn memory(node: &NodeInspection, server: &ServerInspection) -> Finding {
    let finding = match &server.memory {
        Ok(memory) if memory.policy == "noeviction" => Finding::new(Code::NoEviction, "maxmemory-policy is noeviction"),
        Ok(memory) => {
            let policy = words::shown(memory.policy.as_bytes(), 32);
            let yet = if memory.max == 0 { " (not yet: maxmemory is 0)" } else { "" };
            let text = format!(
                "maxmemory-policy is {policy}: a full server drops limits that are in use, and who was limited begins \
                 anew{yet}"
            );
            Finding::new(Code::Evicts, text)
                .advice("CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration file")
        }
        Err(error) => {
            let user = words::shown(server.user.as_bytes(), 64);
            let why = untold(error, &user);
            let text = format!("maxmemory-policy is not known: {why}. It should be noeviction");
            Finding::new(Code::EvictionUnknown, text).advice(if is_forbidden(error) {
                format!("ACL SETUSER {user} +info; or as an administrator CONFIG GET maxmemory-policy")
            } else {
                "see the server's configuration, or ask whoever runs it".to_owned()
            })
        }
    };
    finding.at(&node.address)
}

/// Why something is not known: in the server's words, unless they are about the user alone.
pub(super) fn untold(error: &Error, user: &str) -> String {
    if is_forbidden(error) { format!("{user} is not allowed to ask") } else { error.message().to_owned() }
}

/// Whether the ACL forbade it, and not a server that does not have the command, or has given it another name.
pub(super) fn is_forbidden(error: &Error) -> bool {
    error.kind() == ErrorKind::StoreRefused && error.message().contains("(NOPERM ")
}

/// A warning where memory is nearly used up.
pub(super) fn room(node: &NodeInspection, server: &ServerInspection) -> Option<Finding> {
    let memory = server.memory.as_ref().ok()?;
    let used = memory.used.filter(|used| memory.max > 0 && used / 9 >= memory.max / 10)?;
    let text = format!("{} of its maxmemory is used; a full server refuses checks", words::share(used, memory.max));
    Some(Finding::new(Code::MemoryNearlyFull, text).advice("raise maxmemory, or free some").at(&node.address))
}

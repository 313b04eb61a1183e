//! What a server's errors mean.

use redis::RedisError;

use crate::error::{Error, ErrorKind};

/// What came of sending a command.
#[derive(Debug)]
pub(super) enum Failure {
    /// The node has never seen the script: it did not run, and may be sent again.
    UnknownScript,
    /// The slot lives elsewhere now: the same.
    Moved(String),
    /// This key lives elsewhere while its slot moves: the same, this once.
    Ask(String),
    /// The connection ended, and whether the command ran is unknown.
    Lost(Error),
    /// The server said no.
    Refused(Error),
}

pub(super) fn of(error: &RedisError) -> Failure {
    let code = error.code();
    match code {
        Some("NOSCRIPT") => Failure::UnknownScript,
        Some("MOVED") => redirect(error).map_or_else(|| Failure::Refused(named(error)), Failure::Moved),
        Some("ASK") => redirect(error).map_or_else(|| Failure::Refused(named(error)), Failure::Ask),
        None => Failure::Lost(unavailable(&error.to_string())),
        Some(_) => Failure::Refused(named(error)),
    }
}

/// The address that a redirect names.
fn redirect(error: &RedisError) -> Option<String> {
    error.redirect_node().map(|(address, _slot)| address.to_owned())
}

fn named(error: &RedisError) -> Error {
    let text = format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    of_text(text.trim())
}

/// An error by the words that the server used.
pub(super) fn of_text(text: &str) -> Error {
    let advice = match text.split(' ').next().unwrap_or_default() {
        "LOADING" => "the server is still loading its data",
        "READONLY" => "the server is a read-only replica; give the primary's address",
        "CLUSTERDOWN" | "MASTERDOWN" | "UNKILLABLE" | "BUSY" => "the server is not ready",
        "NOAUTH" | "WRONGPASS" => "the server refused the login; check username and password",
        "OOM" => {
            return advised(text, "the server is out of memory and takes no writes; raise its maxmemory, or free some");
        }
        "ERR" if text.contains("cluster support disabled") => {
            return advised(text, "the server is no node of a cluster; write redis:// instead of redis+cluster://");
        }
        "NOPERM" => return advised(text, "the user's ACL forbids it; the README has the one that Tidegate needs"),
        "WRONGTYPE" => return Error::new(ErrorKind::CorruptState, text),
        // The node is well, and its breaker must not count this.
        "TRYAGAIN" => return advised(text, "the slot is moving; try again"),
        _ if text.contains("non local key") => return advised(text, "the slot is moving; try again"),
        _ => return advised(text, "the server refused the call"),
    };
    unavailable(&format!("{advice} ({text})"))
}

pub(super) fn unavailable(message: &str) -> Error {
    Error::new(ErrorKind::StoreUnavailable, message)
}

pub(super) fn refused(message: &str) -> Error {
    Error::new(ErrorKind::StoreRefused, message)
}

fn advised(text: &str, advice: &str) -> Error {
    refused(&format!("{advice} ({text})"))
}

//! What a user must be allowed. Each permission is tried by a command of its own that changes nothing: the ACL is asked
//! first, so whatever else a server has against it shows that it is allowed.

use redis::{Cmd, RedisError, Value};

use super::visit::Visit;
use crate::error::Result;
use crate::key::Subject;

/// The least, in the words of the README's ACL, each with a harmless command that needs it; `?` is a key.
///
/// The key is a text with a TTL, made by the first of them, so that no other command can add to it.
const LEAST: [(&str, &str); 27] = [
    ("+set", "SET ? doctor PX 10000"),
    ("+psetex", "PSETEX ? 10000 doctor"),
    ("+rpush", "RPUSH ? doctor"),
    ("+evalsha", "EVALSHA 0000000000000000000000000000000000000000 0"),
    ("+eval", "EVAL return 0"),
    ("+time", "TIME"),
    ("+get", "GET ?"),
    ("+pexpire", "PEXPIRE ? 10000"),
    ("+lindex", "LINDEX ? 0"),
    ("+llen", "LLEN ?"),
    ("+lrange", "LRANGE ? 0 0"),
    ("+lset", "LSET ? 0 doctor"),
    ("+lpop", "LPOP ?"),
    ("+rpop", "RPOP ?"),
    ("+ltrim", "LTRIM ? 0 0"),
    ("+zadd", "ZADD ? XX 0 doctor"),
    ("+zcard", "ZCARD ?"),
    ("+zcount", "ZCOUNT ? 0 0"),
    ("+zscore", "ZSCORE ? doctor"),
    ("+zrange", "ZRANGE ? 0 0"),
    ("+zrevrange", "ZREVRANGE ? 0 0"),
    ("+zrevrangebyscore", "ZREVRANGEBYSCORE ? 0 0"),
    ("+zremrangebyscore", "ZREMRANGEBYSCORE ? 0 0"),
    ("+zrem", "ZREM ? doctor"),
    ("+cluster|slots", "CLUSTER SLOTS"),
    ("+asking", "ASKING"),
    ("+del", "DEL ?"),
];
/// How many of them come first, and make the key.
const MAKE_THE_KEY: usize = 2;
/// What would make a list without a TTL if the key were not there.
const NEEDS_THE_KEY: &str = "+rpush";

/// What the user lacks of it.
pub(super) async fn lacking(visit: &mut Visit, prefix: &str, subject: &Subject) -> Result<Vec<String>> {
    let key = format!("{}:doctor", subject.base(prefix));
    let (make, rest) = LEAST.split_at(MAKE_THE_KEY);
    let made = replies(visit, make, &key).await?;
    let is_there = made.contains(&Value::Okay);
    let is_of_cluster = |word: &str| word == "+cluster|slots" || word == "+asking";
    let wanted = |word: &str| (word != NEEDS_THE_KEY || is_there) && (visit.cluster || !is_of_cluster(word));
    let rest: Vec<_> = rest.iter().filter(|(word, _)| wanted(word)).copied().collect();
    let others = replies(visit, &rest, &key).await?;
    let mut lacking = Vec::new();
    for ((word, _), reply) in make.iter().chain(&rest).zip(made.into_iter().chain(others)) {
        let Value::ServerError(error) = reply else { continue };
        let error = RedisError::from(error);
        if error.code() != Some("NOPERM") {
            continue;
        }
        if error.detail().is_some_and(|detail| detail.contains(" key")) {
            let keys = format!("~{prefix}:*");
            if lacking.first() != Some(&keys) {
                lacking.insert(0, keys);
            }
        } else {
            lacking.push((*word).to_owned());
        }
    }
    Ok(lacking)
}

async fn replies(visit: &mut Visit, probes: &[(&str, &str)], key: &str) -> Result<Vec<Value>> {
    let mut commands = redis::pipe();
    for (_, probe) in probes {
        let mut command = Cmd::new();
        command.arg(probe.split(' ').map(|word| if word == "?" { key } else { word }).collect::<Vec<_>>());
        commands.add_command(command);
    }
    visit.ask_all(&commands, probes.len()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_what_the_readme_lists() {
        let readme = include_str!("../../../../../README.md");
        let (_, rest) = readme.split_once("~tidegate:* -@all ").expect("the README has the ACL");
        let (listed, _) = rest.split_once("```").expect("the ACL ends");
        let mut listed: Vec<&str> = listed.split_whitespace().collect();
        let mut least = LEAST.map(|(word, _)| word).to_vec();
        listed.sort_unstable();
        least.sort_unstable();
        assert_eq!(listed, least);
    }

    #[test]
    fn each_is_tried_by_the_command_that_needs_it() {
        for (word, probe) in LEAST {
            let command = probe.to_lowercase().replace(' ', "|");
            assert!(command.starts_with(&word[1..]), "{word}: {probe}");
        }
    }
}

//! Which key is stored under which name.

use serde_json::{Map, Value, json};
use tidegate::{Key, Limiter, Result};
use tidegate_tests::servers::{shared_cluster, slot};

use crate::answers::{differences, of_error};
use crate::files::{Bytes, Failure, KeyText, StoredKey, each};
use crate::stage::{Kind, Stage};

pub(crate) fn play(file: &str, stage: &mut Stage) -> Vec<Failure> {
    each(file, |case: &StoredKey| {
        stage.clear();
        let found = charged_and_counted(stage, case).map_or_else(|error| of_error(&error), |()| keys(stage));
        // In memory there are no keys: what can be seen is whether the call is refused.
        if stage.has_keys() || case.expect.get("error") != found.get("error") {
            return differences(&case.expect, &found);
        }
        Ok(())
    })
}

/// Charges the rule's limit, and counts if the case says where the count is.
fn charged_and_counted(stage: &mut Stage, case: &StoredKey) -> Result<()> {
    let rules = Map::from_iter([(case.rule_name.clone(), case.rule.clone())]);
    let settings = [("prefix", &case.prefix), ("key_secret", &case.key_secret)];
    let given = settings.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.clone()?.into())));
    let limiter = stage.limiter(&rules, &given.collect())?;
    let decision = limiter.check(&case.rule_name, key(&case.key)).wait()?;
    assert!(decision.allowed() && decision.failure().is_none(), "{:?}: {decision:?}", case.name);
    if case.expect.get("stored").is_none() || case.expect.get("count").is_some() {
        count(&limiter, case, decision.binding().window())?;
    }
    Ok(())
}

fn count(limiter: &Limiter, case: &StoredKey, window: std::time::Duration) -> Result<()> {
    limiter.count(&case.rule_name, key(&case.key), window).add(1).wait().map(|_| ())
}

/// The one key of a limit and the one of a count, and the slot that both are in.
fn keys(stage: &mut Stage) -> Value {
    let names = stage.snapshot().into_keys().map(|key| String::from_utf8(key).expect("stored keys are printable"));
    let (counts, limits): (Vec<String>, Vec<String>) =
        names.partition(|name| name.split(':').rev().nth(1) == Some("count"));
    let slots: Vec<u16> = counts.iter().chain(&limits).map(|name| slot_of(stage.kind, name)).collect();
    assert!(slots.windows(2).all(|pair| pair[0] == pair[1]), "one subject, and two slots: {slots:?}");
    json!({"stored": limits.join(" and "), "count": counts.join(" and "), "slot": slots.first()})
}

/// As the cluster says itself.
fn slot_of(kind: Kind, key: &str) -> u16 {
    match kind {
        Kind::Cluster => shared_cluster().node(0).call(&format!("CLUSTER KEYSLOT {key}")),
        _ => slot(key.as_bytes()),
    }
}

fn key(text: &KeyText) -> Key {
    match text {
        KeyText::Whole(whole) => Key::from(&whole.bytes()),
        KeyText::Parts { parts } => Key::parts(parts.iter().map(Bytes::bytes)),
    }
}

//! What every response says of its limits: the fields of the IETF's draft
//! (draft-ietf-httpapi-ratelimit-headers) in one of three revisions, `X-RateLimit-*`, and `Retry-After`.

use once_cell::race::OnceBox;
use sfv::{DictSerializer, Integer, KeyRef, ListSerializer, ParameterSerializer, StringRef, key_ref};
use sha2::Digest as _;

use super::quota::{Quota, is_known, names, quotas, tightest, whole_seconds};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Subject;

const POLICY: &str = "RateLimit-Policy";
const QUOTA: &KeyRef = key_ref("q");
const WINDOW: &KeyRef = key_ref("w");
const PARTITION_KEY: &KeyRef = key_ref("pk");
const REMAINING: &KeyRef = key_ref("r");
const TIME: &KeyRef = key_ref("t");
/// So many bytes of a partition key tell keys apart, and fill their base64 whole.
const PARTITION_KEY_BYTES: usize = 9;
/// Most responses have no more fields, with those of a refusal's body.
const USUAL: usize = 8;

/// An item of a list that is being told.
type Parameters<'a> = ParameterSerializer<&'a mut String>;

/// A field of a response: its name as it is commonly written, and its value in printable ASCII.
pub(crate) type Field = (&'static str, String);

/// What `RateLimit-Policy` says of some rules, once it has been said: it is the same in every response. Two threads may say it
/// at once, so that none waits for another, which a fork may have ended.
pub(super) type KeptField = OnceBox<Option<String>>;

/// Which fields responses have, besides `Retry-After`, which every refusal has that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fields {
    draft: Option<Draft>,
    x_ratelimit: Option<XReset>,
    partition_key: bool,
}

/// A revision of the draft. They use the same field names for different things, so a response has one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draft {
    Six,
    Seven,
    Ten,
}

/// What `X-RateLimit-Reset` counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum XReset {
    /// 1970, as most servers do.
    Epoch,
    /// Now.
    Delta,
}

/// The fields of responses unless a document says otherwise.
pub(crate) const DEFAULT: [&str; 2] = ["draft-10", "x-ratelimit"];

impl Fields {
    /// The fields by these names, as `headers`, `x_ratelimit_reset` and `partition_key` stand in a document.
    ///
    /// # Errors
    /// `invalid_document` for an unknown name, a name twice, two drafts, and an option of fields that are not there.
    pub(crate) fn new(names: &[String], reset: Option<&str>, partition_key: bool) -> Result<Fields> {
        let mut fields = Fields { draft: None, x_ratelimit: None, partition_key };
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(invalid(format!("headers name {name:?} twice; write it once")));
            }
            let draft = match name.as_str() {
                "draft-10" => Draft::Ten,
                "draft-7" => Draft::Seven,
                "draft-6" => Draft::Six,
                "x-ratelimit" => {
                    fields.x_ratelimit = Some(XReset::Epoch);
                    continue;
                }
                _ => {
                    return Err(invalid(format!(
                        "headers {name:?} are not known; write \"draft-10\", \"draft-7\" or \"draft-6\", and \"x-ratelimit\""
                    )));
                }
            };
            if fields.draft.replace(draft).is_some() {
                return Err(invalid(
                    "headers name two drafts, which give the same fields different meanings; write one of \"draft-10\", \
                     \"draft-7\", \"draft-6\"",
                ));
            }
        }
        if let Some(reset) = reset {
            let reset = XReset::parse(reset)?;
            if fields.x_ratelimit.replace(reset).is_none() {
                return Err(invalid(
                    "x_ratelimit_reset is of X-RateLimit-Reset alone; write \"x-ratelimit\" in headers too, or leave it out",
                ));
            }
        }
        if partition_key && fields.draft != Some(Draft::Ten) {
            return Err(invalid("partition_key is of \"draft-10\" alone; write that in headers too, or leave it out"));
        }
        Ok(fields)
    }

    /// The fields of a response, by the request's decisions: one for each key. `now` is this process's clock, in
    /// microseconds since 1970; the store's may be another, so only times from now on are taken from decisions. `kept` is of
    /// the rules of the only decision.
    pub(crate) fn of(&self, decisions: &[Decision], now: u64, kept: Option<&KeptField>) -> Vec<Field> {
        let mut fields = Vec::with_capacity(USUAL);
        let quotas = quotas(decisions);
        if let Some(tightest) = tightest(&quotas) {
            if let Some(draft) = self.draft {
                let named = if draft == Draft::Ten { self.named(&quotas, decisions) } else { Vec::new() };
                let policies = || if draft == Draft::Ten { named_policies(&named) } else { policies(&quotas) };
                let policies = match kept.filter(|_| !self.partition_key) {
                    Some(kept) => kept.get_or_init(|| Box::new(policies())).clone(),
                    None => policies(),
                };
                fields.extend(policies.map(|policies| (POLICY, policies)));
                match draft {
                    Draft::Ten => fields.extend(named_limits(&named)),
                    Draft::Seven => fields.extend(dictionary(tightest)),
                    Draft::Six => fields.extend(single_values(tightest)),
                }
            }
            if let Some(reset) = self.x_ratelimit {
                fields.extend(reset.fields(tightest, now));
            }
        }
        fields.extend(retry_seconds(decisions).map(|seconds| ("Retry-After", seconds.to_string())));
        fields
    }

    /// Quotas as revision 10 has them: with the names of all limits, and the partition keys where those are told.
    fn named<'q, 'a>(&self, quotas: &'q [Quota<'a>], decisions: &[Decision]) -> Vec<Named<'q, 'a>> {
        let partition = |quota: &Quota<'_>| self.partition_key.then(|| partition_key(quota.subject));
        let named = quotas.iter().zip(names(decisions));
        named.map(|(quota, name)| Named { quota, name, partition: partition(quota) }).collect()
    }
}

struct Named<'q, 'a> {
    quota: &'q Quota<'a>,
    name: String,
    partition: Option<[u8; PARTITION_KEY_BYTES]>,
}

/// Revision 10: `"api";q=100;w=60`.
fn named_policies(named: &[Named<'_, '_>]) -> Option<String> {
    list(named, |quota, policy| {
        let policy = policy.parameter(QUOTA, integer(quota.limit.limit()));
        policy.parameter(WINDOW, integer(quota.window_seconds()))
    })
}

/// Revision 10: `"api";r=50;t=30`.
fn named_limits(named: &[Named<'_, '_>]) -> Option<Field> {
    let limits = list(named, |quota, limit| {
        let limit = limit.parameter(REMAINING, integer(quota.limit.remaining()));
        match quota.reset_seconds() {
            Some(seconds) => limit.parameter(TIME, integer(seconds)),
            None => limit,
        }
    });
    limits.map(|limits| ("RateLimit", limits))
}

/// An item for each quota, with the parameters that `tell` gives it.
fn list(
    named: &[Named<'_, '_>],
    tell: impl for<'p> Fn(&Quota<'_>, Parameters<'p>) -> Parameters<'p>,
) -> Option<String> {
    let mut list = ListSerializer::new();
    for Named { quota, name, partition } in named {
        // Names are escaped, so each can be a string; one that could not would be left out rather than be wrong.
        let Ok(name) = StringRef::from_str(name) else { continue };
        let item = tell(quota, list.bare_item(name));
        if let Some(partition) = partition {
            let _ = item.parameter(PARTITION_KEY, &partition[..]);
        }
    }
    list.finish()
}

impl XReset {
    fn parse(name: &str) -> Result<XReset> {
        match name {
            "epoch" => Ok(XReset::Epoch),
            "delta" => Ok(XReset::Delta),
            _ => Err(invalid(format!("x_ratelimit_reset {name:?} is not known; write \"epoch\" or \"delta\""))),
        }
    }

    fn fields(self, tightest: &Quota<'_>, now: u64) -> impl Iterator<Item = Field> {
        let reset = match self {
            XReset::Epoch => tightest.reset().map(|reset| {
                let micros = u64::try_from(reset.as_micros()).unwrap_or(u64::MAX);
                now.saturating_add(micros).div_ceil(1_000_000)
            }),
            XReset::Delta => tightest.reset_seconds(),
        };
        let limit = ("X-RateLimit-Limit", tightest.limit.limit().to_string());
        let remaining = ("X-RateLimit-Remaining", tightest.limit.remaining().to_string());
        [limit, remaining].into_iter().chain(reset.map(|reset| ("X-RateLimit-Reset", reset.to_string())))
    }
}

/// The seconds after which the refused request passes if nobody else comes, rounded up, at least 1. None if it is not
/// refused, if it never can pass, and if only failure policies refuse it, which do not know.
pub(crate) fn retry_seconds(decisions: &[Decision]) -> Option<u64> {
    let refusing = decisions.iter().filter(|decision| !decision.allowed() && is_known(decision));
    let longest = refusing.map(Decision::retry_after).reduce(|a, b| Some(a?.max(b?)))??;
    Some(whole_seconds(longest).max(1))
}

/// Revisions 6 and 7: `100;w=60`. They forbid two policies of one quota, so the longest window speaks for those.
fn policies(quotas: &[Quota<'_>]) -> Option<String> {
    let mut told: Vec<(u32, u64)> = Vec::with_capacity(quotas.len());
    for quota in quotas {
        let (limit, window) = (quota.limit.limit(), quota.window_seconds());
        match told.iter_mut().find(|(twin, _)| *twin == limit) {
            Some((_, longest)) => *longest = window.max(*longest),
            None => told.push((limit, window)),
        }
    }
    let mut list = ListSerializer::new();
    for (limit, window) in told {
        let _ = list.bare_item(integer(limit)).parameter(WINDOW, integer(window));
    }
    list.finish()
}

/// Revision 7: `limit=100, remaining=50, reset=30`. It wants the reset, so without one there is no field.
fn dictionary(tightest: &Quota<'_>) -> Option<Field> {
    let mut dictionary = DictSerializer::new();
    let reset = tightest.reset_seconds()?;
    let _ = dictionary.bare_item(key_ref("limit"), integer(tightest.limit.limit()));
    let _ = dictionary.bare_item(key_ref("remaining"), integer(tightest.limit.remaining()));
    let _ = dictionary.bare_item(key_ref("reset"), integer(reset));
    Some(("RateLimit", dictionary.finish()?))
}

/// Revision 6: a field for each figure. It wants the reset too.
fn single_values(tightest: &Quota<'_>) -> impl Iterator<Item = Field> {
    let fields = tightest.reset_seconds().map(|reset| {
        [
            ("RateLimit-Limit", tightest.limit.limit().to_string()),
            ("RateLimit-Remaining", tightest.limit.remaining().to_string()),
            ("RateLimit-Reset", reset.to_string()),
        ]
    });
    fields.into_iter().flatten()
}

/// Tells keys apart without telling any.
fn partition_key(subject: &Subject) -> [u8; PARTITION_KEY_BYTES] {
    let digest = sha2::Sha256::digest(subject.as_bytes());
    let mut key = [0; PARTITION_KEY_BYTES];
    key.copy_from_slice(&digest[..PARTITION_KEY_BYTES]);
    key
}

/// The largest that structured fields hold stands for what is larger.
fn integer(number: impl Into<u64>) -> Integer {
    Integer::try_from(number.into()).unwrap_or(Integer::MAX)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidDocument, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Key, Limiter};

    const NOW: u64 = 1_767_225_600_000_000;

    fn default_fields() -> Fields {
        Fields::new(&DEFAULT.map(str::to_owned), None, false).unwrap()
    }

    fn limiter(rules: &[(&str, &str)]) -> Limiter {
        let builder = Limiter::builder().clock(&Arc::new(AtomicU64::new(NOW)));
        rules.iter().fold(builder, |builder, (name, limits)| builder.rule(*name, limits)).build().unwrap()
    }

    fn field(fields: &[Field], name: &str) -> Option<String> {
        fields.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
    }

    fn new(names: &[&str], reset: Option<&str>, partition_key: bool) -> Result<Fields> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Fields::new(&names, reset, partition_key)
    }

    #[test]
    fn the_default_is_the_tenth_draft_and_x_ratelimit() {
        let default = Fields { draft: Some(Draft::Ten), x_ratelimit: Some(XReset::Epoch), partition_key: false };
        assert_eq!(new(&DEFAULT, None, false), Ok(default));
        assert_eq!(new(&["draft-10", "x-ratelimit"], Some("epoch"), false), Ok(default));
        assert_eq!(new(&["x-ratelimit", "draft-10"], None, false), Ok(default));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_to_write() {
        for (names, reset, partition_key, says) in [
            (&["draft-11"][..], None, false, "write \"draft-10\", \"draft-7\" or \"draft-6\", and \"x-ratelimit\""),
            (&["Draft-10"], None, false, "are not known"),
            (&["draft-10", "draft-7"], None, false, "write one of"),
            (&["draft-10", "draft-10"], None, false, "write it once"),
            (&["x-ratelimit", "x-ratelimit"], None, false, "write it once"),
            (&["x-ratelimit"], Some("unix"), false, "write \"epoch\" or \"delta\""),
            (&["draft-10"], Some("delta"), false, "write \"x-ratelimit\""),
            (&["draft-7"], None, true, "write that in headers too"),
            (&[], None, true, "write that in headers too"),
        ] {
            let error = new(names, reset, partition_key).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidDocument);
            assert!(error.message().contains(says), "{names:?}: {error}");
        }
    }

    #[test]
    fn one_rule_on_two_keys_has_two_names() {
        let limiter = limiter(&[("api", "5/m; 9/h")]);
        let check = |kind: &str| limiter.check("api", Key::parts([kind, "a"])).wait().unwrap();
        let fields = default_fields().of(&[check("user"), check("ip")], NOW, None);
        let limits = "\"api\";r=4;t=60, \"api:2\";r=8;t=3600, \"api#2\";r=4;t=60, \"api:2#2\";r=8;t=3600";
        assert_eq!(field(&fields, "RateLimit").as_deref(), Some(limits));
    }

    #[test]
    fn as_many_limits_as_a_call_has_are_all_told() {
        let rules: Vec<(String, String)> = (1..=2)
            .map(|rule| {
                (format!("r{rule}"), (1..=32).map(|window| format!("9/{window}m")).collect::<Vec<_>>().join(";"))
            })
            .collect();
        let rules: Vec<(&str, &str)> = rules.iter().map(|(name, limits)| (&**name, &**limits)).collect();
        let decision = limiter(&rules).check_all(["r1", "r2"], "a").wait().unwrap();
        let list = field(&default_fields().of(&[decision], NOW, None), POLICY).unwrap();
        let names: std::collections::HashSet<&str> =
            list.split(", ").map(|item| item.split(';').next().unwrap()).collect();
        assert_eq!(names.len(), 64);
    }

    #[test]
    fn who_waits_as_long_as_is_told_passes_and_not_long_before() {
        let mut random = fastrand::Rng::with_seed(4);
        for limits in ["3/1700ms; 7/9s", "5/2s burst 3", "4/3s sliding_window_counter", "3/2s fixed_window; 5/7s"] {
            let clock = Arc::new(AtomicU64::new(NOW));
            let limiter = Limiter::builder().clock(&clock).rule("api", limits).build().unwrap();
            let mut refusals = 0;
            for _ in 0..500 {
                clock.fetch_add(random.u64(0..900_000), Ordering::SeqCst);
                let cost = random.u64(1..=3);
                let check = || limiter.check("api", "a").cost(cost).wait().unwrap();
                let Some(seconds) = retry_seconds(&[check()]) else { continue };
                refusals += 1;
                let told = clock.fetch_add((seconds - 1) * 1_000_000, Ordering::SeqCst) + seconds * 1_000_000;
                assert!(seconds == 1 || !limiter.peek("api", "a").cost(cost).wait().unwrap().allowed(), "{limits}");
                clock.store(told, Ordering::SeqCst);
                assert!(check().allowed(), "{limits}: a cost of {cost} after {seconds} s");
            }
            assert!(refusals > 50, "{limits}: {refusals}");
        }
    }

    #[test]
    fn nothing_is_told_without_decisions() {
        assert_eq!(default_fields().of(&[], NOW, None), []);
        assert_eq!(retry_seconds(&[]), None);
    }

    #[test]
    fn the_longest_wait_of_several_keys_is_told_once() {
        let limiter = limiter(&[("short", "1/10s"), ("long", "1/m"), ("never", "0/m")]);
        let refused = |rule: &str| {
            limiter.check(rule, "a").wait().unwrap();
            limiter.check(rule, "a").wait().unwrap()
        };
        let (short, long, never) = (refused("short"), refused("long"), refused("never"));
        for (decisions, seconds) in [
            (vec![short.clone(), long.clone()], Some(60)),
            (vec![long, short.clone()], Some(60)),
            (vec![never, short.clone()], None),
            (vec![limiter.check("short", "b").wait().unwrap(), short], Some(10)),
        ] {
            assert_eq!(retry_seconds(&decisions), seconds);
            let fields = default_fields().of(&decisions, NOW, None);
            assert_eq!(field(&fields, "Retry-After"), seconds.map(|seconds| seconds.to_string()));
            let reset = seconds.map(|seconds| (NOW / 1_000_000 + seconds).to_string());
            assert_eq!(field(&fields, "X-RateLimit-Reset"), reset, "the tightest waits as long");
        }
    }
}

//! What the clients ask, and what the checker holds the answers against.

use std::time::Duration;

/// How long a call may take; then the failure policy answers.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);
/// What may be added for the way to a thread and back; and as much more as a thread that only sleeps, in every client,
/// tells that the machine was late.
pub(crate) const SLACK: Duration = Duration::from_millis(50);
/// The nodes' own setting: how long a primary that hears of nobody goes on.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// How soon after its promotion a replica must be in use.
pub(crate) const RECOVERY: Duration = Duration::from_secs(2);

/// A few keys that everybody wants, refused while the store fails.
pub(crate) const HOT: &str = "hot";
pub(crate) const HOT_LIMIT: usize = 20;
pub(crate) const HOT_WINDOW: Duration = Duration::from_secs(1);
/// The same in a bucket, decided in the process while the store fails.
pub(crate) const BUCKET: &str = "bucket";
pub(crate) const BUCKET_RATE: u64 = 20;
pub(crate) const BUCKET_BURST: u64 = 10;
/// Keys that are used up soon and stay so, and new ones every two seconds; let through while the store fails.
pub(crate) const QUOTA: &str = "quota";
pub(crate) const QUOTA_LIMIT: usize = 40;
pub(crate) const QUOTA_WINDOW: Duration = Duration::from_secs(3_600);
/// What nobody uses up, to count the charges: keys of each client's own.
pub(crate) const LEDGER: &str = "ledger";
pub(crate) const LEDGER_LIMIT: u32 = 1_000_000;
/// The same with every request's id. No key of it has more requests than the log tells of.
pub(crate) const AUDIT: &str = "audit";
pub(crate) const AUDIT_PER_KEY: usize = 400;

/// The document that clients and checker read.
pub(crate) fn document(url: &str, prefix: &str, password_file: Option<&str>, clients: usize) -> String {
    let login = password_file.map_or_else(String::new, |path| format!("password_file = {path:?}\n"));
    let deadline = DEADLINE.as_millis();
    format!(
        "version = 1
[store]
url = {url:?}
prefix = {prefix:?}
deadline = {deadline}
{login}
[rules.{HOT}]
limits = \"{HOT_LIMIT}/s\"
on_error = \"deny\"
[rules.{BUCKET}]
limits = \"{BUCKET_RATE}/s burst {BUCKET_BURST}\"
on_error = \"local\"
share = {clients}
[rules.{QUOTA}]
limits = \"{QUOTA_LIMIT}/h\"
on_error = \"allow\"
[rules.{LEDGER}]
limits = \"{LEDGER_LIMIT}/h\"
on_error = \"allow\"
[rules.{AUDIT}]
limits = \"{LEDGER_LIMIT}/h sliding_window_log\"
on_error = \"deny\"
"
    )
}

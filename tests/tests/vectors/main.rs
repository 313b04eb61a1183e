//! Every file of `tests/vectors` on every store: law 13. The format stands in `tests/vectors/README.md`.
//!
//! ```text
//! files: what the JSON says          stage: a store, with what a test may do to it behind a limiter's back
//!     \                              /
//!      histories, stored_keys, meanings, requests: play a case  -->  answers: what came, in the words of the files
//! ```

mod answers;
mod files;
mod histories;
mod meanings;
mod requests;
mod stage;
mod stored;
mod stored_keys;

use std::collections::BTreeSet;

use crate::files::{names_of_all_files, report};
use crate::stage::{Kind, Stage};

/// Makes a test of each file and store, and a list of the files that are played.
macro_rules! play {
    ($($file:ident: $play:path,)+) => {
        $(mod $file {
            use super::*;

            #[test]
            fn memory() {
                on(Kind::Memory);
            }

            #[test]
            fn redis() {
                on(Kind::Redis);
            }

            #[test]
            fn cluster() {
                on(Kind::Cluster);
            }

            fn on(kind: Kind) {
                let file = stringify!($file);
                report(file, kind.name(), &$play(file, &mut Stage::enter(kind)));
            }
        })+

        const PLAYED: &[&str] = &[$(stringify!($file)),+];
    };
}

play! {
    admissions: requests::play,
    changes: histories::play,
    clock_steps: histories::play,
    corrupt_state: histories::play,
    counts: histories::play,
    fixed_window: histories::play,
    http_responses: requests::play,
    keys: stored_keys::play,
    refunds: histories::play,
    request_ids: histories::play,
    several_limits: histories::play,
    sliding_window: histories::play,
    sliding_window_counter: histories::play,
    sliding_window_log: histories::play,
    stored_values: histories::play,
    token_bucket: histories::play,
}

/// What means something before there is any store.
const MEANT: &[&str] = &["addresses", "documents", "routes", "rules"];

#[test]
fn rules() {
    report("rules", "a rule", &meanings::of_rules("rules"));
}

#[test]
fn documents() {
    report("documents", "a document", &meanings::of_documents("documents"));
}

#[test]
fn addresses_in_memory() {
    report("addresses", "a policy", &requests::addresses("addresses"));
}

#[test]
fn routes_in_memory() {
    report("routes", "a policy", &requests::routes("routes"));
}

#[test]
fn no_file_is_forgotten() {
    let played: BTreeSet<String> = PLAYED.iter().chain(MEANT).map(|&name| name.to_owned()).collect();
    assert_eq!(played, names_of_all_files());
}

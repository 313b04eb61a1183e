//! What a policy counts: requests by route and outcome, and what became of its documents and charges.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use super::admission::Outcome;
use crate::metrics::{Metrics, Page};

/// What a policy has counted since it was made. No key is in it.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyMetrics {
    /// What its limiter has counted.
    pub limiter: Metrics,
    /// Requests: a row for each route and outcome, by route.
    pub requests: Vec<RouteCount>,
    /// Requests that no route matched, and that passed.
    pub unrouted: u64,
    /// Charges that were given back since a rule of another key refused in the same moment, after all had let the request
    /// pass when they were peeked at: for this moment others may have found the units taken.
    pub charges_returned: u64,
    /// Such charges that could not be given back.
    pub charges_lost: u64,
    /// Documents that were taken after the first.
    pub reloads: u64,
    /// Documents that were refused.
    pub reloads_refused: u64,
}

/// How often requests of one route had one outcome.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteCount {
    /// The route's name.
    pub route: String,
    /// Whether the route only reports, so that all of these passed.
    pub is_shadow: bool,
    /// The outcome.
    #[serde(serialize_with = "outcome")]
    pub outcome: Outcome,
    /// How often.
    pub count: u64,
}

fn outcome<S: serde::Serializer>(outcome: &Outcome, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(outcome.name())
}

/// The outcomes of one route's requests.
#[derive(Debug, Default)]
pub(super) struct Counts {
    counts: [AtomicU64; Outcome::ALL.len()],
}

impl Counts {
    pub(super) fn add(&self, outcome: Outcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// What is counted of all routes together.
#[derive(Debug, Default)]
pub(super) struct Totals {
    unrouted: AtomicU64,
    /// Whether it was told that addresses are not known.
    told: AtomicBool,
    returned: AtomicU64,
    lost: AtomicU64,
    reloads: AtomicU64,
    reloads_refused: AtomicU64,
}

impl Totals {
    pub(super) fn returned(&self, is_back: bool) {
        let count = if is_back { &self.returned } else { &self.lost };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unrouted(&self) {
        self.unrouted.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this is to be told, once.
    pub(super) fn tells(&self) -> bool {
        !self.told.load(Ordering::Relaxed) && !self.told.swap(true, Ordering::Relaxed)
    }

    pub(super) fn reloaded(&self, is_taken: bool) {
        let count = if is_taken { &self.reloads } else { &self.reloads_refused };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl PolicyMetrics {
    pub(super) fn new<'a>(
        limiter: Metrics,
        routes: impl Iterator<Item = ((&'a str, bool), &'a Counts)>,
        totals: &Totals,
    ) -> PolicyMetrics {
        let rows = routes.flat_map(|((route, is_shadow), counts)| {
            Outcome::ALL.iter().map(move |outcome| {
                let count = counts.counts[*outcome as usize].load(Ordering::Relaxed);
                RouteCount { route: route.to_owned(), is_shadow, outcome: *outcome, count }
            })
        });
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PolicyMetrics {
            limiter,
            requests: rows.collect(),
            unrouted: read(&totals.unrouted),
            charges_returned: read(&totals.returned),
            charges_lost: read(&totals.lost),
            reloads: read(&totals.reloads),
            reloads_refused: read(&totals.reloads_refused),
        }
    }

    /// The same as one JSON object of the same fields, with names for outcomes: for bindings.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text can be written")
    }

    /// The text that Prometheus scrapes: the limiter's, and the policy's own below it.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut page = Page::after(self.limiter.prometheus());
        page.family("http_requests_total", "counter", "Requests by route, mode and outcome.");
        for row in &self.requests {
            let mode = if row.is_shadow { "shadow" } else { "enforce" };
            let labels = [("route", &*row.route), ("mode", mode), ("outcome", row.outcome.name())];
            page.sample("http_requests_total", &labels, row.count);
        }
        let unrouted = [("route", ""), ("mode", "enforce"), ("outcome", Outcome::Unlimited.name())];
        page.sample("http_requests_total", &unrouted, self.unrouted);
        page.single(
            "http_charges_returned_total",
            "counter",
            "Charges given back since a rule of another key refused in the same moment.",
            self.charges_returned,
        );
        page.single(
            "http_charges_lost_total",
            "counter",
            "Such charges that could not be given back.",
            self.charges_lost,
        );
        page.family("http_reloads_total", "counter", "Documents after the first, by what became of them.");
        for (result, count) in [("taken", self.reloads), ("refused", self.reloads_refused)] {
            page.sample("http_reloads_total", &[("result", result)], count);
        }
        page.text
    }
}

//! Where the demo runs: in this process's memory, or on a server under keys of its own.

use std::time::Duration;

use tidegate::{Algorithm, Decision, Limit, Limiter, Result, Rule};

use super::{boundary, crowd};

#[derive(Debug)]
pub(super) struct Place {
    limiter: Limiter,
    /// Begins every subject, so that no two runs share one, and none is an application's.
    run: String,
    server: bool,
}

/// Below the default prefix, so that a user whose ACL is `~tidegate:*` may run the demo.
const PREFIX: &str = "tidegate:demo";
/// Patient, since the demo shows counts: a slow server is to be slow, not to fail.
const DEADLINE: Duration = Duration::from_secs(1);
/// The rule under which the store is asked for its time.
const CLOCK: &str = "clock";
const CLOCK_WINDOW: Duration = Duration::from_secs(10);

impl Place {
    pub(super) fn open(url: Option<&str>) -> Result<Place> {
        let mut builder = Limiter::builder().prefix(PREFIX).deadline(DEADLINE).rule(crowd::RULE, crowd::LIMIT);
        for &algorithm in Algorithm::ALL {
            let limit = Limit::new(boundary::LIMIT, boundary::SERVER_WINDOW).algorithm(algorithm);
            builder = builder.rules([Rule::new(algorithm.name(), [limit])?]);
        }
        builder = builder.rule(CLOCK, "1/s");
        if let Some(url) = url {
            // The server is to answer each request, so nothing is remembered here.
            builder = builder.url(url).deny_cache_max(Duration::ZERO);
        }
        let run = format!("demo-{:08x}", fastrand::u32(..));
        let place = Place { limiter: builder.build()?, run, server: url.is_some() };
        // A check would follow the failure policy; to ask for the time is an error if the server cannot be reached.
        place.time("start")?;
        Ok(place)
    }

    pub(super) fn is_server(&self) -> bool {
        self.server
    }

    pub(super) fn name(&self) -> &'static str {
        if self.server { "on the server" } else { "in this process" }
    }

    pub(super) fn check(&self, rule: &str, who: &str) -> Result<Decision> {
        self.limiter.check(rule, self.subject(who)).wait()
    }

    /// The time of the store that keeps this subject: in a cluster every node has a clock of its own.
    pub(super) fn time(&self, who: &str) -> Result<Duration> {
        let counted = self.limiter.count(CLOCK, self.subject(who), CLOCK_WINDOW).add(1).wait()?;
        Ok((Duration::from_micros(counted.start) + CLOCK_WINDOW).saturating_sub(counted.left))
    }

    fn subject(&self, who: &str) -> String {
        format!("{}-{who}", self.run)
    }
}

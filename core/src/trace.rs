//! Spans of what goes on, with the feature `tracing`; without it nothing. No span holds a key.

pub(crate) use self::spans::Span;

#[cfg(feature = "tracing")]
mod spans {
    use tracing::debug_span;
    use tracing::field::Empty;
    use tracing::instrument::Instrument as _;

    use crate::decision::Decision;
    use crate::error::Result;
    use crate::plan::{Action, Call};

    #[derive(Debug, Clone)]
    pub(crate) struct Span(tracing::Span);

    impl Span {
        /// Whether this release has spans.
        pub(crate) const EXISTS: bool = true;

        /// A call other than a check or peek, by its name.
        pub(crate) fn call(call: &'static str, rule: Option<&str>) -> Span {
            Span(debug_span!("tidegate.call", call, rule, error = Empty))
        }

        /// A check or peek: one that an acquire makes is inside of its span.
        pub(crate) fn check(call: &Call) -> Span {
            let (rules, cost, peek) = (call.plan.rules().join(","), call.cost, call.action == Action::Peek);
            Span(debug_span!("tidegate.check", rules, cost, peek, allowed = Empty, origin = Empty, failure = Empty))
        }

        /// What leaves together for a node.
        pub(crate) fn batch(node: &impl std::fmt::Display, checks: usize) -> Span {
            Span(debug_span!("tidegate.batch", %node, checks))
        }

        pub(crate) fn decided(&self, decision: &Decision) {
            self.0.record("allowed", decision.allowed()).record("origin", decision.origin().name());
            if let Some(failure) = decision.failure() {
                self.0.record("failure", failure.code());
            }
        }

        pub(crate) fn ended<T>(&self, outcome: &Result<T>) {
            if let Err(error) = outcome {
                self.0.record("error", error.code());
            }
        }

        pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
            self.0.in_scope(work)
        }

        pub(crate) fn follow<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
            work.instrument(self.0.clone())
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod spans {
    use crate::decision::Decision;
    use crate::error::Result;
    use crate::plan::Call;

    #[derive(Debug, Clone)]
    pub(crate) struct Span;

    #[allow(clippy::unused_self, reason = "it stands in for one that has something in it")]
    impl Span {
        pub(crate) const EXISTS: bool = false;

        pub(crate) fn call(_call: &'static str, _rule: Option<&str>) -> Span {
            Span
        }

        #[inline(always)]
        pub(crate) fn check(_call: &Call) -> Span {
            Span
        }

        pub(crate) fn batch(_node: &impl std::fmt::Display, _checks: usize) -> Span {
            Span
        }

        #[inline(always)]
        pub(crate) fn decided(&self, _decision: &Decision) {}

        pub(crate) fn ended<T>(&self, _outcome: &Result<T>) {}

        #[inline(always)]
        pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
            work()
        }

        pub(crate) fn follow<F: Future>(&self, work: F) -> F {
            work
        }
    }
}

//! A progress bar for what takes its time: on standard error, and on a terminal alone.

use std::io::{self, Read};
use std::sync::Once;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work in progress. Its bar appears once the work has taken a second: a flash would only disturb.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: Once,
}

const APPEARS_AFTER: Duration = Duration::from_secs(1);

impl Progress {
    /// Work of so many steps, or of nobody knows how many.
    pub(crate) fn new(what: &'static str, steps: Option<u64>) -> Progress {
        let template = match steps {
            Some(_) => "{msg} {bar:40} {percent:>3} %",
            None => "{msg} {spinner} {elapsed}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::hidden());
        bar.set_style(style.progress_chars("██░"));
        bar.set_message(what);
        Progress { bar, shown: Once::new() }
    }

    pub(crate) fn advance(&self, steps: u64) {
        self.bar.inc(steps);
        if !self.shown.is_completed() && self.bar.elapsed() >= APPEARS_AFTER {
            self.shown.call_once(|| self.bar.set_draw_target(ProgressDrawTarget::stderr()));
        }
    }

    /// A reader whose bytes are the steps.
    pub(crate) fn reading<'a>(&'a self, source: impl Read + 'a) -> impl Read + 'a {
        Advancing { source, progress: self }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

struct Advancing<'a, R> {
    source: R,
    progress: &'a Progress,
}

impl<R: Read> Read for Advancing<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}

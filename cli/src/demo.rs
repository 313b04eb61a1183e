//! `tidegate demo`: what exact limits do, measured before the reader's eyes.

mod boundary;
mod crowd;
mod flood;
mod place;

use self::place::Place;
use crate::args;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

pub(crate) fn run(demo: &args::Demo, screen: &mut Screen) -> Result<Exit, Failure> {
    shown(demo.url.as_deref(), screen).map_err(|failure| match failure {
        Failure::Told { exit: Exit::StoreFailed, .. } => failure.exiting(Exit::Refused),
        other => other,
    })
}

fn shown(url: Option<&str>, screen: &mut Screen) -> Result<Exit, Failure> {
    let place = Place::open(url)?;
    let took = crowd::show(&place, screen)?;
    if place.is_server() {
        boundary::show_on_server(&place, took, screen)?;
    } else {
        boundary::show_simulated(screen)?;
    }
    Ok(Exit::Done)
}

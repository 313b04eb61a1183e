//! Requests on their way to a decision, and the admissions that come of them.

use std::cell::RefCell;
use std::rc::Rc;

use napi::bindgen_prelude::BufferSlice;
use napi_derive::napi;
use tidegate::http;

use crate::args::{Numbers, index};
use crate::error::{Result, invalid, thrown};
use crate::policy::Shared;
use crate::queue::Queue;
use crate::record::Record;

pub(crate) type Admissions = Rc<RefCell<Vec<http::Admission>>>;

/// Admissions that JavaScript has records of, and may come back to: one object for many, since each costs.
#[napi]
#[derive(Default)]
pub struct Kept(Admissions);

#[napi]
impl Kept {
    #[napi(constructor)]
    pub fn new() -> Kept {
        Kept::default()
    }

    /// Writes the decisions of the one at a place into a chunk as the queue writes those of checks, their places for
    /// tickets. Tells where that ends; none if they do not fit.
    #[napi]
    pub fn decisions(&self, place: u32, mut chunk: BufferSlice<'_>) -> Result<Option<u32>> {
        let (admission, mut record, mut at) = (self.admission(place)?, Record::default(), 0);
        for (place, decision) in (0..).zip(admission.decisions()) {
            record.decision(place, decision);
            match record.write(&mut chunk, at) {
                Some(end) => at = end,
                None => return Ok(None),
            }
        }
        Ok(u32::try_from(at).ok())
    }

    #[napi]
    pub fn settle(&self, place: u32, queue: &Queue, ticket: f64, status: u16) -> Result<()> {
        let settled = self.admission(place)?.settle(status);
        settled.submit(&queue.completions, index(ticket)? as u64).map_err(thrown)
    }

    #[napi]
    pub fn undo(&self, place: u32, queue: &Queue, ticket: f64) -> Result<()> {
        self.admission(place)?.undo().submit(&queue.completions, index(ticket)? as u64).map_err(thrown)
    }
}

impl Kept {
    pub(crate) fn all(&self) -> Admissions {
        Rc::clone(&self.0)
    }

    pub(crate) fn admission(&self, place: u32) -> Result<http::Admission> {
        let admission = self.0.borrow().get(place as usize).cloned();
        admission.ok_or_else(|| invalid("no admission is kept at this place"))
    }
}

/// Requests as JavaScript has written them, each in its numbers: its ticket, the number of the request, that of an
/// admission before it or -1, whether there is a peer and a user, and how many lines of headers, values and answers; then
/// their texts, each behind its length. `lib/admit.ts` writes them.
pub(crate) struct Asked<'a>(Numbers<'a, 8>);

impl<'a> Asked<'a> {
    pub(crate) fn new(written: &'a [u8]) -> Asked<'a> {
        Asked(Numbers::new(written))
    }

    /// The ticket of the next, and the request.
    pub(crate) fn next(&mut self, shared: &mut Shared) -> Option<(u64, Result<http::Request>)> {
        let [ticket, head @ ..] = self.0.next()?;
        Some((index(ticket).unwrap_or_default() as u64, self.request(shared, head)))
    }

    fn request(&mut self, shared: &mut Shared, head: [f64; 7]) -> Result<http::Request> {
        let [number, before, has_peer, has_user, lines, values, answers] = head;
        let kept = index(number)?;
        let request = match shared.requests.get(kept) {
            Some((_, true)) => shared.requests.take(kept).map(|(request, _)| request),
            request => request.map(|(request, _)| request.clone()),
        };
        let before = if before < 0.0 { None } else { shared.before.take(index(before)?) };
        // All that was told is read, whatever becomes of this one: the next one's stands behind it.
        let peer = if has_peer > 0.0 { Some(self.0.text()?) } else { None };
        let user = if has_user > 0.0 { Some(self.0.text()?) } else { None };
        let (lines, values) = (self.pairs(lines)?, self.pairs(values)?);
        let answers = (0..index(answers)?).map(|_| self.0.text()).collect::<Result<Vec<_>>>()?;
        shared.open()?;
        let mut request = request.ok_or_else(|| invalid("the request is of another policy, which is closed"))?;
        if let Some(peer) = peer {
            request = request.peer(&*String::from_utf8_lossy(peer));
        }
        if let Some(user) = user {
            request = request.user(user);
        }
        for (name, line) in lines {
            request = request.header(&String::from_utf8_lossy(name), line);
        }
        for (name, value) in values {
            request = request.value(&String::from_utf8_lossy(name), value);
        }
        for question in answers {
            request = request.answer_yes(&String::from_utf8_lossy(question));
        }
        Ok(match before {
            Some(before) => request.after(&before),
            None => request,
        })
    }

    fn pairs(&mut self, count: f64) -> Result<Vec<(&'a [u8], &'a [u8])>> {
        (0..index(count)?).map(|_| Ok((self.0.text()?, self.0.text()?))).collect()
    }
}

//! Sends checks and counts what they cost the server.

use std::io;

use redis::{Connection, ConnectionLike as _};
use tidegate_tests::servers::Server;

use crate::callgrind::Profiled;
use crate::cases::Shape;
use crate::script::{Script, Subject};

/// How many checks travel together: a busy client's pipeline.
const PIPELINE: u32 = 50;
/// What is counted first, to be taken off what is counted then.
const WARM: u32 = 100;

/// The instructions of one check: what so many calls more cost, divided by how many they are.
pub(crate) fn instructions(server: &mut Profiled, script: &mut Script, shape: &Shape, calls: u32) -> io::Result<u64> {
    prepare(server, script, shape, WARM + WARM + calls)?;
    let one_key = shape.per_key == u32::MAX;
    let subject = |number| if one_key { Subject::Template } else { Subject::Number(number / shape.per_key) };
    let cost = difference(server, WARM, calls, |server, from, count| {
        check(&mut server.connection, script, shape.admitted, from, count, subject)
    })?;
    judge_state(server, script, shape)?;
    Ok(cost)
}

/// The instructions of a plain command, which say how the instrument stands.
pub(crate) fn plain(server: &mut Profiled, words: &[&str]) -> io::Result<u64> {
    let mut command = redis::Cmd::new();
    let packed = command.arg(words).get_packed_command();
    difference(server, WARM, 1_000, |server, _, count| {
        for _ in 0..count / PIPELINE {
            let replies = send(&mut server.connection, &packed.repeat(PIPELINE as usize), PIPELINE as usize)?;
            debug_assert_eq!(replies.len(), PIPELINE as usize);
        }
        Ok(())
    })
}

/// Counts `warm` calls and then `warm + calls`; the marks, and all else that is not a call, cancel out.
fn difference(
    server: &mut Profiled,
    warm: u32,
    calls: u32,
    mut run: impl FnMut(&mut Profiled, u32, u32) -> io::Result<()>,
) -> io::Result<u64> {
    server.mark()?;
    run(server, 0, warm)?;
    let few = server.mark()?;
    run(server, warm, warm + calls)?;
    let many = server.mark()?;
    let calls = u64::from(calls);
    Ok((many.saturating_sub(few) + calls / 2) / calls)
}

/// One key in the state that a case begins with, and a copy of it for every few calls.
fn prepare(server: &mut Profiled, script: &mut Script, shape: &Shape, calls: u32) -> io::Result<()> {
    let connection = &mut server.connection;
    redis::cmd("FLUSHALL").exec(connection).map_err(io::Error::other)?;
    // A new interpreter, so that no case begins in the middle of another's garbage.
    redis::cmd("SCRIPT").arg("FLUSH").exec(connection).map_err(io::Error::other)?;
    script.load(connection).map_err(io::Error::other)?;
    let copies = if shape.per_key == u32::MAX { 0 } else { calls.div_ceil(shape.per_key) };
    let half = if copies > 0 { shape.per_key / 2 } else { 0 };
    let charged = shape.live - half + u32::from(shape.dying);
    check(connection, script, true, 4_000_000_000, charged, |_| Subject::Template)?;
    if shape.dying {
        script.age_oldest(connection, Subject::Template).map_err(io::Error::other)?;
    }
    for copy in 0..copies {
        for (from, to) in script.keys(Subject::Template).iter().zip(script.keys(Subject::Number(copy))) {
            redis::cmd("COPY").arg(from).arg(to).exec(connection).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// After a case in which one entry dies per call, every key has as many as it should.
fn judge_state(server: &mut Profiled, script: &Script, shape: &Shape) -> io::Result<()> {
    if !shape.dying {
        return Ok(());
    }
    let key = &script.keys(Subject::Number(WARM + 1))[0];
    let is_list = matches!(script, Script::Ours { log: false, .. });
    let length = redis::cmd(if is_list { "LLEN" } else { "ZCARD" }).arg(key).query(&mut server.connection);
    let length: u32 = length.map_err(io::Error::other)?;
    if length == shape.live + 1 { Ok(()) } else { Err(io::Error::other(format!("{length} entries are left"))) }
}

/// Sends checks in pipelines, and fails unless each was answered as expected.
fn check(
    connection: &mut Connection,
    script: &Script,
    admitted: bool,
    from: u32,
    count: u32,
    subject: impl Fn(u32) -> Subject,
) -> io::Result<()> {
    for start in (from..from + count).step_by(PIPELINE as usize) {
        let numbers = start..(start + PIPELINE).min(from + count);
        let length = numbers.len() * script.commands();
        let frames: Vec<u8> = numbers.flat_map(|number| script.frame(subject(number), number)).collect();
        let replies = send(connection, &frames, length)?;
        if let Some(wrong) = replies.chunks(script.commands()).find(|replies| script.admits(replies) != Some(admitted))
        {
            return Err(io::Error::other(format!("a check was not answered as it should: {wrong:?}")));
        }
    }
    Ok(())
}

fn send(connection: &mut Connection, frames: &[u8], count: usize) -> io::Result<Vec<redis::Value>> {
    connection.req_packed_commands(frames, 0, count).map_err(io::Error::other)
}

/// The bytes of one key: what the server's memory has grown by, divided by how many they are.
pub(crate) fn bytes(server: &Server, script: &mut Script, keys: u32, checks: u32) -> io::Result<u64> {
    server.flush();
    script.load(&mut server.connection()).map_err(io::Error::other)?;
    let before = used_memory(server);
    let mut connection = server.connection();
    for round in 0..checks {
        // Unlike any other number of this run, so that no id is twice.
        check(&mut connection, script, true, round * keys, keys, |number| Subject::Number(number % keys))?;
    }
    // Its buffers are not the keys'.
    drop(connection);
    let (grown, keys) = (used_memory(server).saturating_sub(before), u64::from(keys));
    Ok((grown + keys / 2) / keys)
}

fn used_memory(server: &Server) -> u64 {
    server.info("used_memory").and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

//! Many calls in one run of the script: each sees what those before it wrote, and none spoils another's answer.

use tidegate_tests::servers::Server;

/// The packed arguments of one limit, as `lua/decide.lua` documents them.
fn limit(code: u8, quota: u32, cost: u32) -> Vec<u8> {
    let (window, extra) = (60_000_000.0_f64, if code == 3 { f64::from(quota) } else { 0.0 });
    let mut packed = vec![code];
    packed.extend_from_slice(&quota.to_le_bytes()[..3]);
    packed.extend_from_slice(&cost.to_le_bytes()[..3]);
    packed.extend_from_slice(&window.to_le_bytes());
    packed.extend_from_slice(&extra.to_le_bytes());
    packed.extend_from_slice(if code == 2 { b"121000\0" } else { b"61000\0" });
    packed
}

/// What the first limit's head says: the verdict on the whole, the kind, the room.
fn head(reply: &[u8]) -> (u8, u8, u32) {
    let room = u32::from_be_bytes([0, reply[1], reply[2], reply[3]]);
    (reply[0] >> 2, reply[0] & 3, room)
}

#[test]
fn calls_in_one_script_see_each_other_and_fail_alone() {
    let server = Server::start();
    let mut connection = server.connection();
    redis::cmd("SET").arg("foul").arg("not ours").exec(&mut connection).expect("planted");
    let both = [limit(2, 2, 1), limit(3, 5, 1)].concat();
    let calls: [(&[&str], Vec<u8>); 6] = [
        (&["window"], limit(2, 2, 1)),
        (&["window", "bucket"], both.clone()),
        (&["foul"], limit(3, 9, 1)),
        (&["window", "bucket"], both),
        (&["bucket"], limit(3, 5, 4)),
        (&["bucket"], limit(3, 5, 1)),
    ];
    let mut script = redis::cmd("EVAL");
    script.arg(tidegate_lua::SCRIPT).arg(1).arg("window");
    for (keys, arguments) in &calls {
        script.arg(keys.len()).arg(*keys).arg(&arguments[..]);
    }
    let replies: Vec<Vec<u8>> = script.query(&mut connection).expect("one reply a call");

    assert_eq!(replies.len(), calls.len());
    assert_eq!(head(&replies[0]), (0, 2, 1), "the first of two");
    assert_eq!(head(&replies[1]), (0, 2, 0), "the second, and the bucket's first of five");
    assert_eq!(replies[2], b"Xfoul", "another's bytes spoil this answer alone");
    assert_eq!(head(&replies[3]), (1, 0, 0), "the window refuses, so the bucket is not charged");
    assert_eq!(head(&replies[4]), (0, 3, 0), "four were left of five");
    assert_eq!(head(&replies[5]), (1, 0, 0));
}

use super::*;

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn behind(trusted: &[&str], header: &str) -> Client {
    Client::new(&owned(trusted), Some(header), None, None).unwrap()
}

fn told(client: &Client, peer: &str, lines: &[&[u8]]) -> Option<String> {
    client.find(Peer::from(peer), lines).0.map(|address| client.bucket(address))
}

#[test]
fn a_peer_is_told_from_what_frameworks_have() {
    let address = |text: &str| Peer::Address(text.parse().unwrap());
    for (text, expected) in [
        ("1.2.3.4", address("1.2.3.4")),
        (" 1.2.3.4:80", address("1.2.3.4")),
        ("[::1]:80", address("::1")),
        ("::1", address("::1")),
        ("fe80::1%eth0", address("fe80::1")),
        ("::ffff:1.2.3.4", address("1.2.3.4")),
        ("", Peer::Unix),
        ("unix", Peer::Unix),
        ("unix:", Peer::Unix),
        ("unix:/run/app.sock", Peer::Unix),
        ("unixoid", Peer::Unknown),
        ("localhost", Peer::Unknown),
        ("testclient", Peer::Unknown),
        ("1.2.3", Peer::Unknown),
    ] {
        assert_eq!(Peer::from(text), expected, "{text:?}");
    }
    let socket: SocketAddr = "1.2.3.4:80".parse().unwrap();
    assert_eq!(Peer::from(Some(socket)), Peer::from(socket.ip()));
    assert_eq!(Peer::from(None), Peer::Unknown);
    let mapped: IpAddr = "::ffff:1.2.3.4".parse().unwrap();
    let everybody = Client::new(&[], None, None, None).unwrap();
    assert_eq!(everybody.find(Peer::from(mapped), &[]).0, Some("1.2.3.4".parse().unwrap()));
}

#[test]
fn errors_say_what_to_write() {
    let none: &[&str] = &[];
    for (trusted, header, ipv4, ipv6, say) in [
        (none, Some("X-Forwarded-For"), None, None, "as trusted_proxies, such as [\"10.0.0.0/8\"]"),
        (&["10.0.0.0/8"], Some("X-Forwarded-For, Forwarded"), None, None, "write one, such as \"X-Forwarded-For\""),
        (&["10.0.0.0/8"], Some(""), None, None, "write one, such as"),
        (&["10.0.0.0/8"], Some("X-Réal-IP"), None, None, "write one, such as"),
        (&["10.0.0.1/8"], None, None, None, "trusted_proxies: \"10.0.0.1/8\""),
        (&["0.0.0.0/0"], None, None, None, "trusted_proxies: \"0.0.0.0/0\" trusts strangers"),
        (none, None, Some(33), None, "ipv4_prefix = 33 is not meant; write 8 to 32"),
        (none, None, Some(7), None, "write 8 to 32"),
        (none, None, None, Some(31), "ipv6_prefix = 31 is not meant; write 32 to 128"),
        (none, None, None, Some(129), "write 32 to 128"),
    ] {
        let error = Client::new(&owned(trusted), header, ipv4, ipv6).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidDocument);
        assert!(error.message().contains(say), "{error}");
    }
}

#[test]
fn only_the_header_that_was_named_is_read() {
    assert_eq!(Client::new(&[], None, None, None).unwrap().header(), None);
    let trusted = owned(&["unix"]);
    assert_eq!(Client::new(&trusted, None, None, None).unwrap().header(), Some("x-forwarded-for"));
    assert_eq!(behind(&["loopback"], "CF-Connecting-IP").header(), Some("cf-connecting-ip"));
}

/// What a stranger may send: what means something in these headers, cut and mixed, and any other bytes.
fn forged(random: &mut fastrand::Rng) -> Vec<u8> {
    const PIECES: &[&[u8]] = &[
        b"\"",
        b"\\",
        b",",
        b";",
        b"=",
        b" ",
        b"\t",
        b"for=",
        b"For=\"",
        b"by=",
        b"proto=https",
        b"10.0.0.1",
        b"9.9.9.9",
        b"[",
        b"]",
        b":",
        b"::1",
        b"2001:db8:9::1",
        b"%eth0",
        b"unknown",
        b"_x",
        b"host=\"",
        b"\\\"",
        b"\xff",
        b"\0",
        b"::ffff:9.9.9.9",
        b"203.0.113.",
        b":80",
    ];
    let mut text = Vec::new();
    for _ in 0..random.usize(0..12) {
        if random.u8(0..8) == 0 {
            text.push(random.u8(..));
        } else {
            text.extend_from_slice(PIECES[random.usize(0..PIECES.len())]);
        }
    }
    text
}

/// A stranger sends anything, on some lines; the proxy appends what it sees, behind a comma or on a line of its own.
fn appended(random: &mut fastrand::Rng, entry: &str) -> Vec<Vec<u8>> {
    let mut lines: Vec<_> = (0..random.usize(0..3)).map(|_| forged(random)).collect();
    match lines.last_mut() {
        Some(line) if random.bool() => {
            line.extend_from_slice(if random.bool() { b", " } else { b"," });
            line.extend_from_slice(entry.as_bytes());
        }
        _ => lines.push(entry.as_bytes().to_vec()),
    }
    lines
}

const ROUNDS: usize = 50_000;

#[test]
fn nothing_that_a_stranger_sends_changes_what_proxies_append() {
    let mut random = fastrand::Rng::with_seed(4);
    for (header, entries) in [
        (
            "X-Forwarded-For",
            &["203.0.113.7", "203.0.113.7:4711, 10.0.0.2", "::ffff:203.0.113.7,10.0.0.3 ,\t10.0.0.2:80"][..],
        ),
        (
            "Forwarded",
            &[
                "for=203.0.113.7",
                "for=\"203.0.113.7:4711\"",
                "for=\"[::ffff:203.0.113.7]\";host=\"a\\\\\\\", for=9.9.9.9, \\\"\";proto=https",
                "proto=http;for=203.0.113.7;by=\"_x\",for=10.0.0.3, by=\"\";for=\"10.0.0.2\"",
            ],
        ),
    ] {
        let client = behind(&["10.0.0.0/8"], header);
        for round in 0..ROUNDS {
            let lines = appended(&mut random, entries[round % entries.len()]);
            let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
            let shown = || lines.iter().map(|line| line.escape_ascii().to_string()).collect::<Vec<_>>();
            assert_eq!(told(&client, "10.0.0.1", &lines).as_deref(), Some("203.0.113.7"), "{:?}", shown());
        }
    }
}

#[test]
fn no_header_buys_a_fresh_bucket() {
    let mut random = fastrand::Rng::with_seed(5);
    let single = ["X-Real-IP", "CF-Connecting-IP", "CloudFront-Viewer-Address"];
    for header in ["X-Forwarded-For", "Forwarded"].into_iter().chain(single) {
        let (client, socket) = (behind(&["10.0.0.0/8"], header), behind(&["unix"], header));
        for _ in 0..ROUNDS / 2 {
            let lines: Vec<_> = (0..random.usize(0..4)).map(|_| forged(&mut random)).collect();
            let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
            // To the server itself.
            assert_eq!(told(&client, "203.0.113.7", &lines).as_deref(), Some("203.0.113.7"));
            assert_eq!(told(&client, "", &lines), None);
            assert_eq!(told(&client, "rubbish", &lines), None);
            assert_eq!(told(&socket, "203.0.113.7", &lines).as_deref(), Some("203.0.113.7"));
            // Through a proxy that adds a line where it should set one: nobody knows which is its own.
            if single.contains(&header) && !lines.is_empty() {
                let lines = [&lines[..], &[&b"203.0.113.7"[..]]].concat();
                assert_eq!(told(&client, "10.0.0.1", &lines).as_deref(), Some("10.0.0.1"));
                assert_eq!(told(&socket, "unix:", &lines), None);
            }
        }
    }
}

#[test]
fn all_of_an_ipv6_network_is_one_client_and_an_ipv4_address_has_one_name() {
    let mut random = fastrand::Rng::with_seed(6);
    let client = behind(&["10.0.0.0/8"], "X-Forwarded-For");
    for _ in 0..1000 {
        let within = IpAddr::from((0x2001_0db8_0000_0007_u128 << 64 | u128::from(random.u64(..))).to_be_bytes());
        assert_eq!(client.bucket(within), "2001:db8:0:7::/64");
        let [a, b, c, d] = random.u32(..).to_be_bytes();
        let (plain, mapped) = (format!("{a}.{b}.{c}.{d}"), format!("[::ffff:{a}.{b}.{c}.{d}]:80"));
        assert_eq!(told(&client, &mapped, &[]), Some(plain));
    }
}

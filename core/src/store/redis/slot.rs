//! Hash slots of a cluster (CRC16/XMODEM of the part in braces, modulo 16384).

pub(super) fn of(key: &[u8]) -> u16 {
    let braced = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    braced.unwrap_or(key).iter().fold(0, |crc, byte| crc16(crc, *byte)) % 16_384
}

fn crc16(crc: u16, byte: u8) -> u16 {
    (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_slot_is_what_the_cluster_specification_says() {
        assert_eq!(super::of(b"123456789"), 0x31c3);
        assert_eq!(super::of(b"{user1000}.following"), super::of(b"{user1000}.followers"));
        assert_ne!(super::of(b"{user1000}.following"), super::of(b"user1000.following"));
        // Empty braces mean nothing.
        assert_ne!(super::of(b"foo{}{bar}"), super::of(b"{bar}"));
        assert_ne!(super::of(b"foo{}{bar}"), super::of(b""));
    }
}

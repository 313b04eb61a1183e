//! Hash slots of a cluster (CRC16/XMODEM of the part in braces, modulo 16384).

pub(super) fn of(key: &[u8]) -> u16 {
    let braced = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let step = |crc: u16, byte: &u8| (crc << 8) ^ CRC16[usize::from((crc >> 8) ^ u16::from(*byte))];
    braced.unwrap_or(key).iter().fold(0, step) % 16_384
}

/// What each byte makes of a CRC16 by the polynomial 0x1021.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

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

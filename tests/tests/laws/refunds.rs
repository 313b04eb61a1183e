//! Law 5: a refund removes what was kept of one charge, once, and mints nothing.

use tidegate::{ErrorKind, Limiter, Receipt};
use tidegate_tests::limiters::{
    ALGORITHMS, Place, Random, SECOND, Sure, charged_at, drain, figures, for_each_server, for_each_store,
};

fn refund(limiter: &Limiter, receipt: &Receipt) -> bool {
    limiter.refund(receipt).wait().expect("the store works, and the receipt is fresh")
}

/// How a key stands, seen by the smallest and by the largest cost.
fn standing(limiter: &Limiter, key: &str) -> Vec<(bool, u32, Option<u64>, Option<u64>)> {
    let whole = u64::from(limiter.peek("r", key).sure().binding().burst());
    [1, 2, whole].map(|cost| figures(&limiter.peek("r", key).cost(cost).sure())).to_vec()
}

fn rates() -> impl Iterator<Item = String> {
    let more = ["9/10s precision 700ms", "7/10s burst 20", "999_983/d burst 12"].map(str::to_owned);
    ALGORITHMS.into_iter().map(|algorithm| format!("9/10s {algorithm}")).chain(more)
}

#[test]
fn law_05_a_refund_makes_a_charge_never_have_been() {
    for_each_store(|place| {
        for (index, limits) in rates().enumerate() {
            let limiter = place.limiter(&[("r", &limits)]);
            let mut random = Random::new(5);
            for round in 0..8 {
                // One key is charged and refunded where its twin is left alone.
                let (key, twin) = (format!("{index} {round}"), format!("{index} {round} twin"));
                for _ in 0..random.below(4) {
                    let cost = 1 + random.below(2);
                    let pair = [&key, &twin].map(|key| limiter.check("r", key).cost(cost).sure().allowed());
                    assert_eq!(pair[0], pair[1]);
                    place.clock.forward(random.below(2 * SECOND));
                }
                let charged = limiter.check("r", &key).cost(1 + random.below(3)).sure();
                if charged.allowed() {
                    place.clock.forward(random.below(4 * SECOND));
                    let left = standing(&limiter, &key) != standing(&limiter, &twin);
                    let refunded = refund(&limiter, &charged.receipt());
                    assert!(refunded || !left, "{limits}, round {round}: something was left to give back");
                }
                assert_eq!(standing(&limiter, &key), standing(&limiter, &twin), "{limits}, round {round}");
            }
        }
    });
}

#[test]
fn law_05_charges_made_in_between_stay_where_they_were() {
    for_each_store(|place| {
        for limits in ["9/10s sliding_window_log", "9/10s", "9/10s precision 700ms", "9/10s fixed_window"] {
            let limiter = place.limiter(&[("r", limits)]);
            for taken in 0..4 {
                // The charge at place `taken` of four is refunded at the end; its twin never had it.
                let (key, twin) = (format!("{limits} {taken}"), format!("{limits} {taken} twin"));
                let mut receipt = None;
                for charge in 0..4 {
                    let decision = limiter.check("r", &key).cost(1 + charge % 2).sure();
                    if charge == taken {
                        receipt = Some(decision.receipt());
                    } else {
                        assert!(limiter.check("r", &twin).cost(1 + charge % 2).sure().allowed());
                    }
                    place.clock.forward(300_007);
                }
                assert!(refund(&limiter, &receipt.expect("one of the four")), "{limits}, {taken}");
                for _ in 0..12 {
                    assert_eq!(standing(&limiter, &key), standing(&limiter, &twin), "{limits}, {taken}");
                    place.clock.forward(SECOND);
                }
            }
        }
    });
}

#[test]
fn law_05_what_a_refund_frees_is_admitted_again_and_no_more() {
    for_each_store(|place| {
        for (index, limits) in rates().enumerate() {
            let (key, limiter) = (format!("u{index}"), place.limiter(&[("r", &limits)]));
            let charged = limiter.check("r", &key).cost(3).sure();
            let most = drain(&limiter, "r", &key, 100);
            assert_eq!(most + 3, usize::try_from(charged.binding().burst()).expect("it is small"));
            assert!(refund(&limiter, &charged.receipt()), "{limits}");
            assert_eq!(drain(&limiter, "r", &key, 100), 3, "{limits}");
        }
    });
}

#[test]
fn law_05_a_bucket_gives_back_only_what_the_refill_has_not() {
    for_each_store(|place| {
        // One unit a second; the bucket holds ten.
        let limiter = place.limiter(&[("r", "10/10s burst 10")]);
        let charged = limiter.check("r", "a").cost(8).sure();
        place.clock.forward(3 * SECOND);
        // Three of the eight are back already; five are lent, and two more after the next charge.
        assert_eq!(limiter.check("r", "a").cost(2).sure().remaining(), 3);
        assert!(refund(&limiter, &charged.receipt()));
        assert_eq!(limiter.peek("r", "a").sure().remaining(), 8, "the two of the second charge are still lent");

        let charged = limiter.check("r", "b").cost(8).sure();
        place.clock.forward(8 * SECOND);
        assert!(limiter.check("r", "b").cost(10).sure().allowed());
        assert!(!refund(&limiter, &charged.receipt()), "all eight are back, and are used by somebody else");
        assert_eq!(limiter.peek("r", "b").sure().remaining(), 0);
    });
}

#[test]
fn law_05_a_receipt_is_refunded_once_copies_included() {
    for_each_store(|place| {
        for (index, limits) in rates().enumerate() {
            let (key, limiter) = (format!("u{index}"), place.limiter(&[("r", &limits)]));
            let _ = (limiter.check("r", &key).sure(), limiter.check("r", &key).sure());
            let receipt = limiter.check("r", &key).sure().receipt();
            let copy: Receipt = receipt.to_string().parse().expect("a receipt reads what it wrote");
            assert_eq!(copy, receipt);
            assert!(refund(&limiter.clone(), &copy), "{limits}");
            let before = (standing(&limiter, &key), place.stored());
            for again in [receipt.clone(), copy, receipt.to_string().parse().expect("it is the same text")] {
                let error = limiter.refund(&again).wait().expect_err("it is spent");
                assert_eq!(error.kind(), ErrorKind::InvalidReceipt, "{limits}");
            }
            assert_eq!((standing(&limiter, &key), place.stored()), before, "{limits}");
        }
    });
}

#[test]
fn law_05_a_receipt_is_spent_for_every_limiter_of_the_process() {
    for_each_server(|place| {
        let rules = [("r", "9/10s burst 9")];
        let (limiter, other) = (place.limiter(&rules), place.limiter(&rules));
        assert!(limiter.check("r", "a").cost(5).sure().allowed());
        let receipt = limiter.check("r", "a").cost(2).sure().receipt();
        assert!(refund(&limiter, &receipt));
        let again = other.refund(&receipt).wait().map_err(|error| error.kind());
        assert_eq!(again, Err(ErrorKind::InvalidReceipt));
        assert_eq!(limiter.peek("r", "a").sure().remaining(), 4);
    });
}

#[test]
fn law_05_a_refund_creates_no_key_and_moves_no_expiry() {
    for_each_store(|place| {
        for (index, limits) in rates().enumerate() {
            let (key, limiter) = (format!("u{index}"), place.limiter(&[("r", &limits)]));
            let spared = limiter.check("r", &key).sure().receipt();
            let receipt = limiter.check("r", &key).sure().receipt();
            let before = place.stored();
            place.clock.forward(SECOND / 1_000);
            assert!(refund(&limiter, &receipt), "{limits}");
            let after = place.stored();
            let ends = |stored: &[(Vec<u8>, Vec<u8>, i64)]| {
                stored.iter().map(|(key, _, end)| (key.clone(), *end)).collect::<Vec<_>>()
            };
            assert_eq!(ends(&before), ends(&after), "{limits}");
            assert!(place.is_memory() || before != after, "{limits}: the value is another");

            limiter.reset("r", &key).wait().expect("the store works");
            let keys = (place.stored(), limiter.metrics().keys);
            assert!(!refund(&limiter, &spared), "{limits}: there is nothing to give back to");
            assert_eq!((place.stored(), limiter.metrics().keys), keys, "{limits}");
        }
    });
}

#[test]
fn law_05_what_has_expired_is_not_given_back() {
    for_each_store(|place| {
        for (index, limits) in rates().filter(|limits| !limits.contains("burst")).enumerate() {
            let limiter = place.limiter(&[("r", &limits)]);
            // A fixed window ends with the clock's; of the counter two windows pass; the others live for one.
            let life = if limits.contains("counter") { 20 } else { 10 } * SECOND;
            // What is dead may still be stored, or the next charge has swept it out.
            for swept in [false, true] {
                let key = format!("{index} {swept}");
                let receipt = limiter.check("r", &key).cost(4).sure().receipt();
                place.clock.set(charged_at(&receipt) + life);
                assert!(!swept || limiter.check("r", &key).cost(5).sure().allowed(), "{limits}");
                let before = (standing(&limiter, &key), place.stored());
                assert!(!refund(&limiter, &receipt), "{limits}, swept: {swept}");
                assert_eq!((standing(&limiter, &key), place.stored()), before, "{limits}, swept: {swept}");
            }
        }
    });
}

#[test]
fn law_05_every_limit_that_was_charged_gets_its_own_back() {
    let limits = "9/10s; 8/20s sliding_window_log; 7/10s burst 7; 6/10s fixed_window; 5/10s sliding_window_counter; \
                  1/h shadow named watch";
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", limits)]);
        let left = |limiter: &Limiter| {
            limiter.peek("r", "a").sure().limits().map(|limit| limit.remaining()).collect::<Vec<_>>()
        };
        assert!(limiter.check("r", "a").sure().allowed());
        assert_eq!(left(&limiter), [8, 7, 6, 5, 4, 0]);
        let receipt = limiter.check("r", "a").cost(2).sure().receipt();
        assert_eq!(receipt.charged_at().count(), 5, "the shadow limit refused, and was not charged");
        assert_eq!(left(&limiter), [6, 5, 4, 3, 2, 0]);
        assert!(refund(&limiter, &receipt));
        assert_eq!(left(&limiter), [8, 7, 6, 5, 4, 0]);
    });
}

#[test]
fn law_05_receipts_that_charged_nothing_or_are_not_ours_give_nothing_back() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "1/h sliding_window_log")]);
        let first = limiter.check("r", "a").request_id("one").sure();
        let repeat = limiter.check("r", "a").request_id("one").sure();
        assert!(repeat.is_repeat() && repeat.receipt().is_empty());
        let refused = limiter.check("r", "a").sure();
        for nothing in [repeat, refused] {
            assert!(!refund(&limiter, &nothing.receipt()));
        }
        assert_eq!(limiter.peek("r", "a").sure().remaining(), 0);

        let stranger = Place::memory().limiter(&[("r", "1/h")]).check("r", "a").sure().receipt();
        let error = limiter.refund(&stranger).wait().expect_err("it is of another prefix");
        assert_eq!(error.kind(), ErrorKind::InvalidReceipt);
        let text = first.receipt().to_string();
        for broken in ["", "receipt", &text[1..], &text[..text.len() - 4], &format!("{text}AAAA"), &text.to_uppercase()]
        {
            let error = broken.parse::<Receipt>().expect_err(broken);
            assert_eq!(error.kind(), ErrorKind::InvalidReceipt, "{broken:?}");
        }
    });
}

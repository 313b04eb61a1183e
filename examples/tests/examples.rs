//! The examples run, and say what they should.

use std::process::Command;

fn output(program: &str) -> String {
    let output = Command::new(program).env_remove("TIDEGATE_URL").output().expect("the example starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn tiers() {
    let output = output(env!("CARGO_BIN_EXE_tiers"));
    // The bucket refills while the loop runs, so a slow machine admits a few more.
    let admitted = |customer: &str| -> u32 {
        let line = output.lines().find_map(|line| line.strip_prefix(customer)).expect("a line a customer");
        line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    assert!((20..40).contains(&admitted("free: ")), "{output}");
    assert_eq!(admitted("gold: "), 40);
    assert!(output.contains("export 7: 1 left, and 1 left when it is sent again"), "{output}");
}

#[test]
fn outbound() {
    assert!(output(env!("CARGO_BIN_EXE_outbound")).starts_with("20 of 20 mails sent"));
}

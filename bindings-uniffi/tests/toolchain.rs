//! `scripts/toolchain`: what cannot be tested here is left out, and told.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Whether a language's tests would run where there are these commands alone, and what is told of it.
fn toolchain(language: &str, commands: &[(&str, &str)]) -> std::io::Result<(Option<i32>, String)> {
    let folder = tempfile::tempdir()?;
    for (name, script) in commands {
        let command = folder.path().join(name);
        fs::write(&command, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755))?;
    }
    for tool in ["sed", "head"] {
        let path = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
        let path = path.iter().find(|path| path.exists()).expect("every system has it");
        std::os::unix::fs::symlink(path, folder.path().join(tool))?;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/toolchain");
    let ran = Command::new(script).arg(language).env("PATH", folder.path()).output()?;
    Ok((ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned()))
}

#[test]
fn what_is_left_out_is_told_with_its_reason() -> std::io::Result<()> {
    let java = |version: &str| ("java", format!("echo 'openjdk version \"{version}\" 2026-01-01' >&2"));
    let (old, new) = (java("11.0.2"), java("17.0.1"));
    let (old, new) = ((old.0, old.1.as_str()), (new.0, new.1.as_str()));
    let (javac, mvn) = (("javac", ""), ("mvn", ""));
    for (language, commands, why) in [
        ("jvm", &[][..], "LEFT OUT: the tests of Kotlin and Java, since there is no java"),
        ("jvm", &[new, mvn], "since there is no javac"),
        ("jvm", &[new, javac], "since there is no mvn"),
        ("jvm", &[old, javac, mvn], "since java is 11"),
        ("ruby", &[], "LEFT OUT: the tests of Ruby, since there is no Ruby 3.1 with the gems ffi"),
        ("swift", &[], "LEFT OUT: the tests of Swift, since there is no swift"),
    ] {
        let (code, told) = toolchain(language, commands)?;
        assert_eq!(code, Some(1), "{language} {commands:?}: {told}");
        assert!(told.contains(why), "{language} {commands:?}: {told}");
    }
    for (language, commands) in
        [("jvm", &[new, javac, mvn][..]), ("ruby", &[("ruby", "")]), ("swift", &[("swift", "")])]
    {
        assert_eq!(toolchain(language, commands)?, (Some(0), String::new()), "{language}");
    }
    Ok(())
}

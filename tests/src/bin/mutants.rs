//! `make mutants`: breaks the scripts and the algorithms in each of the ways that `tests/mutants.toml` lists, and runs
//! the tests on each. A mutation that no test notices is a failure.
//!
//! A broken script is handed to test programs that are built once. A broken algorithm is built in a copy of the
//! workspace, so that the work tree is never touched. Before anything is broken the same tests have to pass.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde::Deserialize;

#[derive(Deserialize)]
struct List {
    mutation: Vec<Mutation>,
}

#[derive(Deserialize)]
struct Mutation {
    /// From the root of the workspace.
    file: PathBuf,
    /// Text that stands there once.
    from: String,
    to: String,
    /// Whether `make test` runs it too.
    #[serde(default)]
    quick: bool,
}

type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    match run(std::env::args().any(|argument| argument == "--quick")) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            say(&format!("mutants: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// How many mutations no test noticed.
fn run(quick: bool) -> Outcome<usize> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace")?;
    let list: List = toml::from_str(&read(&root.join("tests/mutants.toml"))?).map_err(|error| error.to_string())?;
    let chosen: Vec<Mutation> = list.mutation.into_iter().filter(|mutation| mutation.quick || !quick).collect();
    let copy = Copy::of(root)?;
    cargo(
        root,
        &["test", "-p", "tidegate-tests", "--test", "vectors", "--test", "hunt", "--test", "laws", "--no-run"],
        &[],
    )?
    .then_some(())
    .ok_or("the tests do not build")?;
    if !passes_in_script(root, tidegate_lua::SCRIPT_ON_GIVEN_CLOCK)? || !copy.passes()? {
        return Err("the tests fail before anything is broken; run make test".into());
    }
    let mut missed = 0;
    for (number, mutation) in chosen.iter().enumerate() {
        let noticed =
            if mutation.file.starts_with("lua") { in_script(root, mutation)? } else { copy.notices(mutation)? };
        missed += usize::from(!noticed);
        let verdict = if noticed { "noticed" } else { "MISSED " };
        let (file, from, to) = (mutation.file.display(), one_line(&mutation.from), one_line(&mutation.to));
        say(&format!("{:3}/{} {verdict} {file}: {from} -> {to}", number + 1, chosen.len()));
    }
    say(&format!("mutants: {} passed, {missed} failed", chosen.len() - missed));
    Ok(missed)
}

/// Whether a test notices a broken script.
fn in_script(root: &Path, mutation: &Mutation) -> Outcome<bool> {
    let part = read(&root.join(&mutation.file))?;
    Ok(!passes_in_script(root, &tidegate_lua::SCRIPT_ON_GIVEN_CLOCK.replace(&part, &broken(&part, mutation)?))?)
}

fn passes_in_script(root: &Path, script: &str) -> Outcome<bool> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    std::fs::write(file.path(), script).map_err(|error| error.to_string())?;
    let path = file.path().to_string_lossy();
    let environment = [("TIDEGATE_TEST_SCRIPT", &*path), ("HUNT_HISTORIES", "150")];
    for test in [["vectors", "redis"], ["hunt", "memory_and_redis"], ["laws", "law_11"]] {
        if !cargo(root, &["test", "-q", "-p", "tidegate-tests", "--test", test[0], test[1]], &environment)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A copy of the workspace's sources that shares its target folder. It is of another version: to cargo the same one
/// would be the same package, and what was built from broken sources would pass for the workspace's own.
struct Copy {
    folder: PathBuf,
}

impl Copy {
    fn of(root: &Path) -> Outcome<Copy> {
        let folder = root.join("target/mutants");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let copied = Command::new("sh")
            .args([
                "-c",
                "git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t target/mutants",
            ])
            .current_dir(root)
            .status();
        if !copied.is_ok_and(|status| status.success()) {
            return Err("the sources were not copied".into());
        }
        let manifest = folder.join("Cargo.toml");
        let text = read(&manifest)?;
        let version = format!("[workspace.package]\nversion = {:?}", env!("CARGO_PKG_VERSION"));
        if !text.contains(&version) {
            return Err("the workspace's version was not found in Cargo.toml".into());
        }
        write(&manifest, &text.replace(&version, "[workspace.package]\nversion = \"0.1.999\""))?;
        Ok(Copy { folder })
    }

    fn passes(&self) -> Outcome<bool> {
        let tests = ["test", "-q", "-p", "tidegate-tests", "--test", "vectors", "--test", "oracle", "memory"];
        cargo(&self.folder, &tests, &[])
    }

    fn notices(&self, mutation: &Mutation) -> Outcome<bool> {
        let file = self.folder.join(&mutation.file);
        let whole = read(&file)?;
        write(&file, &broken(&whole, mutation)?)?;
        let builds = cargo(&self.folder, &["check", "-q", "-p", "tidegate"], &[])?;
        let passes = builds && self.passes()?;
        write(&file, &whole)?;
        if builds { Ok(!passes) } else { Err(format!("{} does not build when broken", mutation.file.display())) }
    }
}

fn broken(text: &str, mutation: &Mutation) -> Outcome<String> {
    match text.matches(&mutation.from).count() {
        1 => Ok(text.replace(&mutation.from, &mutation.to)),
        count => Err(format!("{:?} stands {count} times in {}; name it once", mutation.from, mutation.file.display())),
    }
}

fn cargo(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome<bool> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target).env("RUST_BACKTRACE", "0");
    command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(|status| status.success()).map_err(|error| error.to_string())
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome<()> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

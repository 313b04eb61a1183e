//! Every language is generated of the library as it was just built, and calls nothing that the library has not.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use tidegate_bindgen::generate;

/// The library stands beside the tests that were built with it.
fn library() -> Result<Utf8PathBuf> {
    let test = std::env::current_exe()?;
    let name = format!("{}tidegate_uniffi{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let library = test.parent().context("a test stands in a folder")?.join(name);
    Utf8PathBuf::from_path_buf(library).map_err(|path| anyhow::anyhow!("{} is not UTF-8", path.display()))
}

/// What a language's files say, each behind its name.
fn generated(language: &str) -> Result<Vec<(String, String)>> {
    let folder = Utf8Path::new(env!("CARGO_TARGET_TMPDIR")).join(language);
    let _ = fs::remove_dir_all(&folder);
    generate(language, &library()?, &folder)?;
    let mut files = Vec::new();
    read(folder.as_std_path(), &mut files)?;
    files.sort();
    Ok(files)
}

fn read(folder: &Path, into: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, into)?;
        } else {
            let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
            into.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// The functions of the library that a text names.
fn functions(text: &str) -> Vec<&str> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut names: Vec<&str> = text
        .split(|letter| !is_name(letter))
        .filter(|word| word.starts_with("uniffi_tidegate_uniffi_") || word.starts_with("ffi_tidegate_uniffi_"))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn assert_has(library: &[u8], text: &str) -> Result<()> {
    let functions = functions(text);
    ensure!(functions.len() > 50, "only {} functions are called", functions.len());
    for function in functions {
        // A symbol's name ends with a zero.
        let symbol = [function.as_bytes(), b"\0"].concat();
        let is_there = library.windows(symbol.len()).any(|window| window == symbol);
        ensure!(is_there, "{function} is called, and the library has none");
    }
    Ok(())
}

#[test]
fn swift_has_its_module_map_and_a_header_that_compiles() -> Result<()> {
    let files = generated("swift")?;
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Tidegate.swift", "TidegateFFI.h", "TidegateFFI.modulemap"]);
    let (swift, header, map) = (&files[0].1, &files[1].1, &files[2].1);
    for declared in [
        "open class Limiter",
        "open class AsyncLimiter",
        "open class Policy",
        "open class AsyncPolicy",
        "open func check(rules: [String], key: Key, options: Options)async throws  -> Decision",
        "open func admit(method: String, path: String, told: Told)async throws  -> Admission",
        "convenience init(source: Source)throws",
        "open func asynchronous() -> AsyncLimiter",
        "open func peek(rules: [String], key: Key, options: Options)throws -> Decision",
        "open func refund(receipt: String)throws -> Bool",
        "open func settle(status: Int32)throws",
        "public struct Decision: Equatable, Hashable",
        "public enum TidegateError",
        "case unknownRule",
        "#if canImport(TidegateFFI)",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<String>().to_lowercase();
        assert!(squeezed(swift).contains(&squeezed(declared)), "there is no {declared:?}");
    }
    assert!(!swift.contains("class Queue"), "the queue is the JVM's");
    assert!(map.contains("module TidegateFFI") && map.contains("header \"TidegateFFI.h\""), "{map}");
    assert_has(&fs::read(library()?)?, header)?;

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("swift");
    // Swift's compiler knows these two, and others need not.
    let compiled = Command::new("cc")
        .current_dir(&folder)
        .args(["-x", "c", "-std=c11", "-D_Nonnull=", "-D_Nullable=", "-fsyntax-only", "TidegateFFI.h"])
        .output()?;
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Ok(())
}

#[test]
fn the_page_of_swift_shows_what_its_package_tests() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let tests = squeezed(&fs::read_to_string(root.join("swift/Tests/TidegateTests/PageTests.swift"))?);
    let page = fs::read_to_string(root.join("../docs/swift.md"))?;
    let mut shown = 0;
    for block in page.split("```swift\n").skip(1) {
        let (block, _) = block.split_once("```").context("a block ends")?;
        // Imports come first, and code after them.
        for part in block.split("\n\n") {
            ensure!(tests.contains(&squeezed(part)), "PageTests.swift has not:\n{part}");
            shown += 1;
        }
    }
    assert!(shown >= 5, "only {shown} parts are shown");
    Ok(())
}

#[test]
fn kotlin_is_one_package() -> Result<()> {
    let files = generated("kotlin")?;
    assert_eq!(files.len(), 1);
    let kotlin = &files[0].1;
    for declared in [
        "package tidegate\n",
        "open class NativeLimiter",
        "data class Decision",
        "enum class Origin",
        // Java would have to catch another Exception at each call.
        "sealed class NativeException(text: String): TidegateException(text)",
        "): Disposable, Telling {",
    ] {
        assert!(kotlin.contains(declared), "there is no {declared:?}");
    }
    for unsigned in ["kotlin.ULong", "kotlin.UInt"] {
        let fields: Vec<&str> =
            kotlin.lines().filter(|line| line.contains("val `") && line.contains(unsigned)).collect();
        assert!(fields.is_empty(), "Java has no {unsigned}: {fields:?}");
    }
    assert_has(&fs::read(library()?)?, kotlin)
}

#[test]
fn ruby_lets_other_threads_run_while_a_call_waits() -> Result<()> {
    let files = generated("ruby")?;
    assert_eq!(files.len(), 1);
    let ruby = &files[0].1;
    let attached = |function: &str| {
        let start = ruby
            .find(&format!("attach_function :uniffi_tidegate_uniffi_fn_method_{function},"))
            .context(function.to_owned())?;
        let rest = &ruby[start + 1..];
        anyhow::Ok(&rest[..rest.find("attach_function").unwrap_or(rest.len())])
    };
    for waits in ["limiter_check", "limiter_ready", "acquiring_wait", "policy_admit", "charge_settle_and_wait"] {
        assert!(attached(waits)?.contains("blocking: true"), "{waits} would stop every thread");
    }
    assert!(!attached("limiter_close")?.contains("blocking"), "{:?}", attached("limiter_close")?);
    assert!(ruby.contains("ffi_lib ::Tidegate::LIBRARY"));
    assert_has(&fs::read(library()?)?, ruby)
}

#[test]
fn what_cannot_be_generated_says_why() -> Result<()> {
    let folder = Utf8Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing");
    let error = |language: &str, library: &Utf8Path| match generate(language, library, &folder) {
        Ok(()) => String::new(),
        Err(error) => format!("{error:#}"),
    };
    assert!(error("cobol", &library()?).contains("write kotlin, ruby or swift"));
    assert!(error("swift", Utf8Path::new("/nowhere.so")).contains("there is no /nowhere.so"));
    Ok(())
}

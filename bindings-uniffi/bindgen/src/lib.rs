//! Writes what calls the library from `kotlin`, `ruby` or `swift`. The library is any build of `tidegate-uniffi` that is not
//! stripped: it carries its own description.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use camino::Utf8Path;
use uniffi_bindgen::bindings::{GenerateOptions, TargetLanguage, generate as write};

/// What the generators are told.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../uniffi.toml");

/// Writes the files of a language into a folder, which is made.
///
/// # Errors
/// Where the language is none of the three, the library is not there or says nothing of itself, or the folder cannot be
/// written.
pub fn generate(language: &str, library: &Utf8Path, folder: &Utf8Path) -> Result<()> {
    let target = match language {
        "kotlin" => TargetLanguage::Kotlin,
        "ruby" => TargetLanguage::Ruby,
        "swift" => TargetLanguage::Swift,
        other => bail!("there is no language {other:?}; write kotlin, ruby or swift"),
    };
    ensure!(library.exists(), "there is no {library}; build it by cargo build -p tidegate-uniffi");
    let options = GenerateOptions {
        languages: vec![target],
        source: library.to_owned(),
        out_dir: folder.to_owned(),
        config_override: Some(CONFIG.into()),
        ..GenerateOptions::default()
    };
    let advice = "one that is stripped says nothing of itself: give it another build, such as target/debug's";
    write(options).with_context(|| format!("no {language} can be made of {library}; {advice}"))?;
    match language {
        "kotlin" => rewrite(&folder.join("tidegate/tidegate_ffi.kt"), renamed),
        "ruby" => rewrite(&folder.join("tidegate_ffi.rb"), unlocked),
        _ => Ok(()),
    }
}

fn rewrite(file: &Utf8Path, rewritten: fn(&str) -> Result<String>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))?;
    Ok(fs::write(file, rewritten(&text)?)?)
}

/// What the generator leaves in Kotlin, and what is to stand there: the library is where the jar has it, errors are those of the
/// package, which Java need not catch, what is told has its `with..` for Java, and constructors return and throw what
/// `uniffi.toml` renames (the generator renames all but them).
const RENAMED: &[(&str, &str)] = &[
    ("return \"tidegate_uniffi\"", "return LibraryFile.path()"),
    (
        "NativeException(message: String): kotlin.Exception(message)",
        "NativeException(text: String): TidegateException(text)",
    ),
    (
        "throw IllegalStateException(\"${this.javaClass.simpleName} object has already been destroyed\")",
        "throw TidegateException.invalid(\"the ${this.javaClass.simpleName.lowercase()} is closed; close it after this call\")",
    ),
    ("val `after`: Charge? = null \n    \n): Disposable{", "val `after`: Charge? = null\n): Disposable, Telling {"),
    ("(TidegateException)", "(NativeException)"),
    ("(TidegateException::class)", "(NativeException::class)"),
    ("`clock`: Clock): Limiter {", "`clock`: Clock): NativeLimiter {"),
    ("FfiConverterTypeLimiter.lift", "FfiConverterTypeNativeLimiter.lift"),
    ("`clock`: Clock): Policy {", "`clock`: Clock): NativePolicy {"),
    ("kotlin.String): Policy {", "kotlin.String): NativePolicy {"),
    ("FfiConverterTypePolicy.lift", "FfiConverterTypeNativePolicy.lift"),
];

/// Kotlin that finds the library, and whose constructors tell what they make.
fn renamed(text: &str) -> Result<String> {
    let mut text = text.to_owned();
    for (old, new) in RENAMED {
        ensure!(text.contains(old), "the generated Kotlin has no {old} any more: take it off this list");
        text = text.replace(old, new);
    }
    Ok(text)
}

/// The functions that may wait for a server, or for another thread.
const WAIT: &[&str] = &[
    "limiter_check",
    "limiter_peek",
    "limiter_refund",
    "limiter_reset",
    "limiter_count",
    "limiter_take_back",
    "limiter_ready",
    "acquiring_wait",
    "policy_admit",
    "policy_ready",
    "charge_settle_and_wait",
];

/// Ruby that lets other threads run while one of these functions waits: as it is generated, a server that is slow would stop
/// all of them. And the library is where the gem says it is.
fn unlocked(text: &str) -> Result<String> {
    let mut text = text.to_owned();
    for function in WAIT {
        let name = format!("attach_function :uniffi_tidegate_uniffi_fn_method_{function},");
        ensure!(text.matches(&name).count() == 1, "the generated Ruby has not one {function} any more");
        let start = text.find(&name).context("it was counted")?;
        let end = text[start..].find("\n  attach_function").or_else(|| text[start..].find("\nend"));
        let end = start + end.context("a function ends")?;
        let trimmed = text[start..end].trim_end().len();
        text.insert_str(start + trimmed, ", blocking: true");
    }
    let library = "ffi_lib 'tidegate_uniffi'";
    ensure!(text.contains(library), "the generated Ruby loads another library");
    Ok(text.replace(library, "ffi_lib ::Tidegate::LIBRARY"))
}

//! `tidegate-bindgen LANGUAGE LIBRARY FOLDER`: see the library of this crate.

use std::env;

use anyhow::{Result, bail};
use camino::Utf8Path;
use tidegate_bindgen::generate;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [language, library, folder] = &arguments[..] else {
        bail!("write: tidegate-bindgen kotlin|ruby|swift LIBRARY FOLDER")
    };
    generate(language, Utf8Path::new(library), Utf8Path::new(folder))
}

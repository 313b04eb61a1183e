//! The documents that the pages show are documents.

use std::path::Path;

use tidegate::Document;

/// The rules that pieces of documents name.
const RULES: &str = "[rules]\nlogin = \"5/m\"\napi = \"100/m\"\nper_address = \"300/m\"\n";

fn whole(block: &str) -> String {
    match block.trim_start() {
        whole if whole.starts_with("version") || whole.starts_with('#') => block.to_owned(),
        table if table.starts_with("[http") || table.starts_with("[[") || table.starts_with("[store") => {
            format!("version = 1\n{RULES}{block}")
        }
        _ => format!("version = 1\n{RULES}[http]\n{block}"),
    }
}

#[test]
fn every_document_of_every_page_is_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = std::fs::read_dir(root.join("docs")).expect("the pages").map(|page| page.expect("a page").path());
    let mut blocks = 0;
    for page in pages.chain([root.join("README.md")]) {
        let text = std::fs::read_to_string(&page).expect("text");
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            blocks += 1;
            if let Err(error) = Document::from_toml(&whole(block)) {
                panic!("{}: {error}\n{block}", page.display());
            }
        }
    }
    assert!(blocks > 5, "only {blocks} were found");
}

#[test]
fn the_documents_of_the_examples_are_taken() {
    for name in ["rules.toml", "service.toml"] {
        Document::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect(name);
    }
}

//! The user's page on settings agrees with the program.

use std::fs;
use std::path::Path;

use farshell_config::markdown_table;

const BEGIN: &str = "<!-- settings:begin -->\n";
const END: &str = "<!-- settings:end -->";

/// `UPDATE_DOCS=1` writes the table into the page instead of comparing it.
#[test]
fn the_page_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, [before, BEGIN, &markdown_table(), END, after].concat()).unwrap();
    } else {
        assert!(
            table == markdown_table(),
            "docs/configuration.md is out of date: run this test with UPDATE_DOCS=1"
        );
    }
}

//! `docs/trust.md` names tests, files and fuzz targets that there are.

use std::path::Path;

use polycast_fuzz::TARGETS;

#[test]
fn what_the_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/trust.md")).expect("the page");
    let (mut tests, mut missing) = (0, Vec::new());
    // Every second piece stands between backticks.
    let pieces: Vec<&str> = page.split('`').collect();
    for at in (1..pieces.len()).step_by(2) {
        let (name, before) = (pieces[at], pieces[at - 1]);
        let there = if let Some((file, function)) = name.split_once(".rs::") {
            tests += 1;
            let source =
                std::fs::read_to_string(root.join(format!("{file}.rs"))).unwrap_or_default();
            source.contains(&format!("fn {function}("))
        } else if before.ends_with("fuzz ") {
            TARGETS.iter().any(|(target, _)| *target == name) || name == "NAME"
        } else if name.starts_with("crates/")
            || name.starts_with("bins/")
            || name.starts_with("fuzz/")
        {
            root.join(name).exists()
        } else {
            true
        };
        if !there {
            missing.push(name);
        }
    }
    assert!(tests > 60, "{tests} tests are named");
    assert!(missing.is_empty(), "not there: {missing:#?}");
}

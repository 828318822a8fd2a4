//! Documents and comments cite only what is in the repository: no other documents, no dead relative links, and in
//! the documents no files that are gone. The table of crates in `docs/architecture.md` is that of the manifests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The folders whose texts are read, beside the documents at the root.
const FOLDERS: [&str; 7] = [
    "crates",
    "bins",
    "docs",
    "fuzz",
    "packaging",
    "dissectors",
    "examples",
];

fn root() -> PathBuf {
    let mut root = PathBuf::new();
    for part in Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .components()
    {
        match part {
            Component::ParentDir => drop(root.pop()),
            part => root.push(part),
        }
    }
    root
}

/// Collects the text files below `folder` that people read, without build outputs and seeds of fuzz targets.
fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || ["target", "seeds"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            texts(&path, found);
        } else if let Some(extension) = path.extension() {
            let extension = extension.to_string_lossy();
            if ["md", "rs", "toml", "lua", "service"].contains(&extension.as_ref()) {
                found.push(path);
            }
        }
    }
}

/// The part of a line that people read: all of a document, the comment of a line of code or configuration.
fn prose<'a>(path: &Path, line: &'a str) -> &'a str {
    let mark = match path.extension().and_then(|extension| extension.to_str()) {
        Some("md") => return line,
        Some("rs") => "//",
        Some("lua") => "--",
        _ => "#",
    };
    line.find(mark).map_or("", |at| &line[at..])
}

/// Words made of letters, digits and the signs that paths have, without the full stop that ends a sentence.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || "_-./*{}".contains(c);
    text.split(move |c| !in_word(c))
        .map(|word| word.trim_end_matches('.'))
}

/// Whether a path stands for a file or folder, seen from `docs`, from its document, or from a folder above it.
fn exists(root: &Path, from: &Path, name: &str) -> bool {
    let above = from.ancestors().skip(1);
    let mut above = above.take_while(|folder| folder.starts_with(root));
    above.any(|folder| folder.join(name).exists()) || root.join("docs").join(name).exists()
}

/// Runs `check` on each line of text in the repository and collects its findings.
fn complaints(mut check: impl FnMut(&Path, &Path, &str, &mut Vec<String>)) -> Vec<String> {
    let root = root();
    let (mut files, mut all) = (Vec::new(), Vec::new());
    for folder in FOLDERS {
        texts(&root.join(folder), &mut files);
    }
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    assert!(files.len() > 500, "only {} files in {root:?}", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let mut found = Vec::new();
            check(&root, &file, line, &mut found);
            let place = format!(
                "{}:{}",
                file.strip_prefix(&root).unwrap().display(),
                number + 1
            );
            all.extend(found.into_iter().map(|what| format!("{place}: {what}")));
        }
    }
    all
}

#[test]
fn cited_documents_are_in_the_repository() {
    // Pages that were never part of it, in pieces, because this file is read too.
    let foreign = [
        concat!("DES", "IGN"),
        concat!("LANG", "UAGE.md"),
        concat!("STY", "LE.md"),
    ];
    let found = complaints(|root, file, line, found| {
        // The change log names files as they were.
        if file.ends_with("CHANGELOG.md") {
            return;
        }
        for word in words(line) {
            if foreign.contains(&word) || word.starts_with(concat!("/work", "/")) {
                found.push(word.to_owned());
            }
        }
        for word in words(prose(file, line)) {
            let document = word.ends_with(".md") && word != ".md" && !word.contains('*');
            // A URL is not a path.
            let document = document && !word.starts_with("//");
            if document && !exists(root, file, word) {
                found.push(word.to_owned());
            }
        }
        let lower = line.to_ascii_lowercase();
        for (at, mark) in lower.match_indices(concat!("issue", " ")) {
            if lower[at + mark.len()..].starts_with(|c: char| c == '#' || c.is_ascii_digit()) {
                found.push(line.to_owned());
            }
        }
    });
    assert!(
        found.is_empty(),
        "not in the repository:\n{}",
        found.join("\n")
    );
}

#[test]
fn relative_links_lead_somewhere() {
    let mut count = 0;
    let found = complaints(|_, file, line, found| {
        if file.extension().is_none_or(|extension| extension != "md") {
            return;
        }
        for (at, mark) in line.match_indices("](") {
            let target = line[at + mark.len()..].split([')', ' ']).next().unwrap();
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            if target.contains(':') || target.is_empty() {
                continue;
            }
            count += 1;
            let path = match path {
                "" => file.to_owned(),
                path => file.parent().unwrap().join(path),
            };
            if !path.exists()
                || !(anchor.is_empty() || anchors(&path).iter().any(|name| name == anchor))
            {
                found.push(target.to_owned());
            }
        }
    });
    assert!(found.is_empty(), "dead links:\n{}", found.join("\n"));
    assert!(count >= 10, "only {count} links were found");
}

/// The anchors of a page: its headings as GitHub writes them.
fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_ascii_lowercase();
            let kept = title.replace(|c: char| !c.is_alphanumeric() && !" -_".contains(c), "");
            kept.replace(' ', "-")
        })
        .collect()
}

#[test]
fn files_that_the_documents_name_are_there() {
    let mut count = 0;
    let found = complaints(|root, file, line, found| {
        // Measurements name files as they were on their day.
        if !file.starts_with(root.join("docs"))
            || file.to_string_lossy().contains("docs/measurements")
        {
            return;
        }
        // Every second piece stands between backticks.
        for name in line.split('`').skip(1).step_by(2) {
            let name = name.split("::").next().unwrap();
            let plain = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
            if !plain
                || !FOLDERS
                    .iter()
                    .any(|folder| name.starts_with(&format!("{folder}/")))
            {
                continue;
            }
            count += 1;
            // A crate's example, or a test that is named without its extension.
            if !root.join(name).exists() && !root.join(format!("{name}.rs")).exists() {
                found.push(name.to_owned());
            }
        }
    });
    assert!(found.is_empty(), "not there:\n{}", found.join("\n"));
    assert!(count >= 100, "only {count} files are named");
}

/// The polycast crates that the crate in `folder` depends on outside its tests.
fn dependencies(root: &Path, folder: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
    let (_, section) = manifest
        .split_once("\n[dependencies]\n")
        .unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty())
        .filter(|name| {
            root.join("crates").join(name).exists() || root.join("bins").join(name).exists()
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_table_of_crates_is_that_of_the_manifests() {
    let root = root();
    let page = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let (mut listed, mut wrong) = (BTreeSet::new(), Vec::new());
    for line in page.lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [crates, _, needs] = cells[..] else {
            continue;
        };
        let names = |cell: &str| -> Vec<String> {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        for folder in names(crates) {
            // The lab depends on every program.
            if !folder.starts_with("crates/") && !folder.starts_with("bins/") {
                continue;
            }
            if folder != "bins/lab" {
                let needs: BTreeSet<String> = names(needs).into_iter().collect();
                let depends = dependencies(&root, &folder);
                if needs != depends {
                    wrong.push(format!("{folder} depends on {depends:?}"));
                }
            }
            listed.insert(folder);
        }
    }
    for group in ["crates", "bins"] {
        for entry in fs::read_dir(root.join(group)).unwrap() {
            let path = entry.unwrap().path();
            if path.join("Cargo.toml").exists() {
                let folder = format!("{group}/{}", path.file_name().unwrap().to_string_lossy());
                if !listed.contains(&folder) {
                    wrong.push(format!(
                        "{folder} depends on {:?}",
                        dependencies(&root, &folder)
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "correct these rows of docs/architecture.md:\n{}",
        wrong.join("\n")
    );
}

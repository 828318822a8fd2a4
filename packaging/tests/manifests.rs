//! Every manifest says what a registry or a packager needs, and the oldest compiler is the same everywhere.

use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand, Package};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn packages(manifest: &str) -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join(manifest))
        .no_deps()
        .exec()
        .unwrap_or_else(|error| panic!("{manifest}: {error}"))
}

/// What is missing in the manifest of a published crate.
fn missing(package: &Package) -> Vec<&'static str> {
    let folder = package.manifest_path.parent().expect("a folder");
    let wrong = |wrong: bool, what| wrong.then_some(what);
    let checks = [
        wrong(package.description.is_none(), "description"),
        wrong(package.license.is_none(), "license"),
        wrong(package.repository.is_none(), "repository"),
        wrong(
            !(1..=5).contains(&package.keywords.len()),
            "1 to 5 keywords",
        ),
        wrong(
            package.keywords.iter().any(|word| word.len() > 20),
            "keywords of at most 20 characters",
        ),
        wrong(
            !(1..=5).contains(&package.categories.len()),
            "1 to 5 categories",
        ),
        wrong(
            package
                .readme
                .as_ref()
                .is_none_or(|readme| !folder.join(readme).exists()),
            "README.md",
        ),
        wrong(
            !names_the_compiler(package),
            "the oldest compiler in README.md",
        ),
        wrong(!folder.join("LICENSE-MIT").exists(), "LICENSE-MIT"),
        wrong(!folder.join("LICENSE-APACHE").exists(), "LICENSE-APACHE"),
    ];
    checks.into_iter().flatten().collect()
}

/// Whether the crate's README names the oldest compiler that its manifest names.
fn names_the_compiler(package: &Package) -> bool {
    let folder = package.manifest_path.parent().expect("a folder");
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    let oldest = package.rust_version.as_ref().expect("a rust-version");
    readme.contains(&format!("Rust {}.{} or later", oldest.major, oldest.minor))
}

#[test]
fn published_crates_describe_themselves() {
    let metadata = packages("Cargo.toml");
    let published: Vec<_> = metadata
        .packages
        .iter()
        .filter(|package| package.publish.is_none())
        .collect();
    assert!(published.len() >= 10, "{} are published", published.len());
    let mut wrong = Vec::new();
    for package in published {
        let library = package.manifest_path.as_str().contains("/crates/");
        if !library {
            wrong.push(format!("{}: only libraries are published", package.name));
        }
        for what in missing(package) {
            wrong.push(format!("{}: {what}", package.name));
        }
    }
    assert!(wrong.is_empty(), "missing:\n{}", wrong.join("\n"));
}

#[test]
fn the_oldest_compiler_is_the_same_everywhere() {
    let versions = [
        "Cargo.toml",
        "fuzz/Cargo.toml",
        "examples/firmware/Cargo.toml",
    ]
    .into_iter()
    .flat_map(|manifest| packages(manifest).packages)
    .map(|package| {
        (
            package.name.to_string(),
            package.rust_version.map(|v| v.to_string()),
        )
    });
    let versions: Vec<_> = versions.collect();
    let (_, oldest) = &versions[0];
    assert!(oldest.is_some(), "no rust-version");
    for (name, version) in &versions {
        assert_eq!(version, oldest, "{name}");
    }
}

//! Every seed, every input that once failed, and the inputs that cover most, through their targets.

use std::path::{Path, PathBuf};

use polycast_fuzz::TARGETS;

/// The files of a target in a folder, in order.
fn files(folder: &str, name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(folder)
        .join(name);
    let Ok(files) = std::fs::read_dir(&folder) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    paths
}

#[test]
fn corpora_replay() {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        let inputs: Vec<_> = ["seeds", "covering", "regressions"]
            .iter()
            .flat_map(|folder| files(folder, name))
            .collect();
        assert!(
            !inputs.is_empty(),
            "{name} has no seeds: cargo run --example seeds"
        );
        println!("{name}: {}", inputs.len());
        for path in inputs {
            let bytes = std::fs::read(&path).expect("a file");
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "these fail: {failed:#?}");
}

/// The committed seeds are those that the goldens of today make.
#[test]
fn seeds_are_of_the_goldens() {
    for (name, _) in TARGETS {
        let read = |path: &PathBuf| std::fs::read(path).expect("a file");
        let mut committed: Vec<Vec<u8>> = files("seeds", name).iter().map(read).collect();
        let mut made = polycast_fuzz::seeds::of(name);
        committed.sort();
        made.sort();
        made.dedup();
        assert!(committed == made, "{name}: cargo run --example seeds");
    }
}

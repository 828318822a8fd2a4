//! Writes the seed corpora from the goldens: `cargo run --example seeds`. What is there already and is
//! no seed any more is removed.

use std::path::Path;

use polycast_fuzz::{TARGETS, seeds};

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let mut total = 0;
    for (target, _) in TARGETS {
        let folder = root.join(target);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let mut seeds = seeds::of(target);
        seeds.sort();
        seeds.dedup();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("{number:03}")), seed)?;
        }
        println!("{target}: {}", seeds.len());
        total += seeds.len();
    }
    println!("{total} seeds in {}", root.display());
    Ok(())
}

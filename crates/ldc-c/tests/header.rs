//! The committed header is the one that the sources give.

use std::path::Path;

#[test]
fn the_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let made = cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .expect("the sources of the crate");
    let mut bytes = Vec::new();
    made.write(&mut bytes);
    let path = root.join("include/ldc.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &bytes).expect("include/ldc.h is writable");
    }
    let committed = std::fs::read(&path).expect("include/ldc.h");
    assert!(
        committed == bytes,
        "include/ldc.h is not what the sources give: `UPDATE=1 cargo test -p ldc-c --test header`"
    );
}

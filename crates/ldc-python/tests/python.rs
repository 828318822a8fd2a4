//! The module in a Python that imports it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the library as cargo has just built it.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let folder = own.parent().expect("its folder");
    folder.join("libpolycast_ldc.so")
}

/// Returns whether there is a Python that the module supports: 3.11 or later.
fn has_python() -> bool {
    let version = "import sys; sys.exit(sys.version_info < (3, 11))";
    let tried = Command::new("python3").args(["-c", version]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Returns a folder with the module and a key file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let module = folder.path().join("polycast_ldc.abi3.so");
    std::os::unix::fs::symlink(library(), module).expect("a link to the library");
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 32]).expect("a key file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, mode).expect("its mode");
    folder
}

/// Runs a script of this crate with the module in its path.
fn run(script: &str, arguments: &[&Path], folder: &Path) -> String {
    let output = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .args(arguments)
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{script}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn the_module_does_what_its_stubs_say() {
    if !has_python() {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "python3");
        return;
    }
    let folder = folder();
    let stubs = Path::new(env!("CARGO_MANIFEST_DIR")).join("polycast_ldc.pyi");
    let key = folder.path().join("key");
    run("tests/surface.py", &[&stubs, &key], folder.path());
}

#[test]
fn the_example_sends_what_was_not_cancelled() {
    if !has_python() {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "python3");
        return;
    }
    let folder = folder();
    let text = run("examples/layers.py", &[], folder.path());
    let received = text.split("received: ").nth(1).expect("the last line");
    assert!(
        received.contains("base ") && received.contains("layer 1 "),
        "{text}"
    );
    let is_cancelled = text.contains("layer 3: Changed(changed=1, too_late=0)\n");
    let is_replaced = text.contains("layer 2: replaced\n");
    assert_eq!(received.contains("layer 3 "), !is_cancelled, "{text}");
    assert_eq!(received.contains("layer 2 "), !is_replaced, "{text}");
    assert_eq!(received.contains("small "), is_replaced, "{text}");
}

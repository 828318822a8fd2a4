//! C programs compiled against the header and the library, and run; under valgrind where it is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns whether a program can be started.
fn is_there(program: &str) -> bool {
    let tried = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Returns the folder that cargo builds libraries into for tests.
fn libraries() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    own.parent().expect("its folder").to_owned()
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    let (out, err) = (&output.stdout, &output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    );
    output
}

/// Compiles a program of this crate, `None` (and says so) without a compiler.
fn compile(source: &str, folder: &Path) -> Option<PathBuf> {
    if !is_there("cc") {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "cc");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("program");
    succeed(
        Command::new("cc")
            .args([
                "-std=c11",
                "-D_GNU_SOURCE",
                "-g",
                "-Wall",
                "-Wextra",
                "-Werror",
            ])
            .arg("-I")
            .arg(root.join("include"))
            .arg(root.join(source))
            .arg("-L")
            .arg(libraries())
            .args(["-lldc", "-o"])
            .arg(&program),
    );
    Some(program)
}

/// Runs a program as it is, and under valgrind, which fails on any invalid access or leak. Returns what it wrote.
fn run(program: &Path, arguments: &[&Path]) -> String {
    let plain = succeed(
        Command::new(program)
            .args(arguments)
            .env("LD_LIBRARY_PATH", libraries()),
    );
    if is_there("valgrind") {
        succeed(
            Command::new("valgrind")
                .args(["-q", "--error-exitcode=99", "--leak-check=full"])
                .arg("--errors-for-leak-kinds=definite")
                .arg(concat!(
                    "--suppressions=",
                    env!("CARGO_MANIFEST_DIR"),
                    "/tests/valgrind.supp"
                ))
                .arg(program)
                .args(arguments)
                .env("LD_LIBRARY_PATH", libraries()),
        );
    } else {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "valgrind");
    }
    String::from_utf8(plain.stdout).expect("text")
}

#[test]
fn the_surface_does_what_the_header_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 32]).expect("a key file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, mode).expect("its mode");
    if let Some(program) = compile("tests/surface.c", folder.path()) {
        run(&program, &[&key]);
    }
}

#[test]
fn the_example_of_layers_sends_what_was_not_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(program) = compile("examples/layers.c", folder.path()) {
        let out = run(&program, &[]);
        let received = out.split("received: ").nth(1).expect("the last line");
        assert!(
            received.contains("base ") && received.contains("layer 1 "),
            "{out}"
        );
        let is_cancelled = out.contains("layer 3: cancelled 1, too late 0\n");
        let is_replaced = out.contains("layer 2: replaced\n");
        assert_eq!(received.contains("layer 3 "), !is_cancelled, "{out}");
        assert_eq!(received.contains("layer 2 "), !is_replaced, "{out}");
        assert_eq!(received.contains("small "), is_replaced, "{out}");
    }
}

#[test]
fn the_example_of_two_processes_passes_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(program) = compile("examples/two_processes.c", folder.path()) {
        let out = run(&program, &[]);
        assert!(out.starts_with("1: first\n"), "{out}");
        assert!(out.to_lowercase().ends_with("2: second\n"), "{out}");
    }
}

#[test]
fn the_header_is_valid_c_plus_plus() {
    if !is_there("c++") {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "c++");
        return;
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/ldc.h");
    succeed(
        Command::new("c++")
            .args([
                "-std=c++11",
                "-Wall",
                "-Werror",
                "-fsyntax-only",
                "-x",
                "c++",
            ])
            .arg(header),
    );
}

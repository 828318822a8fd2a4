//! A file appears under its name only when it is whole.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ltp_linux::output::AtomicFile;

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("folder")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("utf-8")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_folder_that_takes_no_files_is_detected() {
    let folder = tempfile::tempdir().expect("folder");
    assert_eq!(ltp_linux::output::check_writable(folder.path()), Ok(()));
    let left = std::fs::read_dir(folder.path()).expect("folder").count();
    assert_eq!(left, 0, "the probe is gone");
    assert!(ltp_linux::output::check_writable(std::path::Path::new("/proc/self")).is_err());
}

#[test]
fn commit_replaces_in_one_step() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("x"), "old").expect("old file");
    let file = AtomicFile::create(folder.path(), "x").expect("temporary");
    file.reserve(4096).expect("space");
    file.write_all_at(b"new", 0).expect("write");
    assert_eq!(fs::read(folder.path().join("x")).expect("old file"), b"old");
    file.commit(true).expect("rename");
    assert_eq!(fs::read(folder.path().join("x")).expect("new file"), b"new");
    assert_eq!(names(folder.path()), ["x"]);
    let mode = fs::metadata(folder.path().join("x"))
        .expect("metadata")
        .permissions()
        .mode();
    assert_ne!(
        mode & 0o777,
        0o600,
        "the user's umask decides, as for any new file"
    );
}

#[test]
fn dropped_leaves_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let file = AtomicFile::create(folder.path(), "größe.bin").expect("temporary");
    assert!(names(folder.path())[0].starts_with(".größe.bin."));
    drop(file);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn long_names_fit() {
    let folder = tempfile::tempdir().expect("folder");
    let name = "ü".repeat(127);
    AtomicFile::create(folder.path(), &name)
        .expect("temporary")
        .commit(false)
        .expect("rename");
    assert_eq!(names(folder.path()), [name]);
}

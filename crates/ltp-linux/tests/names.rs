//! No name from the network leaves the output folder or fools its reader.

use ltp_linux::name::{MAX_LEN, sanitise};
use proptest::prelude::*;

#[test]
fn harmless_names_stay() {
    for name in [
        "image.iso",
        "with space",
        "größe-ü.tar.gz",
        "日本語",
        "a",
        "-n",
    ] {
        assert_eq!(sanitise(name.as_bytes()).as_deref(), Some(name));
    }
}

#[test]
fn paths_are_cut_to_their_last_component() {
    assert_eq!(sanitise(b"/etc/passwd").as_deref(), Some("passwd"));
    assert_eq!(sanitise(b"../../x").as_deref(), Some("x"));
    assert_eq!(sanitise(b"folder/").as_deref(), Some("folder"));
    assert_eq!(sanitise(b"..\\x").as_deref(), Some("_._x"));
}

#[test]
fn characters_that_steer_a_terminal_or_hide_a_file_become_underscores() {
    assert_eq!(
        sanitise(b"a\nb\x1b[31m\0c\x7f").as_deref(),
        Some("a_b_[31m_c_")
    );
    assert_eq!(
        sanitise("cod\u{202e}exe.txt".as_bytes()).as_deref(),
        Some("cod_exe.txt")
    );
    assert_eq!(sanitise(b".bashrc").as_deref(), Some("_bashrc"));
    assert_eq!(sanitise(b"\xff\xfe.bin").as_deref(), Some("__.bin"));
}

#[test]
fn nothing_usable_is_no_name() {
    for name in ["", ".", "..", "/", "//", "a/..", "../.", "./"] {
        assert_eq!(sanitise(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn long_names_keep_their_extension() {
    let long = format!("{}.tar", "ü".repeat(200));
    let cut = sanitise(long.as_bytes()).expect("a name");
    assert!(cut.len() <= MAX_LEN && cut.ends_with("ü.tar"), "{cut}");
}

proptest! {
    #[test]
    fn any_bytes(name in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Some(clean) = sanitise(&name) {
            prop_assert!(!clean.is_empty() && clean.len() <= MAX_LEN);
            prop_assert!(!clean.contains(['/', '\\', '\0']) && !clean.starts_with('.'));
            prop_assert!(!clean.chars().any(char::is_control));
            prop_assert_eq!(sanitise(clean.as_bytes()), Some(clean));
        }
    }
}

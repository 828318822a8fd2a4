//! What the verbs of a daemon answer.
#![cfg(feature = "top")]

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use cli::{exit, verbs};
use daemon_kit::top::View;

const VIEW: View = View {
    program: "lms-router",
    head: &[],
    tables: &[],
};

#[test]
fn top_without_a_terminal_or_a_daemon_ends() {
    // `cargo test` may run in a terminal: then only the other half is shown.
    let nowhere = PathBuf::from("/nonexistent/status.sock");
    let code = |code: ExitCode| format!("{code:?}");
    if !std::io::stdout().is_terminal() {
        let ended = verbs::top(&VIEW, nowhere.clone(), false);
        assert_eq!(code(ended), code(ExitCode::from(exit::USAGE)));
    }
    let ended = verbs::top(&VIEW, nowhere, true);
    assert_eq!(code(ended), code(ExitCode::from(exit::FAILED)));
}

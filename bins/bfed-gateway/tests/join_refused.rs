//! `bfed-join` against real gateways. This test starts itself again as `bfed-join`, which is another package's
//! program.

#[path = "daemon/common.rs"]
mod common;

use std::process::{Command, ExitCode};

use common::Full;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|name| name == "bfed-join") {
        return bfed_join::main_from(arguments);
    }
    a_session_refused_for_a_limit_has_exit_code_3();
    ExitCode::SUCCESS
}

fn a_session_refused_for_a_limit_has_exit_code_3() {
    let full = Full::start();
    let mediator = format!("http://{}", full.mediator);
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args([
        "bfed-join",
        "recv",
        "bfed://2/second",
        "--connect-timeout",
        "1s",
    ]);
    let refused = program.args(["--mediator", &mediator]).output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{errors}");
    let limit = bfed::wire::no_route::Reason::Limit.to_string();
    assert!(errors.contains(&limit), "{errors}");
}

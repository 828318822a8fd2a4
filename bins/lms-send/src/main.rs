//! `lms-send`: see the library.

fn main() -> std::process::ExitCode {
    lms_send::main_from(std::env::args_os())
}

//! `lms-recv`: see the library.

fn main() -> std::process::ExitCode {
    lms_recv::main_from(std::env::args_os())
}

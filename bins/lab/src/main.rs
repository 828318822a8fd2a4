//! `lab`: see the library.

fn main() -> std::process::ExitCode {
    lab::main_from(std::env::args_os())
}

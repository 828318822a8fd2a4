//! `mcpd`: see the library.

fn main() -> std::process::ExitCode {
    mcpd::main_from(std::env::args_os())
}

//! `mcp`: see the library.

fn main() -> std::process::ExitCode {
    mcp::main_from(std::env::args_os())
}

//! `ldc-stream`: see the library.

fn main() -> std::process::ExitCode {
    ldc_stream::main_from(std::env::args_os())
}

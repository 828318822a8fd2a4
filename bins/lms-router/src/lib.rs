//! `lms-router`.
#![forbid(unsafe_code)]

mod args;
pub mod config;
mod control;
mod daemon;
mod data;
pub mod metrics;
pub mod status;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use args::{Args, Verb, What};
use cli::exit;
use config::{Config, ConfigError};
use daemon::RunError;

/// Runs the program with its arguments, the first of which is its name.
pub fn main_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Args = match cli::args::parse(arguments) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Err(message) = args.log.init("info") {
        return cli::args::usage(message);
    }
    match args.verb {
        Verb::Run { config } => match daemon::run(&config) {
            Ok(code) => code,
            Err(RunError::Config(error)) => wrong(&error),
            Err(error) => exit::fail(exit::FAILED, error),
        },
        Verb::Check { config } => match Config::load(&config) {
            Ok(_) => {
                print(&format!("{}: no problems\n", config.display()));
                ExitCode::SUCCESS
            }
            Err(error) => wrong(&error),
        },
        Verb::Status { what, json, socket } => status(&socket, What::show(what), json),
    }
}

/// The problems as they are, one a line: editors know `FILE:LINE:COLUMN: `.
fn wrong(error: &ConfigError) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(exit::USAGE)
}

fn status(socket: &Path, show: status::Show, json: bool) -> ExitCode {
    let answer = match status::query(socket, show) {
        Ok(answer) => answer,
        Err(error) => return exit::fail(exit::FAILED, error),
    };
    if json {
        print(&format!("{answer}\n"));
        return ExitCode::SUCCESS;
    }
    match status::render(show, &answer) {
        Some(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        None => exit::fail(
            exit::FAILED,
            "this router's answer is from another version; --json shows it as it is",
        ),
    }
}

/// A closed standard output is the reader's business.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

//! Verbs that all daemons have: arguments, what they print, exit codes.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use daemon_kit::RunError;
use daemon_kit::client::QueryError;
use daemon_kit::host::HostCheck;
use daemon_kit::reader::ConfigError;

use crate::{exit, print};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct ConfigFile {
    /// Path of the configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Also verify that users, interfaces, addresses and key files exist on this host
    #[arg(long)]
    host: bool,
}

/// Where the commented configuration of a program is.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The program: its package installs `/etc/polycast/PROGRAM.toml`.
    pub program: &'static str,
    /// Path in the source tree.
    pub source: &'static str,
}

/// Returns the exit code of `run`, after printing why it failed.
pub fn run(result: Result<ExitCode, RunError>, example: &Example) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(RunError::Config(error)) => wrong(&error, example),
        Err(error) => exit::fail(exit::FAILED, error),
    }
}

/// Prints the problems of a configuration, one a line: editors know `FILE:LINE:COLUMN: `.
fn wrong(error: &ConfigError, example: &Example) -> ExitCode {
    match error {
        ConfigError::Unreadable(_, cause) if cause.kind() == io::ErrorKind::NotFound => {
            let Example { program, source } = example;
            crate::print_message!(
                "{error}; a commented example is /etc/polycast/{program}.toml (package) or {source} (source)"
            );
        }
        _ => crate::print_message!("{error}"),
    }
    print::exit_code(exit::USAGE)
}

/// Runs `check`: reads the file with `load`, and with `--host` also asks `on_this_host`.
pub fn check<T>(
    args: &CheckArgs,
    example: &Example,
    load: impl FnOnce(&Path) -> Result<T, ConfigError>,
    on_this_host: impl FnOnce(&T, &mut HostCheck),
) -> ExitCode {
    let file = &args.file.config;
    let config = match load(file) {
        Ok(config) => config,
        Err(error) => return wrong(&error, example),
    };
    let mut host = HostCheck::default();
    if args.host {
        on_this_host(&config, &mut host);
    }
    for problem in host.problems() {
        crate::print_message!("{}: on this host: {problem}", file.display());
    }
    if !host.problems().is_empty() {
        return print::exit_code(exit::USAGE);
    }
    crate::print_result!("{}: no problems", file.display());
    print::exit_code(exit::OK)
}

/// Prints the result of `status`: the document itself, or the text that `render` makes of it.
pub fn status(
    answer: Result<serde_json::Value, QueryError>,
    json: bool,
    render: impl FnOnce(&serde_json::Value) -> Option<String>,
) -> ExitCode {
    match answer {
        Err(error) => exit::fail(exit::FAILED, error),
        Ok(answer) if json => {
            crate::print_result!("{answer}");
            print::exit_code(exit::OK)
        }
        Ok(answer) => match render(&answer) {
            Some(text) => {
                print::text(&text);
                print::exit_code(exit::OK)
            }
            None => exit::fail(
                exit::FAILED,
                "the answer is from another version of this program; --json shows it as it is",
            ),
        },
    }
}

/// Follows the daemon at `socket` on the terminal; with `once`, prints its tables as text. Ends with
/// [`exit::INTERRUPTED`] when the terminal is gone.
#[cfg(feature = "top")]
pub fn top(
    view: &'static daemon_kit::top::View,
    socket: std::path::PathBuf,
    once: bool,
) -> ExitCode {
    use std::io::IsTerminal;

    use daemon_kit::top::{self, End};

    if once {
        return match top::once(view, &socket) {
            Err(error) => exit::fail(exit::FAILED, error),
            Ok(text) => {
                print::text(&text);
                print::exit_code(exit::OK)
            }
        };
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return exit::fail(
            exit::USAGE,
            "top wants a terminal; `top --once` prints its tables anywhere, and `status --json` is for programs",
        );
    }
    crate::interrupt::install();
    match top::run(view, socket, crate::interrupt::raised) {
        Ok(End::Asked) => ExitCode::SUCCESS,
        // Output of any kind would fail there.
        Ok(End::TerminalGone) => std::process::exit(exit::INTERRUPTED.into()),
        Err(error) => exit::fail(exit::FAILED, error),
    }
}

//! Verbs that all daemons have: arguments, what they print, exit codes.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use daemon_kit::RunError;
use daemon_kit::client::{QueryError, default_socket};
use daemon_kit::daemon::Configuration;
use daemon_kit::host::HostCheck;
use daemon_kit::reader::ConfigError;
use daemon_kit::status::{self, Document};
use daemon_kit::view::View;

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

/// Arguments that select the status socket.
#[derive(Debug, clap::Args)]
pub struct SocketArgs {
    /// Path of the status socket [default: $POLYCAST_DAEMON__SOCKET, else /run/polycast/PROGRAM.sock (mcpd:
    /// /run/mcpd/mcpd.sock)]
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    socket: Option<PathBuf>,
    /// Configuration file of the daemon, which names its status socket
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl SocketArgs {
    /// Returns the path of the status socket.
    ///
    /// # Errors
    /// The exit code, after the problems of the configuration were printed.
    pub fn path<D: Daemon>(self) -> Result<PathBuf, ExitCode> {
        match (self.socket, self.config) {
            (Some(path), _) => Ok(path),
            (None, Some(file)) => match D::Config::load(&file) {
                Ok(config) => Ok(config.daemon().socket.clone()),
                Err(error) => Err(wrong::<D>(&error)),
            },
            (None, None) => Ok(default_socket(D::SOCKET)),
        }
    }
}

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs<S: ValueEnum + Clone + Send + Sync + 'static> {
    /// Document to show
    #[arg(value_enum, default_value = "overview")]
    what: S,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Print the tables once as text, with rates over one second; needs no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// The verbs of every daemon except `run`.
#[derive(Debug, clap::Subcommand)]
pub enum Verb<S: ValueEnum + Clone + Send + Sync + 'static> {
    /// Validate a configuration file and report every error
    Check(CheckArgs),
    /// Show the state of a running daemon
    Status(StatusArgs<S>),
    /// Show tables and rates of a running daemon until q is pressed
    #[cfg(feature = "top")]
    Top(TopArgs),
}

/// A daemon as its verbs see it.
pub trait Daemon {
    /// Its configuration.
    type Config: Configuration;
    /// Its status documents.
    type Show: Document + ValueEnum + Sync + 'static;
    /// Default path of the status socket.
    const SOCKET: &'static str;
    /// Path of the commented configuration in the source tree; the package installs `/etc/polycast/PROGRAM.toml`.
    const EXAMPLE: &'static str;
    /// What `top` shows.
    const VIEW: View;
}

/// Runs a verb.
pub fn main<D: Daemon>(verb: Verb<D::Show>) -> ExitCode {
    let result = match verb {
        Verb::Check(args) => return check::<D>(&args),
        Verb::Status(args) => args.socket.path::<D>().map(|socket| {
            let answer = status::query(&socket, args.what);
            show(answer, args.json, |answer| {
                status::render(args.what, answer)
            })
        }),
        #[cfg(feature = "top")]
        Verb::Top(args) => args
            .socket
            .path::<D>()
            .map(|socket| top(const { &D::VIEW }, socket, args.once)),
    };
    result.unwrap_or_else(|code| code)
}

/// Returns the exit code of `run`, after printing why it failed.
pub fn run<D: Daemon>(result: Result<ExitCode, RunError>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(RunError::Config(error)) => wrong::<D>(&error),
        Err(error) => exit::fail(exit::FAILED, error),
    }
}

/// Prints the problems of a configuration, one a line: editors know `FILE:LINE:COLUMN: `.
fn wrong<D: Daemon>(error: &ConfigError) -> ExitCode {
    match error {
        ConfigError::Unreadable(_, cause) if cause.kind() == io::ErrorKind::NotFound => {
            let (program, source) = (D::Show::PROGRAM, D::EXAMPLE);
            crate::print_message!(
                "{error}; a commented example is /etc/polycast/{program}.toml (package) or {source} (source)"
            );
        }
        _ => crate::print_message!("{error}"),
    }
    print::exit_code(exit::USAGE)
}

fn check<D: Daemon>(args: &CheckArgs) -> ExitCode {
    let file = &args.file.config;
    let config = match D::Config::load(file) {
        Ok(config) => config,
        Err(error) => return wrong::<D>(&error),
    };
    let mut host = HostCheck::default();
    if args.host {
        host.daemon(config.daemon());
        config.check_host(&mut host);
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

/// Prints the answer of a daemon: the document itself, or the text that `render` makes of it.
pub fn show(
    answer: Result<serde_json::Value, QueryError>,
    json: bool,
    render: impl FnOnce(&serde_json::Value) -> Option<String>,
) -> ExitCode {
    let answer = match answer {
        Err(error) => return exit::fail(exit::FAILED, error),
        Ok(answer) => answer,
    };
    if json {
        crate::print_result!("{answer}");
    } else if let Some(text) = render(&answer) {
        print::text(&text);
    } else {
        let message =
            "the answer is from another version of this program; --json shows it as it is";
        return exit::fail(exit::FAILED, message);
    }
    print::exit_code(exit::OK)
}

/// Follows the daemon at `socket` on the terminal; with `once`, prints its tables as text. Ends with
/// [`exit::INTERRUPTED`] when the terminal is gone.
#[cfg(feature = "top")]
pub fn top(view: &'static View, socket: PathBuf, once: bool) -> ExitCode {
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
            "top requires a terminal; `top --once` prints its tables anywhere, and `status --json` is for programs",
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

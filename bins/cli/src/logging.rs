//! Logs: tracing, as text or JSON, on standard error.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The arguments about logging that every program takes.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// What to log to standard error: off, error, warn, info, debug, trace, or a tracing filter
    /// such as `ltp=debug,info` [default: $POLYCAST_LOG, else warn (daemons: info)]
    #[arg(long, value_name = "LEVEL", global = true, help_heading = "Logging")]
    pub log: Option<String>,
    /// How log lines look
    #[arg(
        long,
        value_name = "FORMAT",
        global = true,
        default_value = "text",
        help_heading = "Logging"
    )]
    pub log_format: Format,
}

impl LogArgs {
    /// Starts logging; `default` is the level when neither `--log` nor `POLYCAST_LOG` says.
    ///
    /// # Errors
    /// The filter is not one; the message says which part.
    pub fn init(&self, default: &str) -> Result<(), String> {
        let text = match &self.log {
            Some(text) => text.clone(),
            None => std::env::var("POLYCAST_LOG").unwrap_or_else(|_| default.to_owned()),
        };
        let filter = EnvFilter::try_new(&text)
            .map_err(|error| format!("invalid log filter \"{text}\": {error}"))?;
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(BesideBar)
            .with_ansi(io::stderr().is_terminal());
        // A second program in the same process keeps the first one's logger.
        let _ = match self.log_format {
            Format::Text => builder.with_target(false).try_init(),
            Format::Json => builder.json().try_init(),
        };
        Ok(())
    }
}

/// Standard error, a line at a time, with the progress bar out of the way.
struct BesideBar;

impl<'a> MakeWriter<'a> for BesideBar {
    type Writer = BesideBar;

    fn make_writer(&'a self) -> BesideBar {
        BesideBar
    }
}

impl Write for BesideBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A line that cannot be written is lost; tracing would panic on the error.
        let _ = crate::progress::suspend(|| io::stderr().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

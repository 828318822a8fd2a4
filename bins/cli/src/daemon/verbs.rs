//! What `check`, `status` and a wrong configuration print.

use std::path::Path;
use std::process::ExitCode;

use super::client::QueryError;
use super::here::Here;
use super::reader::ConfigError;
use crate::{exit, print};

/// The problems of a configuration as they are, one a line: editors know `FILE:LINE:COLUMN: `.
pub fn wrong(error: &ConfigError) -> ExitCode {
    crate::print_message!("{error}");
    print::exit_code(exit::USAGE)
}

/// What `check` answers; with `--here` also what `on_this_host` finds.
pub fn check<T>(
    file: &Path,
    result: Result<T, ConfigError>,
    on_this_host: Option<fn(&T, &mut Here)>,
) -> ExitCode {
    let config = match result {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    let mut here = Here::default();
    if let Some(look) = on_this_host {
        look(&config, &mut here);
    }
    for problem in here.problems() {
        crate::print_message!("{}: on this host: {problem}", file.display());
    }
    if !here.problems().is_empty() {
        return print::exit_code(exit::USAGE);
    }
    crate::print_result!("{}: no problems", file.display());
    print::exit_code(exit::OK)
}

/// What `status` answers: the document itself, or the text that `render` makes of it.
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

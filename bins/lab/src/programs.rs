//! The programs that `lab` carries: `lab lms-send ...` is `lms-send ...`.

use std::ffi::OsString;
use std::process::ExitCode;

/// A program's library entry: its arguments, its own name first.
type Entry = fn(Vec<OsString>) -> ExitCode;

/// Every program carried, by name.
const PROGRAMS: &[(&str, Entry)] = &[
    ("bfed-gateway", |args| bfed_gateway::main_from(args)),
    ("bfed-join", |args| bfed_join::main_from(args)),
    ("dyram-relay", |args| dyram_relay::main_from(args)),
    ("ldc-stream", |args| ldc_stream::main_from(args)),
    ("lms-recv", |args| lms_recv::main_from(args)),
    ("lms-router", |args| lms_router::main_from(args)),
    ("lms-send", |args| lms_send::main_from(args)),
    ("mcp", |args| mcp::main_from(args)),
    ("mcpd", |args| mcpd::main_from(args)),
];

/// The names of the programs carried.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|(name, _)| *name)
}

/// Runs a carried program when the arguments ask for one: `lab NAME ...`, or a link to `lab` that is
/// called NAME.
pub(crate) fn dispatch(args: &[OsString]) -> Option<ExitCode> {
    let called_as = args.first().map(std::path::Path::new)?.file_name()?;
    let find = |name: &std::ffi::OsStr| PROGRAMS.iter().find(|(known, _)| name == *known);
    if let Some((_, entry)) = find(called_as) {
        return Some(entry(args.to_vec()));
    }
    let (_, entry) = find(args.get(1)?)?;
    Some(entry(args[1..].to_vec()))
}

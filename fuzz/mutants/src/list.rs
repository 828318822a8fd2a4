//! The mutants of a module, as `cargo mutants --list` names them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Part of a crate that is tested at once.
pub struct Module {
    pub name: &'static str,
    pub package: &'static str,
    /// Features of the package that its tests need and that are off by default.
    pub features: &'static [&'static str],
    /// Globs below the root of the repository.
    pub files: &'static [&'static str],
    /// Per cent of the viable mutants that the tests are to kill.
    pub target: u32,
}

/// All modules, in the order in which they run by default.
pub const MODULES: &[Module] = &[
    Module {
        features: &["alloc", "std"],
        ..module("core", "proto-core", &["crates/proto-core/src/**"], 85)
    },
    module("rule", "lms-proto", &["crates/lms-proto/src/rule.rs"], 90),
    module("table", "lms-proto", &["crates/lms-proto/src/table/**"], 90),
    module(
        "router",
        "lms-proto",
        &["crates/lms-proto/src/router/**"],
        85,
    ),
    module(
        "hierarchy",
        "lms-proto",
        &["crates/lms-proto/src/hier/**"],
        85,
    ),
    module("ring", "ldc-ring", &["crates/ldc-ring/src/**"], 90),
    module("receiver", "ltp", &["crates/ltp/src/receiver/**"], 85),
    module("sender", "ltp", &["crates/ltp/src/sender/**"], 85),
    module("replier", "ltp", &["crates/ltp/src/replier.rs"], 85),
    module("tfmcc", "ltp", &["crates/ltp/src/tfmcc/**"], 85),
    module("pcb", "tcpxm", &["crates/tcpxm/src/pcb/**"], 85),
    module("recovery", "tcpxm", &["crates/tcpxm/src/recovery/**"], 90),
    module("group", "tcpxm", &["crates/tcpxm/src/group/**"], 85),
    module("cc", "tcpxm", &["crates/tcpxm/src/cc/**"], 85),
    module("relay", "dyram", &["crates/dyram/src/relay/**"], 85),
    module("control", "bfed", &["crates/bfed/src/control/**"], 85),
    module("routing", "bfed", &["crates/bfed/src/routing/**"], 90),
    module("data", "bfed", &["crates/bfed/src/data/**"], 85),
];

const fn module(
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    target: u32,
) -> Module {
    Module {
        name,
        package,
        features: &[],
        files,
        target,
    }
}

/// One change to the source.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    pub name: String,
    pub file: String,
    pub span: Span,
    pub replacement: String,
    pub genre: Genre,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
pub struct Span {
    pub start: Place,
    pub end: Place,
}

/// Both from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// Lists the mutants of a module.
pub fn mutants(module: &Module) -> Result<Vec<Mutant>> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "--package", module.package]);
    for glob in module.files {
        command.args(["--file", glob]);
    }
    // Not compiled: see `cfg(polycast_faults)`.
    command.args(["--exclude", "crates/ldc-ring/src/faults.rs"]);
    let output = command.output().context("cannot run cargo mutants")?;
    ensure!(
        output.status.success(),
        "cargo mutants --list failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mutants: Vec<Mutant> = serde_json::from_slice(&output.stdout)?;
    ensure!(!mutants.is_empty(), "no mutant in {:?}", module.files);
    Ok(mutants)
}

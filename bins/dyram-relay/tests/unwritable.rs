//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.
#![allow(missing_docs)]

#[path = "../../cli/tests/unwritable/daemon.rs"]
#[macro_use]
mod daemon;
#[path = "../../cli/tests/unwritable/mod.rs"]
mod unwritable;

daemon_tests!(
    "CARGO_BIN_EXE_dyram-relay",
    "run",
    "[relay]\nid = \"192.0.2.1\"\n"
);

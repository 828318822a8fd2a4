//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.
#![allow(missing_docs)]

#[path = "../../cli/tests/unwritable/daemon.rs"]
#[macro_use]
mod daemon;
#[path = "../../cli/tests/unwritable/mod.rs"]
mod unwritable;

daemon_tests!(
    "CARGO_BIN_EXE_bfed-gateway",
    "run",
    "[gateway]\nnetwork = 1\nlisten = \"127.0.0.1:4140\"\n"
);

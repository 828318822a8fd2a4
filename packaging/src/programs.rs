//! The programs, and what belongs to each.

/// One program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What it is called.
    pub name: &'static str,
    /// Its command line.
    pub command: fn() -> clap::Command,
    /// The section of its manual page: 8 for daemons, 1 for what users start.
    pub section: u8,
    /// What systemd starts, if it is a daemon.
    pub unit: Option<&'static str>,
    /// Its commented configuration, installed as `/etc/polycast/NAME.toml`.
    pub configuration: Option<&'static str>,
}

impl Program {
    const fn tool(name: &'static str, command: fn() -> clap::Command) -> Self {
        Program {
            name,
            command,
            section: 1,
            unit: None,
            configuration: None,
        }
    }
}

macro_rules! daemon {
    ($name:literal, $command:path, $configuration:expr) => {
        Program {
            name: $name,
            command: $command,
            section: 8,
            unit: Some(include_str!(concat!("../systemd/", $name, ".service"))),
            configuration: $configuration,
        }
    };
}

/// Every program that is installed.
pub const PROGRAMS: &[Program] = &[
    daemon!(
        "lms-router",
        lms_router::command,
        Some(include_str!("../../bins/lms-router/lms-router.toml"))
    ),
    Program::tool("lms-send", lms_send::command),
    Program::tool("lms-recv", lms_recv::command),
    daemon!(
        "dyram-relay",
        dyram_relay::command,
        Some(include_str!("../../bins/dyram-relay/dyram-relay.toml"))
    ),
    Program::tool("mcp", mcp::command),
    daemon!(
        "mcpd",
        mcpd::command,
        Some(include_str!("../../bins/mcpd/mcpd.toml"))
    ),
    Program::tool("ldc-stream", ldc_stream::command),
    daemon!(
        "bfed-gateway",
        bfed_gateway::command,
        Some(include_str!(
            "../../bins/bfed-gateway/examples/gateway.toml"
        ))
    ),
    Program::tool("bfed-join", bfed_join::command),
];

//! Names that most scenarios use.

pub(crate) use anyhow::{Context as _, Result, anyhow, bail, ensure};
pub(crate) use nix::sys::signal::Signal;
pub(crate) use serde::Serialize;
pub(crate) use serde_json::{Value, json};
pub(crate) use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use netlab::{
    Launch, LinkId, Network, NodeId, Plan, Process, SCRATCH, Shape, installed, system, text,
};
pub(crate) use sims::plot::Plot;
pub(crate) use sims::report::{Bound, Cell, Report, Table};
pub(crate) use sims::scenario::{Context, Need, Scenario, chosen, within};
pub(crate) use sims::stats::{confidence, mean, median, most};

pub(crate) use crate::daemon::Daemon;
pub(crate) use crate::shaper::Shaper;
pub(crate) use crate::transfer::{count, same, write_file};

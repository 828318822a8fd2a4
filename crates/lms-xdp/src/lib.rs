//! LMS in XDP: the fast path of an LMS router in the network driver.
//!
//! [`FastPath::load`] loads a BPF program that decides requests and directed multicasts of known entries by
//! [`lms_proto::fast_path`] - the same code as the machine's, compiled for BPF - edits them, and redirects them to the
//! interface where they go. All other packets go on to the kernel, and so to the router's own capture.
//!
//! The router stays the owner of everything: it publishes its entries ([`FastPath::publish`]), its interfaces
//! ([`FastPath::set_port`]) and its limits ([`FastPath::set_settings`]). Before it forwards a packet itself it takes the
//! entry's buckets and credit from the maps ([`FastPath::shared`]), and puts them back, so that limits hold for both
//! together. What the program counted is read by [`FastPath::counters`].
//!
//! Maps, program and attachments belong to this process: they are gone when it ends, however it ends.
//!
//! The program is `lms.bpf.o`, committed beside these sources. `program/` has its sources, and `program/build` makes
//! the same bytes from them.
//!
//! # What it needs
//!
//! Linux 5.15 or later; CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN to load the program, CAP_NET_ADMIN to attach it; Ethernet
//! interfaces. A driver that has no
//! XDP of its own runs the program in generic mode, later and slower.
//!
//! # Bounds
//!
//! Kernel memory: 45 bytes for each of [`Limits::groups`] (buckets of the hash map, and the words), and about 150 more for each
//! that is published; 512 KiB for the kernel's numbers of interfaces; for each of [`Limits::interfaces`] about 110 bytes, 72 for each processor, and up to four prefixes.

mod error;
mod program;
mod publish;
#[allow(unsafe_code, reason = "maps memory of BPF, and values of BPF maps")]
mod sys;
mod test_run;

pub use error::{AttachError, LoadError, MapError};
pub use program::{Attached, FastPath, Limits, Mode};
pub use publish::{Link, Published};
pub use sys::Shared;
pub use test_run::{Action, TestRun};

pub use lms_proto::fast_path::{Port, PortCounters, Refusal, Settings, Totals, Words};

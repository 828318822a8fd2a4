use aya::maps::xdp::XdpMapError;
use aya::programs::ProgramError;

/// The program could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel refused the program or a map, or lacks a part of BPF.
    #[error("the kernel refuses the BPF program: {0}")]
    Ebpf(#[from] aya::EbpfError),
    /// The kernel refused the program.
    #[error("the kernel refuses the XDP program: {}", reason(.0))]
    Program(#[from] ProgramError),
    /// A map could not be opened.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// A map could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// By the kernel's answer.
    #[error("BPF map: {0}")]
    Map(#[from] aya::maps::MapError),
    /// The map of devices.
    #[error("BPF map of devices: {0}")]
    Device(#[from] XdpMapError),
    /// The memory of a map could not be mapped.
    #[error("mapping a BPF map into memory: {0}")]
    Memory(std::io::Error),
}

/// The program could not be attached to an interface.
#[derive(Debug, thiserror::Error)]
#[error("{}", reason(.0))]
pub struct AttachError(#[from] pub(crate) ProgramError);

impl AttachError {
    /// Whether another XDP program is attached already.
    pub fn is_busy(&self) -> bool {
        error_number(&self.0) == Some(nix::libc::EBUSY)
    }
}

fn error_number(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    }
}

/// The kernel's own answer where there is one: the library's texts only name the system call.
fn reason(error: &ProgramError) -> String {
    match error {
        ProgramError::SyscallError(error) => error.io_error.to_string(),
        ProgramError::LoadError { io_error, .. } => io_error.to_string(),
        other => other.to_string(),
    }
}

//! The bounds of every field and list. A peer that exceeds one is refused before memory is allocated.

/// Length of one block of a file, the unit of transmission, verification and resumption.
pub const BLOCK_LEN: u64 = 1 << BLOCK_BITS;
/// log2 of [`BLOCK_LEN`].
pub const BLOCK_BITS: u32 = 20;
/// Longest frame, header included.
pub const MAX_FRAME_LEN: usize = 1 << 16;
/// Longest relative path, in bytes.
pub const MAX_PATH_LEN: usize = 4096;
/// Longest component of a path in bytes, as on Linux file systems.
pub const MAX_NAME_LEN: usize = 255;
/// Most components of a path.
pub const MAX_DEPTH: usize = 128;
/// Longest target of a symbolic link, in bytes.
pub const MAX_TARGET_LEN: usize = 4095;
/// Largest file in bytes, as Linux file offsets allow.
pub const MAX_FILE_LEN: u64 = i64::MAX as u64;
/// Largest number of entries of one copy that the format can express.
pub const MAX_ENTRIES: u32 = 1 << 24;
/// Largest number of blocks of one copy that the format can express (256 TiB).
pub const MAX_BLOCKS: u64 = 1 << 28;
/// Most digests in one HELD or BLOCKS.
pub const MAX_HELD: usize = 1024;
/// Most runs in one RUNS.
pub const MAX_RUNS_PER_FRAME: usize = 2048;
/// Most runs of one plan; a sender joins the nearest ones until that many are left.
pub const MAX_RUNS: u32 = 1 << 16;
/// Most blocks that a child has requested of its feeder at a time.
pub const MAX_REQUESTS: u64 = 256;
/// Bytes of requested blocks from which on a child requests no more.
pub const MAX_REQUESTED_BYTES: u64 = 16 << 20;
/// Longest explanation in a FAILED, in bytes.
pub const MAX_TEXT_LEN: usize = 512;
/// Most suggestions of a port (TCP-XM §3.4) before the hosts that disagree are given up.
pub const MAX_SUGGESTIONS: u16 = 16;

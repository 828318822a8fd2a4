//! Single frames through the program, without a network (`BPF_PROG_TEST_RUN`).

use aya::programs::TestRun as _;
use aya::programs::{ProgramError, TestRunOptions};

use crate::program::FastPath;

/// The kernel's own room before and behind a frame in a test.
const ROOM: usize = 256;

/// What the program said of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The program failed: the kernel drops the frame.
    Aborted,
    /// Dropped.
    Drop,
    /// For the kernel, and the router.
    Pass,
    /// Sent on another interface.
    Redirect,
    /// Another number.
    Other(u32),
}

/// The result of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// What the program said.
    pub action: Action,
    /// The frame after it.
    pub frame: Vec<u8>,
    /// How long the program took on average, in nanoseconds.
    pub nanoseconds: u64,
}

impl FastPath {
    /// Runs the program on a frame that arrives on an interface, by the kernel's number, `repeat` times: each run gets the
    /// frame as the one before left it. Nothing is sent; maps are changed as ever.
    ///
    /// # Errors
    /// The kernel refuses the run: there is no such interface, or the frame is shorter than an Ethernet header or longer
    /// than a page has room for.
    pub fn test_run(
        &mut self,
        index: u32,
        frame: &[u8],
        repeat: u32,
    ) -> Result<TestRun, ProgramError> {
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let context = [0, len, 0, index, 0, 0];
        let context: Vec<u8> = context
            .iter()
            .flat_map(|word: &u32| word.to_ne_bytes())
            .collect();
        let mut out = vec![0; frame.len() + ROOM];
        let result = self.program()?.test_run(TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            repeat,
            ..TestRunOptions::new()
        })?;
        out.truncate(result.data_size_out as usize);
        Ok(TestRun {
            action: match result.return_value {
                0 => Action::Aborted,
                1 => Action::Drop,
                2 => Action::Pass,
                4 => Action::Redirect,
                other => Action::Other(other),
            },
            frame: out,
            nanoseconds: u64::try_from(result.duration.as_nanos()).unwrap_or(u64::MAX),
        })
    }
}

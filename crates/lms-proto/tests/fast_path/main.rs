//! The fast path beside the router machine: the same packet goes through [`lms_proto::fast_path`] with tables in maps, and
//! through `Router::forward`. Where the fast path decides, verdict, bytes and words are the machine's; where it does not,
//! packet and words stay as they were.

#[path = "../forwarding/common.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod common;
#[path = "../forwarding/net.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod net;

mod dmcasts;
mod driver;
mod limits;
mod numbers;
mod prop;
mod publish;
mod requests;

//! The child's side: staying attached to a parent, and speaking with it.

mod endpoint;
mod parent;

pub use endpoint::{Attachment, AttachmentConfig, AttachmentEvent, Input};
pub(crate) use parent::{Outcome, Parent};

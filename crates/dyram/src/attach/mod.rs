//! The child's side of the session protocol: finds a parent and stays attached to it.

mod endpoint;
mod parent;

pub use endpoint::{Attachment, AttachmentConfig, AttachmentEvent};
pub(crate) use parent::{Outcome, Parent};

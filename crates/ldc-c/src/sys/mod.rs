//! The functions that C calls, and the pointers that they take: all `unsafe` of the crate.

pub(crate) mod listener;
pub(crate) mod open;
pub(crate) mod pointer;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod text;

//! Names and messages: goldens, properties, hostile bytes.

mod common;
mod golden;
mod names;
mod prop;

//! Names and messages: goldens, properties, hostile bytes.

mod attributes;
mod common;
mod golden;
mod names;
mod prop;
mod versions;

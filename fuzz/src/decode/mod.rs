//! One target for each decoder: any bytes give a value or an error, and what parses is written back.

pub mod bfed;
pub mod contents;
pub mod dyram;
pub mod external;
pub mod ldc;
pub mod lms;
pub mod ltp;
pub mod mcp;
pub mod media;
pub mod sap;
pub mod tcpxm;

//! The Lua files beside this crate explain polycast's packets to Wireshark (see `README.md`). The crate
//! itself holds only tests: each golden, each of its truncations and each of its single-bit flips is shown
//! to `tshark`, and every field is compared with what the Rust parsers read.

//! Encapsulation of directed multicasts (LMS-ENCAP, LMS §6.3.2): IPv4 in IPv4 to the turning
//! point.

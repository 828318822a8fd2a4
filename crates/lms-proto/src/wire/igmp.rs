//! IGMPv3 messages (RFC 3376 §4) with the replier cost as auxiliary data (LMS §6.7.1).

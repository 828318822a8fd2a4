//! The native networks of the federation on Linux sockets (Broadcast Federation §5.4).

#![cfg_attr(fuzzing, no_main)]
polycast_fuzz::fuzz!(mcp_server_peer);

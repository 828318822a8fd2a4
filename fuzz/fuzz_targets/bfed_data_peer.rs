#![cfg_attr(fuzzing, no_main)]
polycast_fuzz::fuzz!(bfed_data_peer);

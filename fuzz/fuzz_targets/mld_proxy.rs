#![cfg_attr(fuzzing, no_main)]
polycast_fuzz::fuzz!(mld_proxy);

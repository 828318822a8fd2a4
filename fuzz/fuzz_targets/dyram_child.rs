#![cfg_attr(fuzzing, no_main)]
polycast_fuzz::fuzz!(dyram_child);

#![cfg_attr(fuzzing, no_main)]
polycast_fuzz::fuzz!(decode_bfed_contents);

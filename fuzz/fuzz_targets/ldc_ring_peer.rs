#![cfg_attr(fuzzing, no_main)]
polycast_fuzz::fuzz!(ldc_ring_peer);

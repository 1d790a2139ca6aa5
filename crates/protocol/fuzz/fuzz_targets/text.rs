#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farshell_protocol_fuzz::text(data));

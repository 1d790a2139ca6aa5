#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farshell_policy_fuzz::redaction(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_entry::target("wire")(bytes));

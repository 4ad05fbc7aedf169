//! libFuzzer in the process of a test. Its coverage comes from the flags of `scripts/fuzz-rustc`.
#![expect(unsafe_code, reason = "libFuzzer is a C++ library; no part of the program is here")]

use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;
use std::sync::OnceLock;

use libfuzzer_sys as _;

use crate::{BYTES_MAX, Target, corpus, working_folder};

type Check = Box<dyn Fn(&[u8]) + Send + Sync>;

/// The target of this process: `scripts/fuzz` starts one process for each.
static CHECK: OnceLock<Check> = OnceLock::new();

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        one_input: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// Time of a guided run; `None` for an ordinary test.
pub(crate) fn seconds() -> Option<u64> {
    std::env::var("WOMA_FUZZ_SECONDS").ok()?.parse().ok()
}

/// Ends the process when the time is over, or with status 77 after a failure. New inputs and
/// failures are files of the working folder.
pub(crate) fn run(target: Target, seconds: u64, check: Check) {
    let folder = working_folder(target.name);
    let (inputs, seeds) = (folder.join("inputs"), folder.join("seeds"));
    for folder in [&inputs, &seeds] {
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    }
    for (number, input) in target.corpus().iter().enumerate() {
        fs::write(seeds.join(number.to_string()), input).unwrap_or_else(|error| panic!("{error}"));
    }
    let words: String =
        target.words.iter().map(|word| format!("{}\n", quoted(word.as_bytes()))).collect();
    let dictionary = folder.join("words");
    fs::write(&dictionary, words).unwrap_or_else(|error| panic!("{error}"));
    let arguments = [
        target.name.to_owned(),
        format!("-max_total_time={seconds}"),
        format!("-max_len={BYTES_MAX}"),
        format!("-dict={}", dictionary.display()),
        format!("-artifact_prefix={}/failed-", folder.display()),
        "-timeout=20".to_owned(),
        "-rss_limit_mb=1024".to_owned(),
        "-print_final_stats=1".to_owned(),
        "-verbosity=1".to_owned(),
        inputs.display().to_string(),
        seeds.display().to_string(),
    ];
    assert!(CHECK.set(check).is_ok(), "one process fuzzes one target");
    let owned: Vec<CString> =
        arguments.into_iter().filter_map(|text| CString::new(text).ok()).collect();
    let mut pointers: Vec<*mut c_char> =
        owned.iter().map(|text| text.as_ptr().cast_mut()).collect();
    let mut count = c_int::try_from(pointers.len()).unwrap_or(0);
    pointers.push(std::ptr::null_mut());
    let mut first = pointers.as_mut_ptr();
    // SAFETY: the pointers are to strings that live until the end of this function, with a null
    // after the last; the callback reads exactly the bytes that it is given.
    let status = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut first, one_input) };
    assert_eq!(status, 0, "{} ended with {status}", target.name);
}

/// As libFuzzer's dictionaries have it.
fn quoted(word: &[u8]) -> String {
    let escaped: String = word
        .iter()
        .map(|byte| match byte {
            b'"' | b'\\' => format!("\\{}", char::from(*byte)),
            0x20..0x7f => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        })
        .collect();
    format!("\"{escaped}\"")
}

extern "C" fn one_input(data: *const u8, size: usize) -> c_int {
    let Some(check) = CHECK.get() else { abort() };
    let input = if size == 0 {
        &[][..]
    } else {
        // SAFETY: libFuzzer passes a buffer of this size that lives during the call.
        unsafe { std::slice::from_raw_parts(data, size) }
    };
    if catch_unwind(AssertUnwindSafe(|| check(input))).is_err() {
        let line = format!("a line for {}\n", corpus::written(input));
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap_or_default();
        // libFuzzer keeps the input and ends the process.
        abort();
    }
    0
}

/// Named by `libfuzzer-sys`, whose own `main` is not used.
#[unsafe(no_mangle)]
extern "C" fn rust_fuzzer_test_input(_data: *const u8, _size: usize) -> c_int {
    0
}

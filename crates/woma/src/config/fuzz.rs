//! Settings of any text: a file is read or refused, and never a reason to panic.

use std::path::Path;

use super::settings::SETTINGS;
use super::value::parse;

#[test]
fn fuzz_settings() {
    const WORDS: &[&str] = &[
        "port = ",
        "\"",
        "'",
        "\n",
        "true",
        "512m",
        "1e9",
        "0x10",
        "1_000",
        "[",
        "]",
        "[table]",
        "{",
        "}",
        "max_kernels",
        "api_key",
        "preset = \"",
        "data_dir",
        "#",
        "= ",
        "\"\"\"",
        "\\u0000",
        "-1",
        "50%",
    ];
    woma_fuzz::Target { name: "settings", words: WORDS }.run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (mut given, mut problems) = (Vec::new(), Vec::new());
        super::file::read(Path::new("/etc/woma.toml"), &text, &mut given, &mut problems);
        for problem in &problems {
            assert!(!problem.to_string().is_empty());
        }
        for raw in given {
            // A value that is accepted is written as it is read.
            if let Some(value) = parse(raw.setting.kind, &raw.text) {
                assert_eq!(parse(raw.setting.kind, &raw.text), Some(value), "{}", raw.text);
            }
        }
        for setting in SETTINGS {
            parse(setting.kind, &text);
        }
    });
}

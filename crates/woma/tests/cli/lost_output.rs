//! Output that cannot be written is an error, and a key that was not seen does not exist.

use std::fs::File;
use std::process::Stdio;

use tempfile::TempDir;

use super::{seen, woma};

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let commands: [&[&str]; 11] = [
        &["config", "reference"],
        &["config", "example"],
        &["config", "show"],
        &["openapi"],
        &["completions", "bash"],
        &["doctor"],
        &["env", "list"],
        &["env", "lock"],
        &["help", "run"],
        &["--help"],
        &["--version"],
    ];
    for arguments in commands {
        let lost = seen(woma(arguments).stdout(full()).output().unwrap());
        assert_eq!(lost.status, 125, "{arguments:?}: {}", lost.stderr);
        assert!(lost.stderr.contains("woma: cannot write: "), "{}", lost.stderr);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let unread = seen(woma(arguments).stdout(writer).output().unwrap());
        assert_eq!((unread.status, unread.stderr.as_str()), (141, ""), "{arguments:?}");
    }
}

#[test]
fn a_key_that_could_not_be_printed_is_not_stored() {
    let folder = TempDir::new().unwrap();
    let keys = |arguments: &[&str]| {
        let mut command = woma(&[&["keys"], arguments].concat());
        command.env("WOMA_DATA_DIR", folder.path());
        command
    };
    let lost = seen(keys(&["create", "ci"]).stdout(full()).output().unwrap());
    assert_eq!(lost.status, 125, "{}", lost.stderr);
    assert!(lost.stderr.contains("the key could not be printed, and is not stored"), "{lost:?}");
    let listed = seen(keys(&["list"]).output().unwrap());
    assert_eq!((listed.status, listed.stdout.as_str()), (0, ""), "{}", listed.stderr);
    // The name is free.
    let created = seen(keys(&["create", "ci"]).output().unwrap());
    assert_eq!(created.status, 0, "{}", created.stderr);
    assert!(seen(keys(&["list"]).output().unwrap()).stdout.contains(" ci "));
}

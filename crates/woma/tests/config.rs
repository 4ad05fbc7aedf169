//! `woma config` end to end: the built program, an empty environment, a folder of its own. Unit
//! tests cover the tables of names and values.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

struct Seen {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A folder to work in, with a data folder beside it.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("work")).unwrap();
        fs::create_dir(root.path().join("data")).unwrap();
        Self { root }
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn run(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Seen {
        self.woma(variables, &[&["config"], arguments].concat())
    }

    fn woma(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Seen {
        let output = Command::new(env!("CARGO_BIN_EXE_woma"))
            .args(arguments)
            .env_clear()
            .env("HOME", self.root.path())
            .env("WOMA_DATA_DIR", self.data())
            .envs(variables.iter().copied())
            .current_dir(self.work())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Seen {
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Value and origin of a setting, as `show --json` tells them.
    fn setting(&self, variables: &[(&str, &str)], flags: &[&str], name: &str) -> (Value, String) {
        let arguments = [&["show", "--json", "--all"], flags].concat();
        let seen = self.run(variables, &arguments);
        assert_eq!(seen.status, Some(0), "{}", seen.stderr);
        let whole: Value = serde_json::from_str(&seen.stdout).unwrap();
        let settings = whole["settings"].as_array().unwrap();
        let found = settings.iter().find(|setting| setting["name"] == name).unwrap();
        (found["value"].clone(), found["origin"].as_str().unwrap().to_owned())
    }
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn later_layers_override_earlier_ones() {
    let place = Place::new();
    let file = place.data().join("woma.toml");
    assert_eq!(place.setting(&[], &[], "port"), (8080.into(), "default".to_owned()));
    fs::write(&file, "preset = \"ibm-sandbox\"\n").unwrap();
    let preset = "preset ibm-sandbox".to_owned();
    assert_eq!(place.setting(&[], &[], "port"), (9000.into(), preset));
    fs::write(&file, "preset = \"ibm-sandbox\"\n\nport = 1001\n").unwrap();
    let in_file = format!("{}:3", file.display());
    assert_eq!(place.setting(&[], &[], "port"), (1001.into(), in_file));
    let dot_env = place.work().join(".env");
    fs::write(&dot_env, "PORT=1002\n").unwrap();
    let in_dot_env = format!("{}:1 PORT", dot_env.display());
    assert_eq!(place.setting(&[], &[], "port"), (1002.into(), in_dot_env));
    let variables = [("PORT", "1003")];
    let in_environment = "environment PORT".to_owned();
    assert_eq!(place.setting(&variables, &[], "port"), (1003.into(), in_environment));
    let flag = ["--port", "1004"];
    let by_flag = "flag --port".to_owned();
    assert_eq!(place.setting(&variables, &flag, "port"), (1004.into(), by_flag));
    let set = ["--set", "max_queue=1", "--set", "max_queue=2"];
    let by_set = "flag --set max_queue".to_owned();
    assert_eq!(place.setting(&variables, &set, "max_queue"), (2.into(), by_set));
}

#[test]
fn a_file_is_named_by_flag_or_variable() {
    let place = Place::new();
    fs::write(place.data().join("woma.toml"), "port = 1\n").unwrap();
    fs::write(place.work().join("a.toml"), "port = 2\n").unwrap();
    fs::write(place.work().join("b.toml"), "port = 3\n").unwrap();
    assert_eq!(place.setting(&[("WOMA_CONFIG", "a.toml")], &[], "port").0, 2);
    assert_eq!(place.setting(&[("WOMA_CONFIG", "a.toml")], &["--config", "b.toml"], "port").0, 3);
    let seen = place.run(&[], &["show", "--config", "absent.toml"]);
    assert_eq!(seen.status, Some(125));
    assert!(seen.stderr.contains("absent.toml (flag --config) cannot be read"), "{}", seen.stderr);
}

#[test]
fn reports_all_invalid_settings_and_prints_no_values() {
    let place = Place::new();
    fs::write(place.data().join("woma.toml"), "max_kernel = 3\n").unwrap();
    fs::write(place.work().join(".env"), "JOB_TIMEOUT=soon\n").unwrap();
    let variables = [("PORT", "http"), ("API_KEY", "secret-ö"), ("WOMA_PROT", "1")];
    let seen = place.run(&variables, &["show", "--preset", "none"]);
    assert_eq!(seen.status, Some(125));
    assert_eq!(seen.stdout, "");
    for expected in [
        "woma: 6 settings are wrong:",
        "woma.toml:1: there is no setting `max_kernel`; did you mean `max_kernels`?",
        ".env:1) is `soon`: expected seconds from 1 to 2592000",
        "PORT (environment) is `http`: expected a whole number from 0 to 65535",
        "API_KEY (environment) is not usable (it is not shown)",
        "WOMA_PROT (environment) is not a setting of woma; did you mean `WOMA_PORT`?",
        "--preset (command line) is `none`: expected `default`, `power-interpreter`",
    ] {
        assert!(seen.stderr.contains(expected), "{expected}\n---\n{}", seen.stderr);
    }
    assert!(!seen.stderr.contains("secret"), "{}", seen.stderr);
}

#[test]
fn secrets_are_never_printed() {
    let place = Place::new();
    fs::write(place.work().join("key"), "secret-in-a-file\n").unwrap();
    let sources: [&[(&str, &str)]; 2] = [
        &[("API_KEY", "secret-1"), ("DATABASE_URL", "postgres://user:secret-2@host/name")],
        &[("API_KEY_FILE", "key")],
    ];
    for variables in sources {
        for arguments in [&["show"][..], &["show", "--json"], &["show", "--all"]] {
            let seen = place.run(variables, arguments);
            assert_eq!(seen.status, Some(0), "{}", seen.stderr);
            assert!(seen.stdout.contains("(set)"), "{}", seen.stdout);
            assert!(!(seen.stdout + &seen.stderr).contains("secret-"));
        }
    }
}

#[test]
fn warnings_go_to_standard_error() {
    let place = Place::new();
    let variables = [("MAX_KERNELS", "3"), ("MAX_CONCURRENT_KERNELS", "4")];
    let seen = place.run(&variables, &["show"]);
    assert_eq!(seen.status, Some(0));
    assert!(seen.stderr.contains("MAX_CONCURRENT_KERNELS = 4 is not"), "{}", seen.stderr);
    assert!(!seen.stdout.contains("MAX_CONCURRENT_KERNELS"), "{}", seen.stdout);
}

#[test]
fn options_count_before_and_after_the_command() {
    let place = Place::new();
    let options = ["--preset", "ibm-sandbox", "--api-key", "k", "--set", "max_queue=3", "--debug"];
    let show = ["config", "show", "--json", "--all"];
    let after = place.woma(&[], &[&show[..], &options].concat());
    let before = place.woma(&[], &[&options[..], &show].concat());
    assert_eq!(
        (before.status, before.stdout),
        (Some(0), after.stdout.clone()),
        "{}",
        before.stderr
    );
    assert!(after.stdout.contains("preset ibm-sandbox"), "{}", after.stdout);
    // A flag that can be repeated is repeated across the command too; the last one counts.
    let both = [&options[..], &["config", "show", "--json", "--all", "--set", "max_queue=4"]];
    let both = place.woma(&[], &both.concat());
    let whole: Value = serde_json::from_str(&both.stdout).unwrap();
    let settings = whole["settings"].as_array().unwrap();
    let queue = settings.iter().find(|setting| setting["name"] == "max_queue").unwrap();
    assert_eq!(queue["value"], 4);
}

#[test]
fn options_that_a_command_does_not_use_are_refused() {
    let place = Place::new();
    let table: &[(&[&str], &str)] = &[
        (&["--api-key", "secret-1", "keys", "list"], "--api-key has no effect on this command"),
        (&["--preset", "all", "run", "-c", "1"], "--preset has no effect on this command"),
        (&["--set", "port=1", "doctor"], "--set port has no effect on this command"),
        (&["--print-config", "env", "list"], "--print-config has no effect on this command"),
        (&["--sse", "keys", "list"], "--sse has no effect on this command"),
        (&["--sse", "stdio"], "--sse contradicts `woma stdio`"),
        (&["--stdio", "serve"], "--stdio contradicts `woma serve`"),
        (&["--port", "1", "serve", "--port", "2"], "--port is given twice"),
    ];
    for (arguments, expected) in table {
        let seen = place.woma(&[], arguments);
        assert_eq!(seen.status, Some(125), "{arguments:?}: {}", seen.stderr);
        assert!(seen.stderr.contains(expected), "{arguments:?}: {}", seen.stderr);
        assert!(!seen.stderr.contains("secret-"), "{}", seen.stderr);
        assert_eq!(seen.stdout, "");
    }
}

#[test]
fn the_environment_of_sessions_can_be_named_by_a_variable() {
    let place = Place::new();
    let variables = [("WOMA_ENV", "not-made")];
    assert_eq!(place.setting(&variables, &[], "env").0, "not-made");
    let by_flag = place.setting(&variables, &["--env", "other"], "env");
    assert_eq!(by_flag, ("other".into(), "flag --env".to_owned()));
    let seen = place.woma(&variables, &["run", "-c", "1"]);
    assert_eq!(seen.status, Some(125));
    assert!(seen.stderr.contains("not-made"), "{}", seen.stderr);
}

/// Compares the output of a command with a file of the repository.
fn same_as_file(command: &str, path: &str) -> String {
    let seen = Place::new().run(&[], &[command]);
    assert_eq!(seen.status, Some(0), "{}", seen.stderr);
    let file = fs::read_to_string(repository(path)).unwrap_or_default();
    assert!(
        seen.stdout == file,
        "{path} is not what the settings are; make it anew: woma config {command} > {path}"
    );
    file
}

#[test]
fn the_reference_is_up_to_date() {
    same_as_file("reference", "docs/reference/configuration.md");
}

#[test]
fn the_example_is_up_to_date_and_names_every_variable() {
    let example = same_as_file("example", ".env.example");
    let variables = "DATABASE_URL API_KEY PORT HOST DEBUG LOG_LEVEL MAX_EXECUTION_TIME SANDBOX_TIMEOUT \
        DEFAULT_TIMEOUT MAX_MEMORY_MB SANDBOX_DEFAULT_MEMORY_LIMIT MAX_CONCURRENT_KERNELS MAX_KERNELS \
        KERNEL_TIMEOUT SANDBOX_FILE_MAX_MB SANDBOX_FILE_TTL_HOURS MAX_CONCURRENT_JOBS JOB_TIMEOUT \
        PUBLIC_BASE_URL PUBLIC_URL RAILWAY_PUBLIC_DOMAIN SANDBOX_MAX_OUTPUT_SIZE MAX_OUTPUT_SIZE \
        SANDBOX_ENABLE_NETWORK ENABLE_NETWORK_ACCESS SANDBOX_ENABLE_FILESYSTEM \
        SANDBOX_ENABLE_DATA_SCIENCE SANDBOX_ALLOWED_IMPORTS SANDBOX_ENABLE_CONTAINER_MODE \
        SANDBOX_CONTAINER_IMAGE BLOCKED_PACKAGES PYTHONPATH SANDBOX_DEFAULT_TIMEOUT \
        SANDBOX_MAX_TIMEOUT MAX_FILE_SIZE_MB SANDBOX_DIR UPLOAD_DIR TEMP_DIR LOG_DIR \
        JOB_CLEANUP_HOURS ALLOWED_HOSTS KERNEL_CLEANUP_INTERVAL SESSION_POOL_SIZE \
        SESSION_POOL_MAX_IDLE_TIME SESSION_POOL_REFILL_INTERVAL API_KEY_FILE REQUIRE_API_KEY \
        PRIVATE_DOWNLOADS RATE_LIMIT_EXEC COMPAT_PROFILE IMPORT_BLOCK_MODE MIN_ISOLATION";
    for variable in variables.split_whitespace() {
        let line = format!("#{variable}=");
        assert!(example.lines().any(|found| found.starts_with(&line)), "{variable}");
    }
}

/// The example with every `#` taken away is a `.env` that changes nothing.
#[test]
fn the_example_is_a_valid_dot_env_file() {
    let place = Place::new();
    let example = place.run(&[], &["example"]).stdout;
    let lines = example.lines().filter(|line| !line.starts_with("# ") && !line.is_empty());
    let mut text = String::new();
    for line in lines {
        let line = line.strip_prefix('#').unwrap();
        // The one alias whose unit is another: it would differ from the setting's default.
        if !line.starts_with("MAX_OUTPUT_SIZE=") {
            text = text + line + "\n";
        }
    }
    fs::write(place.work().join(".env"), text).unwrap();
    let with = place.run(&[], &["show", "--json", "--all"]);
    assert_eq!(with.status, Some(0), "{}", with.stderr);
    // Nothing is wrong with it; some of its settings do nothing, and say so.
    let others: Vec<_> =
        with.stderr.lines().filter(|line| !line.contains(" has no effect")).collect();
    assert_eq!(others, [] as [&str; 0]);
    fs::remove_file(place.work().join(".env")).unwrap();
    let without = place.run(&[], &["show", "--json", "--all"]);
    let values = |text: &str| -> Vec<Value> {
        let whole: Value = serde_json::from_str(text).unwrap();
        let settings = whole["settings"].as_array().unwrap();
        settings.iter().map(|setting| setting["value"].clone()).collect()
    };
    assert_eq!(values(&with.stdout), values(&without.stdout));
}

//! The files of `packaging/` and those at the root that tools demand: each is read by the parser or the
//! schema of its own tool, compared with the program's settings, presets, routes and metrics, and run
//! where one machine is enough.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn setting(name: &str) -> PathBuf {
    let set = env::var_os(name);
    assert!(set.is_some(), "{name} must be set; `make test` fetches what is needed and sets it");
    set.map(PathBuf::from).unwrap_or_default()
}

/// Runs a check of `tests/packaging`, which says what is wrong.
fn holds(check: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packaging");
    let output = Command::new(setting("WOMA_TEST_PACKAGING").join("python/bin/python"))
        .args(["-B", "checks.py", check])
        .current_dir(folder)
        .env("CARGO", env!("CARGO"))
        .env("WOMA_UNDER_TEST", env!("CARGO_BIN_EXE_woma"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_image_is_small_in_rights_and_builds_from_what_is_sent() {
    holds("containers.dockerfile");
    holds("containers.context");
}

#[test]
fn the_health_check_of_the_image_asks_the_port_of_the_server() {
    holds("running.probe");
}

#[test]
fn the_seccomp_profile_builds_sessions_without_privileges() {
    holds("running.seccomp");
}

#[test]
fn compose_has_every_option_and_setting() {
    holds("containers.compose");
}

#[test]
fn nginx_passes_lines_on_at_once_and_limits_rates() {
    holds("running.nginx");
}

#[test]
fn kubernetes_manifests_are_valid_and_fit_each_other() {
    holds("containers.kubernetes");
}

#[test]
fn the_chart_renders_and_refuses_what_cannot_work() {
    holds("containers.helm");
}

#[test]
fn railway_reads_a_file_of_known_keys() {
    holds("containers.railway");
}

#[test]
fn units_name_settings_and_commands_that_exist() {
    holds("containers.systemd");
}

#[test]
fn the_documents_are_spelt_correctly() {
    holds("words.spelling");
}

#[test]
fn the_apparmor_profile_is_parsed() {
    holds("containers.apparmor");
}

#[test]
fn alerts_and_dashboard_name_metrics_that_exist() {
    holds("monitoring.alerts");
    holds("monitoring.dashboard");
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    holds("bundles.pages");
}

#[test]
fn the_debian_package_has_the_program_and_its_pages() {
    holds("bundles.deb");
}

#[test]
fn the_bundle_for_mcp_clients_starts_as_its_manifest_says() {
    holds("bundles.mcpb");
}

#[test]
fn the_wheel_installs_the_program_and_the_python_package() {
    holds("wheel.install");
}

#[test]
fn the_file_of_mcpo_fits_the_preset_of_its_system() {
    holds("bundles.mcpo");
}

#[test]
fn the_release_workflow_runs_scripts_that_exist() {
    holds("bundles.workflow");
}

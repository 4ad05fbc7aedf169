//! Settings that do nothing say so; settings with an effect are quiet.

use super::Config;
use super::layers::Sources;
use super::network::Network;
use super::setting::Setting;
use super::settings::SETTINGS;
use super::tests::{flag, refused, surrounding, with};
use super::types::{LogLevel, TrustedProxies};
use super::value::Kind;

/// A value for a setting that does nothing, other than its default.
fn other_value(setting: &Setting) -> &'static str {
    match setting.kind {
        Kind::Bool => "true",
        Kind::Path => "/elsewhere",
        Kind::Time { .. } | Kind::Integer { .. } => "7",
        _ => "something",
    }
}

#[test]
fn every_setting_that_does_nothing_is_told_with_the_reason() {
    let idle = SETTINGS.iter().filter_map(|setting| Some((setting, setting.effect.reason()?)));
    let idle: Vec<_> = idle.collect();
    assert!(idle.len() > 5, "{idle:?}");
    for (setting, reason) in idle {
        let config = with(&[(setting.variable, other_value(setting))]);
        let expected = format!("{} (environment) has no effect: {reason}", setting.variable);
        assert_eq!(config.warnings, [expected]);
    }
    assert_eq!(with(&[]).warnings, [] as [String; 0]);
    assert_eq!(with(&[("SANDBOX_ENABLE_CONTAINER_MODE", "true")]).warnings, [] as [String; 0]);
}

#[test]
fn settings_without_an_effect_on_others_are_told() {
    let table: &[(&[(&str, &str)], &str)] = &[
        (&[("SANDBOX_ENABLE_NETWORK", "true")], "gives sessions no network"),
        (&[("ENABLE_NETWORK_ACCESS", "true")], "ENABLE_NETWORK_ACCESS (environment) gives"),
        (&[("SANDBOX_ENABLE_FILESYSTEM", "false")], "the rules are `open`"),
        (&[("SANDBOX_ENABLE_DATA_SCIENCE", "false")], "the rules are `open`"),
        (
            &[("SANDBOX_ENABLE_DATA_SCIENCE", "true"), ("SANDBOX_ALLOWED_IMPORTS", "math")],
            "SANDBOX_ALLOWED_IMPORTS is the whole list",
        ),
        (
            &[("S3_BUCKET", "b")],
            "S3_BUCKET (environment) has no effect: contents are in the folder",
        ),
        (&[("RUN_AS", "nobody")], "was not started as root"),
        (&[("DEBUG", "true"), ("LOG_LEVEL", "info")], "DEBUG (environment) has no effect"),
        (&[("MAX_RUNNING", "9"), ("MAX_KERNELS", "3")], "MAX_RUNNING (environment) = 9 cannot be"),
        (&[("MAX_KERNELS", "9"), ("MAX_SESSIONS", "3")], "MAX_KERNELS (environment) = 9 cannot be"),
    ];
    for (variables, expected) in table {
        let warnings = with(variables).warnings;
        assert!(matches!(warnings.as_slice(), [one] if one.contains(expected)), "{warnings:?}");
    }
    let quiet: &[&[(&str, &str)]] = &[
        &[("SANDBOX_ENABLE_NETWORK", "false")],
        &[("SANDBOX_ENABLE_FILESYSTEM", "true")],
        &[("SANDBOX_ENABLE_FILESYSTEM", "false"), ("SANDBOX_POLICY", "tiers")],
        &[("SANDBOX_ENABLE_DATA_SCIENCE", "true"), ("COMPAT_PROFILE", "ibm-sandbox")],
        &[("AWS_REGION", "eu-west-1"), ("AWS_ACCESS_KEY_ID", "of-another-program")],
        &[("DEBUG", "true"), ("LOG_LEVEL", "trace")],
        &[("MAX_RUNNING", "3"), ("MAX_KERNELS", "3")],
        &[("COMPAT_PROFILE", "power-interpreter")],
    ];
    for variables in quiet {
        assert_eq!(with(variables).warnings, [] as [String; 0], "{variables:?}");
    }
}

#[test]
fn a_stronger_layer_decides_between_debug_and_the_level() {
    let folder = tempfile::tempdir().unwrap();
    let mut sources = surrounding(folder.path(), &[("LOG_LEVEL", "warning")]);
    sources.flags = vec![flag("debug", "true")];
    let config = Config::from_sources(&sources).unwrap();
    assert_eq!((config.log_level, config.warnings.len()), (LogLevel::Debug, 0));
}

#[test]
fn trusted_proxies_are_a_switch_or_a_list() {
    let of = |text: &str| with(&[("TRUST_PROXY", text)]).trust_proxy;
    assert_eq!(with(&[]).trust_proxy, TrustedProxies::None);
    assert_eq!(of("false"), TrustedProxies::None);
    assert_eq!((of("true"), of("*")), (TrustedProxies::Anyone, TrustedProxies::Anyone));
    let network = |text| Network::parse(text).unwrap();
    let listed = TrustedProxies::Listed(vec![network("10.0.0.0/8"), network("::1")]);
    assert_eq!(of("10.0.0.0/8, ::1"), listed);
    for bad in ["proxy.example", "10.0.0.0/99", ",", "true,10.0.0.1"] {
        let text = refused(&[("TRUST_PROXY", bad)]);
        assert!(text.contains("addresses and networks such as 10.0.0.0/8"), "{bad}: {text}");
    }
}

#[test]
fn flags_of_a_port_are_told_where_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut sources = surrounding(folder.path(), &[("PORT", "1"), ("API_KEY", "k")]);
    let idle = |sources: &Sources| {
        super::unused::without_port(Config::from_sources(sources).unwrap().origins())
    };
    assert_eq!(idle(&sources), [] as [String; 0]);
    sources.flags = vec![flag("api_key", "k"), flag("preset", "all")];
    let told = idle(&sources);
    assert!(matches!(told.as_slice(), [one] if one.starts_with("--api-key has no effect")));
}

//! The settings in force and where each comes from, as a table or as JSON.

use std::fmt::Write as _;

use serde_json::json;

use super::Config;
use super::layers::Resolved;
use super::setting::Effect;

/// The settings as a table, or as JSON.
pub(crate) fn show(config: &Config, json: bool, all: bool) -> String {
    // A default that changes nothing is noise.
    let is_wanted =
        |one: &&Resolved| all || one.setting.effect == Effect::Now || one.origin.layer() > 0;
    let wanted: Vec<&Resolved> = config.origins().iter().filter(is_wanted).collect();
    if json { as_json(config, &wanted) } else { as_table(&wanted) }
}

fn as_table(wanted: &[&Resolved]) -> String {
    let width = |column: fn(&Resolved) -> String| {
        wanted.iter().map(|one| column(one).chars().count()).max().unwrap_or_default().min(40)
    };
    let (names, values) = (width(|one| one.setting.name.to_owned()), width(|one| one.value.show()));
    let mut text = String::new();
    for one in wanted {
        let (name, value) = (one.setting.name, one.value.show());
        let note = one.setting.effect.note().map(|note| format!("  ({note})")).unwrap_or_default();
        // Writing to a String cannot fail.
        writeln!(text, "{name:<names$}  {value:<values$}  {}{note}", one.origin)
            .unwrap_or_default();
    }
    text
}

fn as_json(config: &Config, wanted: &[&Resolved]) -> String {
    let settings: Vec<serde_json::Value> = wanted
        .iter()
        .map(|one| {
            json!({
                "name": one.setting.name,
                "variable": one.setting.variable,
                "value": one.value.json(),
                "origin": one.origin.to_string(),
                "secret": one.setting.kind.is_secret(),
                "effect": match one.setting.effect {
                    Effect::Now => "now",
                    Effect::Later(_) => "later",
                    Effect::Never(_) => "never",
                },
            })
        })
        .collect();
    let whole = json!({ "settings": settings, "warnings": config.warnings });
    format!("{whole:#}\n")
}

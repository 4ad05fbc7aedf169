//! `woma check`: validates a program against the server's policy, without running it.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use woma_core::Verdict;
use woma_core::environments::Version;

use crate::api::validation::Validation;
use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::{Config, Data};
use crate::server::policies;
use crate::server::start;
use crate::terminal::{fail, print, tell};

/// Python version if there is no environment: the newest supported one.
const NEWEST: Version = Version(3, 14, 0);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program; `-` reads it from standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Modules that the run may import, out of those that the server allows
    #[arg(long, value_name = "MODULES", value_delimiter = ',')]
    allowed_imports: Option<Vec<String>>,
    /// Print the JSON of `validate_code`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) settings: SettingOptions,
}

/// Exit status 0: the code would run unblocked; 1: it would not; 125: it could not be checked.
pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    match check(data, options) {
        Ok(Some(verdict)) => report(options, &verdict),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, None),
    }
}

fn check(data: &DataOptions, options: &Options) -> Result<Option<Verdict>, Box<dyn Error>> {
    let Some(config) =
        start::configure(data, &options.settings, Config::load_without_foreign_dot_env)?
    else {
        return Ok(None);
    };
    let source = read(options)?;
    if source.trim().is_empty() {
        return Err(woma_core::Error::EmptyCode.into());
    }
    let environment = Data::new(data)?.environment_if_made().ok().flatten();
    let version = environment.map_or(NEWEST, |environment| environment.version);
    let policies = policies::policies(&config)?;
    Ok(Some(policies.judge(&source, version, options.allowed_imports.as_deref())))
}

fn read(options: &Options) -> Result<String, Box<dyn Error>> {
    let mut bytes = Vec::new();
    if options.file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes)?;
    } else {
        let path = &options.file;
        bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    String::from_utf8(bytes).map_err(|_| "the program is not UTF-8 text".into())
}

fn report(options: &Options, verdict: &Verdict) -> ExitCode {
    let validation = Validation::new(verdict);
    let found = &validation.validation;
    if options.json {
        match serde_json::to_string_pretty(&validation) {
            Ok(text) => print(&format!("{text}\n")),
            Err(error) => return fail(&error, None),
        }
    } else {
        print(&lines(options, &validation));
        for warning in &found.warnings {
            tell(&format!("warning: {warning}"));
        }
        tell(&format!("{} (policy {})", found.message, validation.policy));
    }
    if found.valid { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Findings as `file:line:column: message`, which editors can follow.
fn lines(options: &Options, validation: &Validation) -> String {
    let found = &validation.validation;
    let file = options.file.display();
    let mut text = String::new();
    let mut add = |line: usize, column: usize, what: &str, hint: Option<&String>| {
        writeln!(text, "{file}:{line}:{column}: {what}").unwrap_or_default();
        if let Some(hint) = hint {
            writeln!(text, "  hint: {hint}").unwrap_or_default();
        }
    };
    if let Some(error) = &found.syntax_error {
        let caret = error.caret.replace('\n', "\n    ");
        let what = format!("{}\n    {caret}", error.message);
        add(error.line, error.offset, &what, error.hint.as_ref());
    }
    for violation in &found.violations {
        add(violation.line, violation.column, &violation.reason, violation.hint.as_ref());
    }
    text
}

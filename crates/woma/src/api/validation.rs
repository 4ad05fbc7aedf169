//! Validation of code without running it: the request and the reply of REST, MCP and `woma check`.

use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{Caller, Mode, Rule, SessionId, Verdict, Violation};

use super::arguments::Arguments;
use super::error::Envelope;
use super::state::AppState;

/// Code with more lines gets the recommendation to use smaller functions.
const LONG_LINES: usize = 50;

/// Code to check.
#[derive(Debug, JsonSchema)]
#[schemars(transform = code_is_required)]
#[expect(dead_code, reason = "it is the shape of a body, which is read field by field")]
pub(crate) struct ValidateBody {
    /// Python code. It is not run.
    #[schemars(extend("minLength" = 1))]
    code: String,
    /// Session in which it would run, if that session has a policy of its own.
    #[schemars(with = "String")]
    session_id: Option<String>,
    /// Modules that the run would be allowed to import.
    #[schemars(with = "Vec<String>")]
    allowed_imports: Option<Vec<String>>,
}

fn code_is_required(schema: &mut schemars::Schema) {
    schema.insert("required".to_owned(), serde_json::json!(["code"]));
}

/// The verdict that an execution would act on.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Validation {
    /// True if the check was done; `validation` has its findings.
    pub(crate) success: bool,
    /// The same as `validation.valid`, `validation.message` and `validation.errors`.
    pub(crate) valid: bool,
    pub(crate) message: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<String>,
    pub(crate) validation: Found,
    pub(crate) analysis: Analysis,
    pub(crate) recommendations: Vec<String>,
    /// Name of the policy that was applied.
    pub(crate) policy: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Found {
    /// True if the code would run and nothing in it would be blocked.
    pub(crate) valid: bool,
    /// One sentence for each error, with its line.
    pub(crate) errors: Vec<String>,
    /// Findings that do not stop the code.
    pub(crate) warnings: Vec<String>,
    pub(crate) message: &'static str,
    /// Operations that the policy does not allow, in source order.
    pub(crate) violations: Vec<ViolationDetail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SyntaxDetail")]
    pub(crate) syntax_error: Option<SyntaxDetail>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ViolationDetail {
    /// `import`, `builtin`, `attribute` or `command`.
    #[schemars(with = "String")]
    pub(crate) rule: Rule,
    /// The module, builtin, attribute or command.
    pub(crate) subject: String,
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) hint: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SyntaxDetail {
    /// `syntax`, `truncated`, `prose` or `fenced`.
    #[schemars(with = "String")]
    pub(crate) kind: woma_core::ProblemKind,
    pub(crate) message: String,
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) offset: usize,
    /// The line itself.
    pub(crate) text: String,
    /// The line with a caret below.
    pub(crate) caret: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) hint: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Analysis {
    pub(crate) line_count: usize,
    pub(crate) character_count: usize,
    /// `low`, `medium` or `high`.
    #[schemars(with = "String")]
    pub(crate) estimated_complexity: woma_core::Complexity,
}

/// Reads a request and validates its code; also returns warnings about the request.
pub(crate) async fn validate(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<(Validation, Vec<String>), Envelope> {
    let code = arguments.code("the Python code to check")?;
    let session = arguments.text(&["session_id"])?;
    let session = session.as_deref().map(SessionId::parse).transpose()?;
    let allowed = arguments.list(&["allowed_imports"])?;
    let service = &state.service;
    let verdict = service.validate(caller, &code, session.as_ref(), allowed.as_deref()).await?;
    Ok((Validation::new(&verdict), arguments.unknown().collect()))
}

impl Validation {
    pub(crate) fn new(verdict: &Verdict) -> Self {
        let review = &verdict.review;
        let mode = if verdict.is_rejected() { Mode::Reject } else { verdict.rules.profile.mode };
        let (stopped, told): (Vec<&Violation>, Vec<&Violation>) =
            review.violations.iter().partition(|violation| stops(mode, violation));
        let line =
            |violation: &&Violation| format!("Line {}: {}", violation.line, violation.reason);
        let syntax = review.problem.as_ref();
        let syntax_line =
            syntax.map(|problem| format!("Line {}: {}", problem.line, problem.message));
        let errors: Vec<String> = syntax_line.into_iter().chain(stopped.iter().map(line)).collect();
        let repairs = review.repairs.iter().map(|repair| repair.text.clone());
        let warnings =
            told.iter().map(line).chain(repairs).chain(review.remarks.iter().cloned()).collect();
        let message = match (syntax, stopped.is_empty()) {
            (Some(_), _) => "Code has a syntax error",
            (None, false) => "Code contains restricted operations",
            (None, true) => "Code passed validation",
        };
        let mut recommendations = Vec::new();
        if !review.violations.is_empty() {
            recommendations.push("Some operations may be restricted in sandbox environment");
        }
        if review.line_count > LONG_LINES {
            recommendations.push("Consider breaking large code blocks into smaller functions");
        }
        if review.has_print {
            recommendations.push("Output will be captured automatically");
        }
        Self {
            success: true,
            valid: errors.is_empty(),
            message,
            errors: errors.clone(),
            validation: Found {
                valid: errors.is_empty(),
                errors,
                warnings,
                message,
                violations: review.violations.iter().map(detail).collect(),
                syntax_error: syntax.map(|problem| SyntaxDetail {
                    kind: problem.kind,
                    message: problem.message.clone(),
                    line: problem.line,
                    offset: problem.column,
                    text: problem.text.clone(),
                    caret: problem.caret(),
                    hint: problem.hint.clone(),
                }),
            },
            analysis: Analysis {
                line_count: review.line_count,
                character_count: review.character_count,
                estimated_complexity: review.complexity,
            },
            recommendations: recommendations.into_iter().map(str::to_owned).collect(),
            policy: verdict.rules.profile.name.clone(),
        }
    }
}

/// Whether this violation would reject the code or end the run.
fn stops(mode: Mode, violation: &Violation) -> bool {
    match mode {
        Mode::Reject => true,
        Mode::Raise => !violation.is_caught,
        Mode::Annotate => !violation.is_caught && violation.rule != Rule::Import,
    }
}

fn detail(violation: &Violation) -> ViolationDetail {
    ViolationDetail {
        rule: violation.rule,
        subject: violation.subject.clone(),
        line: violation.line,
        column: violation.column,
        reason: violation.reason.clone(),
        hint: violation.hint.clone(),
    }
}

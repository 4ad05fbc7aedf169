//! The parser's errors in CPython's words, as far as both agree on what is wrong.

use super::ruff::{
    InterpolatedStringErrorType, LexicalErrorType, ParseErrorType, SemanticSyntaxErrorKind,
    YieldOutsideFunctionKind,
};
use super::{Position, Token, TokenKind};
use ruff_text_size::Ranged;

/// CPython's message for an error at `start`.
pub(super) fn of(error: &ParseErrorType, text: &str, start: usize) -> String {
    let wording = match error {
        ParseErrorType::Lexical(error) => return lexical(error, text, start),
        ParseErrorType::FStringError(error) => return interpolated("f-string", error),
        ParseErrorType::TStringError(error) => return interpolated("t-string", error),
        ParseErrorType::ExpectedToken { expected: TokenKind::Colon, .. } => "expected ':'",
        ParseErrorType::UnexpectedIndentation => "unexpected indent",
        ParseErrorType::PositionalAfterKeywordArgument => {
            "positional argument follows keyword argument"
        }
        ParseErrorType::PositionalAfterKeywordUnpacking => {
            "positional argument follows keyword argument unpacking"
        }
        ParseErrorType::NonDefaultParamAfterDefaultParam => {
            "parameter without a default follows parameter with a default"
        }
        ParseErrorType::IterableUnpackingInComprehension => {
            "iterable unpacking cannot be used in comprehension"
        }
        ParseErrorType::InvalidStarredExpressionUsage => "can't use starred expression here",
        ParseErrorType::ExpectedKeywordParam => "named parameters must follow bare *",
        ParseErrorType::InvalidAssignmentTarget => {
            "cannot assign to this expression. Maybe you meant '==' instead of '='?"
        }
        ParseErrorType::InvalidNamedAssignmentTarget => {
            "cannot use assignment expressions with this expression"
        }
        ParseErrorType::InvalidAugmentedAssignmentTarget => {
            "this expression is an illegal target for augmented assignment"
        }
        ParseErrorType::InvalidAnnotatedAssignmentTarget => "illegal target for annotation",
        ParseErrorType::InvalidDeleteTarget => "cannot delete this expression",
        ParseErrorType::SimpleStatementsOnSameLine if is_print(text, start) => {
            "Missing parentheses in call to 'print'. Did you mean print(...)?"
        }
        ParseErrorType::OtherError(message) => return block(message, text, start),
        ParseErrorType::ExpectedToken { .. }
        | ParseErrorType::ExpectedExpression
        | ParseErrorType::SimpleStatementsOnSameLine
        | ParseErrorType::SimpleAndCompoundStatementOnSameLine
        | ParseErrorType::UnexpectedExpressionToken
        | ParseErrorType::EmptySlice => "invalid syntax",
        other => return plain(&other.to_string()),
    };
    wording.to_owned()
}

/// Error about the brackets at an error. If an earlier line opened one that is never closed,
/// CPython reports that instead.
pub(super) fn brackets(tokens: &[Token], text: &str, error: usize) -> Option<(usize, String)> {
    let mut open: Vec<&Token> = Vec::new();
    for token in tokens.iter().take_while(|token| token.start().to_usize() < error) {
        match token.kind() {
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => open.push(token),
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => {
                open.pop();
            }
            _ => {}
        }
    }
    let found = text.get(error..)?.chars().next().filter(|c| [')', ']', '}'].contains(c));
    let Some(last) = open.last() else {
        return found.map(|found| (error, format!("unmatched '{found}'")));
    };
    let at = last.start().to_usize();
    let bracket = text.get(at..)?.chars().next()?;
    if let Some(found) = found.filter(|found| !closes(bracket, *found)) {
        let message =
            format!("closing parenthesis '{found}' does not match opening parenthesis '{bracket}'");
        return Some((error, message));
    }
    let is_later = text.get(at..error)?.contains('\n');
    is_later.then(|| (at, format!("'{bracket}' was never closed")))
}

fn closes(open: char, close: char) -> bool {
    matches!((open, close), ('(', ')') | ('[', ']') | ('{', '}'))
}

/// CPython quotes with apostrophes and starts in lower case.
pub(super) fn plain(message: &str) -> String {
    let message = message.replace('`', "'");
    let mut chars = message.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => message,
    }
}

/// `expected an indented block after 'if' statement on line 1`.
fn block(message: &str, text: &str, start: usize) -> String {
    let message = plain(message);
    if message.starts_with("expected 'except' or 'finally'") {
        return "expected 'except' or 'finally' block".to_owned();
    }
    if !message.starts_with("expected an indented block") {
        let is_general = message.starts_with("expected ");
        return if is_general { "invalid syntax".to_owned() } else { message };
    }
    let before = Position::of(text, start).line.saturating_sub(1);
    let header = text
        .lines()
        .enumerate()
        .take(before)
        .filter(|(_, line)| line.trim_end().ends_with(':'))
        .last()
        .map_or(before.max(1), |(index, _)| index + 1);
    format!("{message} on line {header}")
}

fn is_print(text: &str, start: usize) -> bool {
    let line = Position::of(text, start).text.trim_start();
    line.starts_with("print ") || line.starts_with("print\t")
}

fn lexical(error: &LexicalErrorType, text: &str, start: usize) -> String {
    match error {
        LexicalErrorType::FStringError(error) => interpolated("f-string", error),
        LexicalErrorType::TStringError(error) => interpolated("t-string", error),
        LexicalErrorType::UnclosedStringError => {
            let quotes = text[start..].trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let is_triple = quotes.starts_with("\"\"\"") || quotes.starts_with("'''");
            let kind = if is_triple { "triple-quoted string" } else { "string" };
            let line = match is_triple {
                true => text.lines().count().max(1),
                false => Position::of(text, start).line,
            };
            format!("unterminated {kind} literal (detected at line {line})")
        }
        LexicalErrorType::UnrecognizedToken { tok } if !tok.is_ascii() => {
            format!("invalid character '{tok}' (U+{:04X})", u32::from(*tok))
        }
        LexicalErrorType::UnrecognizedToken { .. } => "invalid syntax".to_owned(),
        LexicalErrorType::LineContinuationError => {
            "unexpected character after line continuation character".to_owned()
        }
        LexicalErrorType::UnicodeError
        | LexicalErrorType::MissingUnicodeLbrace
        | LexicalErrorType::MissingUnicodeRbrace => {
            "(unicode error) 'unicodeescape' codec can't decode bytes of this string".to_owned()
        }
        other => plain(&other.to_string()),
    }
}

fn interpolated(kind: &str, error: &InterpolatedStringErrorType) -> String {
    match error {
        InterpolatedStringErrorType::UnterminatedString => {
            format!("unterminated {kind} literal")
        }
        InterpolatedStringErrorType::UnterminatedTripleQuotedString => {
            format!("unterminated triple-quoted {kind} literal")
        }
        other => format!("{kind}: {}", plain(&other.to_string())),
    }
}

/// CPython's message for an error of its compiler.
pub(super) fn of_compiling(kind: &SemanticSyntaxErrorKind, wording: &str) -> String {
    use SemanticSyntaxErrorKind as Kind;
    match kind {
        Kind::ReturnOutsideFunction => "'return' outside function".to_owned(),
        Kind::BreakOutsideLoop => "'break' outside loop".to_owned(),
        Kind::ContinueOutsideLoop => "'continue' not properly in loop".to_owned(),
        Kind::YieldOutsideFunction(YieldOutsideFunctionKind::Await) => {
            "'await' outside function".to_owned()
        }
        Kind::YieldOutsideFunction(_) => "'yield' outside function".to_owned(),
        Kind::AwaitOutsideAsyncFunction(_) => wording
            .replace("asynchronous", "async")
            .replace("outside of an async function", "outside async function"),
        Kind::DuplicateParameter(name) => {
            format!("duplicate argument '{name}' in function definition")
        }
        Kind::DuplicateKeywordArgument(name) => format!("keyword argument repeated: {name}"),
        Kind::MultipleStarredExpressions => "multiple starred expressions in assignment".to_owned(),
        Kind::NonModuleImportStar(_) => "import * only allowed at module level".to_owned(),
        Kind::LateFutureImport => {
            "from __future__ imports must occur at the beginning of the file".to_owned()
        }
        Kind::FutureFeatureNotDefined(name) => format!("future feature {name} is not defined"),
        Kind::GlobalParameter(name) => format!("name '{name}' is parameter and global"),
        Kind::NonlocalParameter(name) => format!("name '{name}' is parameter and nonlocal"),
        Kind::InvalidStarExpression => "can't use starred expression here".to_owned(),
        _ => wording.to_owned(),
    }
}

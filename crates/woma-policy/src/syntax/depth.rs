//! Nesting depth of a program, from its tokens and before it is parsed.
//!
//! A close upper bound: what cannot nest (the items of a list, the lines of a program) is not added
//! up. CPython refuses the same programs at a similar depth.

use super::{TokenKind, lexer};
use crate::verdict::Problem;

/// Most open brackets and fields of f-strings; CPython's own limit.
pub(crate) const BRACKETS_MAX: usize = 200;
/// Most levels of indentation; CPython's own limit.
pub(crate) const INDENTATION_MAX: usize = 100;
/// Most levels of one expression, including chains such as `a + b + c`; close to the limit of
/// CPython's compiler.
pub(crate) const EXPRESSION_MAX: usize = 3_000;

/// The depth, or a problem if it is too deep.
pub(super) fn of(source: &str, tokens: lexer::Lexer<'_>) -> Result<usize, Problem> {
    measure(tokens).map_err(|limit| {
        let line = first_line_beyond(source);
        let offset = source.split_inclusive('\n').take(line).map(str::len).sum();
        super::at_offset(source, offset, &limit.message())
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Brackets,
    Indentation,
    Expression,
}

impl Beyond {
    fn message(self) -> String {
        match self {
            Self::Brackets => {
                format!(
                    "too many nested parentheses: too deeply nested; the limit is {BRACKETS_MAX}"
                )
            }
            Self::Indentation => {
                format!("too many levels of indentation: the limit is {INDENTATION_MAX}")
            }
            Self::Expression => format!(
                "too deeply nested: an expression of more than {EXPRESSION_MAX} levels; \
                 the limit is {EXPRESSION_MAX}"
            ),
        }
    }
}

/// The lexer returns kinds without positions, so the line is found by bisection.
fn first_line_beyond(source: &str) -> usize {
    let ends: Vec<usize> = source
        .split_inclusive('\n')
        .scan(0, |end, line| {
            *end += line.len();
            Some(*end)
        })
        .collect();
    ends.partition_point(|end| measure(lexer::lex(&source[..*end], super::Mode::Ipython)).is_ok())
}

/// One bracket, or one logical line at the bottom.
#[derive(Debug, Default, Clone, Copy)]
struct Level {
    /// Operators since the last comma, which may form a chain.
    tight: usize,
    /// Constructs that extend to the next comma: lambdas, conditionals.
    loose: usize,
    /// `lambda` whose colon has not been read: commas separate its parameters.
    lambdas: usize,
    /// Depth below this level.
    below: usize,
    /// Text of an f-string, whose fields are siblings.
    is_text: bool,
}

impl Level {
    fn total(self) -> usize {
        self.below + self.tight + self.loose + self.lambdas
    }

    fn restart(&mut self) {
        self.tight = 0;
        self.loose = 0;
    }
}

fn measure(mut tokens: lexer::Lexer<'_>) -> Result<usize, Beyond> {
    let mut levels = vec![Level::default()];
    let mut indentation = 0_usize;
    let mut deepest = 0_usize;
    loop {
        let kind = tokens.next_token();
        let in_brackets = levels.len() > 1;
        let Some(level) = levels.last_mut() else { return Ok(deepest) };
        match kind {
            TokenKind::EndOfFile => return Ok(deepest),
            TokenKind::Indent => indentation += 1,
            TokenKind::Dedent => indentation = indentation.saturating_sub(1),
            TokenKind::Newline => levels = vec![Level::default()],
            TokenKind::Semi if !in_brackets => *level = Level::default(),
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => {
                // A call or an index is another link of the chain.
                level.tight = if level.is_text { 1 } else { level.tight + 1 };
                let below = level.total() + 1;
                let is_text = matches!(kind, TokenKind::FStringStart | TokenKind::TStringStart);
                levels.push(Level { below, is_text, ..Level::default() });
            }
            TokenKind::Rpar
            | TokenKind::Rsqb
            | TokenKind::Rbrace
            | TokenKind::FStringEnd
            | TokenKind::TStringEnd => {
                if in_brackets {
                    levels.pop();
                }
            }
            other => level.take(other),
        }
        let total = indentation + levels.last().map_or(0, |level| level.total());
        deepest = deepest.max(total);
        if indentation > INDENTATION_MAX {
            return Err(Beyond::Indentation);
        }
        if levels.len() > BRACKETS_MAX + 1 {
            return Err(Beyond::Brackets);
        }
        if total > EXPRESSION_MAX {
            return Err(Beyond::Expression);
        }
    }
}

impl Level {
    fn take(&mut self, kind: TokenKind) {
        match kind {
            TokenKind::Comma if self.lambdas == 0 => self.restart(),
            TokenKind::Lambda => self.lambdas += 1,
            TokenKind::Colon if self.lambdas > 0 => {
                self.lambdas -= 1;
                self.loose += 1;
            }
            // Between key and value of a dict, or before the body of a one-line statement.
            TokenKind::Colon => self.tight = 0,
            TokenKind::And | TokenKind::Or => self.tight = 1,
            TokenKind::None | TokenKind::True | TokenKind::False | TokenKind::Comma => {}
            TokenKind::Not | TokenKind::Await | TokenKind::In | TokenKind::Is => self.tight += 1,
            TokenKind::ColonEqual | TokenKind::Equal => self.loose += 1,
            other if other.is_non_soft_keyword() => self.loose += 1,
            other if other.is_operator() => self.tight += 1,
            _ => {}
        }
    }
}

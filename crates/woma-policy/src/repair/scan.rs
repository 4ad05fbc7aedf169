//! Finds strings and comments in a text that need not be valid Python.
//!
//! One pass without backtracking: linear in the text, whatever it is. The pieces cover the text.

use std::ops::Range;

/// Extensions of Python's syntax to recognize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reading {
    /// Typographic quotes delimit strings.
    pub(crate) smart_quotes: bool,
    /// A backslash and an `n` outside strings end a line.
    pub(crate) escaped_lines: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Code,
    Comment,
    /// A literal with its delimiters, or the literal parts of an f-string.
    Str,
    /// A literal with a typographic delimiter; `quote` is its equivalent.
    Smart {
        quote: char,
        open: usize,
        close: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: PieceKind,
    pub(crate) range: Range<usize>,
}

/// Constructs that are open at the end of the text, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Open {
    Bracket { bracket: char, at: usize },
    Text { quote: String, at: usize },
}

#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) open: Vec<Open>,
    /// The first string that is ended by its line, and does not extend to the end of the text.
    pub(crate) unterminated: Option<usize>,
    /// A closing bracket without its opening one.
    pub(crate) unmatched: Option<usize>,
}

impl Scan {
    /// Whether a position is inside a string.
    pub(crate) fn starts_in_string(&self, at: usize) -> bool {
        let index = self.pieces.partition_point(|piece| piece.range.end <= at);
        self.pieces
            .get(index)
            .is_some_and(|piece| piece.kind == PieceKind::Str && piece.range.start < at)
    }
}

pub(crate) fn scan(text: &str, reading: Reading) -> Scan {
    let mut scanner = Scanner { text, reading, at: 0, start: 0, word: 0, scan: Scan::default() };
    while scanner.step() {}
    scanner.cut(PieceKind::Code, text.len());
    scanner.scan
}

pub(crate) fn is_double(c: char) -> bool {
    matches!(c, '“' | '”' | '„' | '‟' | '″' | '＂')
}

pub(crate) fn is_single(c: char) -> bool {
    matches!(c, '‘' | '’' | '‚' | '‛' | '′' | '＇')
}

struct Scanner<'a> {
    text: &'a str,
    reading: Reading,
    at: usize,
    /// Start of the current piece.
    start: usize,
    /// Start of the word before `at`, which may be the prefix of a following quote.
    word: usize,
    scan: Scan,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn cut(&mut self, kind: PieceKind, end: usize) {
        if end > self.start {
            self.scan.pieces.push(Piece { kind, range: self.start..end });
        }
        self.start = end;
        self.at = end;
        self.word = end;
    }

    /// Reads one character of code, or one whole comment or string.
    fn step(&mut self) -> bool {
        let Some(c) = self.rest().chars().next() else { return false };
        let smart = self.reading.smart_quotes && (is_double(c) || is_single(c));
        match c {
            '#' | '＃' if c == '#' || self.reading.smart_quotes => self.comment(),
            '"' | '\'' => self.string(c),
            _ if smart => self.smart(c),
            '\\' => self.backslash(),
            '(' | '[' | '{' => {
                self.scan.open.push(Open::Bracket { bracket: c, at: self.at });
                self.advance(c);
            }
            ')' | ']' | '}' => self.close(c),
            ':' => self.colon(),
            _ => self.advance(c),
        }
        true
    }

    fn advance(&mut self, c: char) {
        self.at += c.len_utf8();
        if !(c.is_alphanumeric() || c == '_') {
            self.word = self.at;
        }
    }

    fn backslash(&mut self) {
        self.at += 1;
        let next = self.rest().chars().next();
        let is_line = self.reading.escaped_lines && matches!(next, Some('n' | 'r' | 't'));
        if is_line || matches!(next, Some('\n' | '\r')) {
            self.at += 1;
        }
        self.word = self.at;
    }

    fn comment(&mut self) {
        self.cut(PieceKind::Code, self.at);
        let rest = self.rest();
        let is_escaped = self.reading.escaped_lines;
        let is_end = |&(at, c): &(usize, char)| {
            c == '\n' || (is_escaped && c == '\\' && rest[at..].starts_with("\\n"))
        };
        let end = rest.char_indices().find(is_end).map_or(rest.len(), |(at, _)| at);
        self.cut(PieceKind::Comment, self.at + end);
    }

    fn close(&mut self, c: char) {
        let opening = match c {
            ')' => '(',
            ']' => '[',
            _ => '{',
        };
        match self.scan.open.last() {
            Some(Open::Bracket { bracket, .. }) if *bracket == opening => {
                self.scan.open.pop();
                if let Some(Open::Text { quote, .. }) = self.scan.open.last().cloned() {
                    // End of a field: the brace belongs to the f-string again.
                    self.cut(PieceKind::Code, self.at);
                    self.at += 1;
                    return self.literal(&quote, true);
                }
            }
            _ => {
                self.scan.unmatched.get_or_insert(self.at);
            }
        }
        self.advance(c);
    }

    /// In a field of an f-string, a format follows, which is text again.
    fn colon(&mut self) {
        let outer = self.scan.open.len().checked_sub(2).and_then(|n| self.scan.open.get(n));
        match outer.cloned() {
            Some(Open::Text { quote, .. }) if !self.rest().starts_with(":=") => {
                self.cut(PieceKind::Code, self.at);
                self.format(&quote);
            }
            _ => self.advance(':'),
        }
    }

    /// Reads the format of a field, up to its brace; nested fields are read as text.
    fn format(&mut self, quote: &str) {
        let mut depth = 0_usize;
        let rest = &self.text[self.at..];
        let mut end = rest.len();
        for (offset, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                '}' => {
                    self.scan.open.pop();
                    self.at += offset + 1;
                    return self.literal(quote, true);
                }
                '\n' if quote.len() == 1 => {
                    end = offset;
                    break;
                }
                _ if rest[offset..].starts_with(quote) => {
                    end = offset;
                    break;
                }
                _ => {}
            }
        }
        // The field does not end. Text that was read is not read again.
        self.scan.open.pop();
        self.at += end;
        self.literal(quote, true);
    }

    fn string(&mut self, c: char) {
        let prefix = self.text[self.word..self.at].to_ascii_lowercase();
        let is_prefix = matches!(
            prefix.as_str(),
            "r" | "b" | "u" | "f" | "t" | "rb" | "br" | "rf" | "fr" | "rt" | "tr"
        );
        let is_formatted = is_prefix && prefix.contains(['f', 't']);
        let start = if is_prefix { self.word } else { self.at };
        self.cut(PieceKind::Code, start);
        self.at = if is_prefix { start + prefix.len() } else { start };
        let triple = c.to_string().repeat(3);
        let quote = if self.rest().starts_with(&triple) { triple } else { c.to_string() };
        self.scan.open.push(Open::Text { quote: quote.clone(), at: self.at });
        self.at += quote.len();
        self.literal(&quote, is_formatted);
    }

    /// Reads from inside a literal to its end, or to its next field.
    fn literal(&mut self, quote: &str, is_formatted: bool) {
        let rest = &self.text[self.at..];
        let mut skip = 0;
        for (offset, c) in rest.char_indices() {
            if offset < skip {
                continue;
            }
            let here = &rest[offset..];
            if here.starts_with(quote) {
                self.scan.open.pop();
                return self.cut(PieceKind::Str, self.at + offset + quote.len());
            }
            match c {
                '\\' => skip = offset + 1 + here[1..].chars().next().map_or(0, char::len_utf8),
                '\n' if quote.len() == 1 => return self.unterminated(offset),
                '{' if is_formatted && here.starts_with("{{") => skip = offset + 2,
                '{' if is_formatted => {
                    self.cut(PieceKind::Str, self.at + offset);
                    self.scan.open.push(Open::Bracket { bracket: '{', at: self.at });
                    self.at += 1;
                    self.word = self.at;
                    return;
                }
                _ => {}
            }
        }
        if quote.len() == 1 && self.reading.smart_quotes {
            return self.unterminated(rest.len());
        }
        // Open to the end of the text.
        self.cut(PieceKind::Str, self.text.len());
    }

    /// The line ends the literal; a typographic quote in it may have been the intended end.
    fn unterminated(&mut self, offset: usize) {
        let text = self.text;
        let Some(Open::Text { quote, at: open }) = self.scan.open.pop() else { return };
        let line = &text[self.at..self.at + offset];
        let is_like = |c: &char| if quote == "\"" { is_double(*c) } else { is_single(*c) };
        let mut closing = line.char_indices().filter(|(_, c)| is_like(c));
        match (closing.next(), closing.next()) {
            (Some((at, c)), None) if self.reading.smart_quotes && self.start <= open => {
                let quote = if quote == "\"" { '"' } else { '\'' };
                let close = self.at + at;
                self.cut(PieceKind::Smart { quote, open: open + 1, close }, close + c.len_utf8());
            }
            _ => {
                self.scan.unterminated.get_or_insert(open);
                self.cut(PieceKind::Str, self.at + offset);
            }
        }
    }

    /// Reads a string opened by a typographic quote. It ends in its line, unless it is
    /// triple-quoted.
    fn smart(&mut self, c: char) {
        self.cut(PieceKind::Code, self.at);
        let quote = if is_double(c) { '"' } else { '\'' };
        let triple = triple_of(self.rest());
        let open = self.at + triple.unwrap_or(c.len_utf8());
        let rest = &self.text[open..];
        let found = match triple {
            Some(_) => rest
                .char_indices()
                .find_map(|(at, _)| triple_of(&rest[at..]).map(|length| (at, length))),
            None => closing(c, rest),
        };
        match found {
            Some((offset, length)) => {
                let close = open + offset;
                self.cut(PieceKind::Smart { quote, open, close }, close + length);
            }
            None => {
                self.scan.unterminated.get_or_insert(self.at);
                self.cut(PieceKind::Str, self.text.len());
            }
        }
    }
}

/// Length of three double quotes at the start of the text, if one is typographic.
fn triple_of(text: &str) -> Option<usize> {
    let quotes = text.chars().take(3).take_while(|c| is_double(*c) || *c == '"');
    let (count, length) = quotes.fold((0, 0), |(n, length), c| (n + 1, length + c.len_utf8()));
    (count == 3).then_some(length)
}

/// End of a string opened by `open` in its line, and the length of the closing quote.
fn closing(open: char, text: &str) -> Option<(usize, usize)> {
    let mut before = ' ';
    let mut rest = text.char_indices().take_while(|(_, c)| *c != '\n').peekable();
    while let Some((offset, c)) = rest.next() {
        let after = rest.peek().map_or(' ', |(_, c)| *c);
        let is_apostrophe = before.is_alphanumeric() && after.is_alphanumeric();
        before = c;
        if is_double(open) && (is_double(c) || c == '"') {
            // Another opening quote is the end only if nothing can follow inside the string.
            let is_end = !matches!(c, '“' | '„') || !after.is_alphanumeric();
            return is_end.then_some((offset, c.len_utf8()));
        }
        if is_single(open) && (is_single(c) || c == '\'') && !is_apostrophe {
            return Some((offset, c.len_utf8()));
        }
    }
    None
}

//! Just enough of Rust's grammar to see which names a file declares, imports and mentions.

use std::collections::{BTreeMap, BTreeSet};

/// A part of Rust's text that is no comment, literal or lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    /// `::`
    Separator,
    Mark(char),
}

use Token::{Mark, Name, Separator};

/// The tokens of a text, each with its line.
fn tokens(text: &str) -> Vec<(usize, Token<'_>)> {
    let (mut rest, mut line, mut found) = (text, 1, Vec::new());
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => string(rest),
            '\'' => quoted(rest),
            'r' | 'b' | 'c' if literal_prefix(rest).is_some() => literal_prefix(rest).unwrap_or(1),
            ':' if rest.starts_with("::") => {
                found.push((line, Separator));
                2
            }
            '.' if rest.starts_with("..") => {
                found.push((line, Mark('…')));
                2
            }
            '-' if rest.starts_with("->") => {
                found.push((line, Mark('→')));
                2
            }
            _ if first == '_' || first.is_alphabetic() => {
                let name = &rest[..word(rest)];
                found.push((line, Name(name)));
                name.len()
            }
            _ if first.is_ascii_digit() => word(rest),
            _ => {
                if !first.is_whitespace() {
                    found.push((line, Mark(first)));
                }
                first.len_utf8()
            }
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    found
}

/// Length of the name or number at the start.
fn word(text: &str) -> usize {
    text.find(|letter: char| letter != '_' && !letter.is_alphanumeric()).unwrap_or(text.len())
}

/// Length of a string in double quotes.
fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = letter == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// Length of a character or of a lifetime.
fn quoted(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    match (letters.next(), letters.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let from = at + escaped.len_utf8();
            text[from..].find('\'').map_or(text.len(), |end| from + end + 1)
        }
        (_, Some((at, '\''))) => at + 1,
        _ => 1 + word(&text[1..]),
    }
}

/// Length of a literal that begins with letters: `b"…"`, `r#"…"#`, `b'…'`; none if it is a name.
fn literal_prefix(text: &str) -> Option<usize> {
    let letters = text.find(|letter: char| !letter.is_ascii_lowercase())?;
    let (prefix, rest) = text.split_at(letters);
    let hashes = rest.find(|letter| letter != '#')?;
    match rest.as_bytes()[hashes] {
        b'"' if prefix.contains('r') => {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = letters + hashes + 1;
            Some(text[start..].find(&end).map_or(text.len(), |at| start + at + end.len()))
        }
        b'"' if prefix.len() == 1 && hashes == 0 => Some(letters + string(rest)),
        b'\'' if prefix == "b" => Some(letters + quoted(rest)),
        _ => None,
    }
}

/// What kind of code a path stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    Product,
    /// A module behind `#[cfg(test)]`.
    Tests,
}

/// How a name comes into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    Private,
    /// Passed on: `pub use`, `pub(crate) use`.
    Passed,
}

/// A path that a file writes, such as `super::Kernel`.
#[derive(Clone, Debug)]
pub struct Mention {
    pub line: usize,
    /// Module in which it stands.
    pub base: Vec<String>,
    pub path: Vec<String>,
    pub within: Within,
    /// `None` for a path in an expression, type or attribute.
    pub import: Option<Import>,
}

/// What one file declares, imports and mentions.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub module: Vec<String>,
    pub declared: BTreeSet<String>,
    /// Paths by the name that they have in this file.
    pub imports: BTreeMap<String, Vec<String>>,
    /// Modules of which everything is imported.
    pub globs: Vec<Vec<String>>,
    pub mentions: Vec<Mention>,
    /// Macros that `#[macro_export]` puts into the root.
    pub macros: BTreeSet<String>,
    /// Types behind `impl` without a trait, by line.
    pub impls: Vec<(usize, String)>,
}

/// An inline module that is open: the depth of its braces, and what it is for.
struct Inline {
    depth: usize,
    within: Within,
}

struct Parser<'a> {
    tokens: Vec<(usize, Token<'a>)>,
    at: usize,
    depth: usize,
    inline: Vec<Inline>,
    base: Vec<String>,
    source: Source,
}

const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "static", "type", "union"];

/// Reads a file that is the module `module`.
pub fn read(text: &str, module: &[&str]) -> Source {
    let module: Vec<String> = module.iter().map(ToString::to_string).collect();
    let source = Source { module: module.clone(), ..Source::default() };
    let mut parser = Parser { tokens: tokens(text), at: 0, depth: 0, inline: Vec::new(), base: module, source };
    while parser.at < parser.tokens.len() {
        parser.step();
    }
    let Source { imports, mentions, .. } = &mut parser.source;
    mentions
        .retain(|mention| mention.path.len() > 1 || mention.import.is_some() || imports.contains_key(&mention.path[0]));
    parser.source
}

impl<'a> Parser<'a> {
    fn token(&self, offset: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at + offset).map(|(_, token)| *token)
    }

    fn name(&self, offset: usize) -> Option<&'a str> {
        match self.token(offset) {
            Some(Name(name)) => Some(name),
            _ => None,
        }
    }

    fn within(&self) -> Within {
        self.inline
            .iter()
            .map(|inline| inline.within)
            .find(|within| *within == Within::Tests)
            .unwrap_or(Within::Product)
    }

    fn step(&mut self) {
        match self.tokens[self.at].1 {
            Mark('{') => self.depth += 1,
            Mark('}') => self.close(),
            Name("pub") if self.token(1) == Some(Mark('(')) => self.skip_to(')'),
            Name("use") if self.token(1) != Some(Mark('<')) => return self.read_use(),
            Name("mod") if self.token(2) == Some(Mark('{')) => return self.open_module(),
            Name("impl") => self.read_impl(),
            Name(item) if ITEMS.contains(&item) && self.depth == self.inline.len() => {
                self.source.declared.extend(self.name(1).map(ToOwned::to_owned));
            }
            Name("macro_rules") => {
                self.source.declared.extend(self.name(2).map(ToOwned::to_owned));
                self.source.macros.extend(self.name(2).map(ToOwned::to_owned));
            }
            Name(_) if self.is_start_of_path() => return self.read_path(),
            _ => {}
        }
        self.at += 1;
    }

    fn skip_to(&mut self, end: char) {
        while self.token(0).is_some_and(|token| token != Mark(end)) {
            self.at += 1;
        }
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.inline.last().is_some_and(|inline| inline.depth == self.depth) {
            self.inline.pop();
            self.base.pop();
        }
    }

    /// `mod tests {`
    fn open_module(&mut self) {
        let before: Vec<Token<'_>> = self.tokens[self.at.saturating_sub(6)..self.at].iter().map(|it| it.1).collect();
        let is_for_tests = before.windows(4).any(|it| it == [Name("cfg"), Mark('('), Name("test"), Mark(')')]);
        let within = if is_for_tests { Within::Tests } else { Within::Product };
        self.inline.push(Inline { depth: self.depth, within });
        self.base.push(self.name(1).unwrap_or_default().to_owned());
        self.depth += 1;
        self.at += 3;
    }

    fn is_start_of_path(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.tokens[at].1);
        !matches!(before, Some(Separator | Mark('.')))
    }

    fn read_path(&mut self) {
        let line = self.tokens[self.at].0;
        let mut path = vec![self.name(0).unwrap_or_default().to_owned()];
        while let (Some(Separator), Some(next)) = (self.token(1), self.name(2)) {
            path.push(next.to_owned());
            self.at += 2;
        }
        self.mention(line, path, None);
        self.at += 1;
    }

    fn mention(&mut self, line: usize, path: Vec<String>, import: Option<Import>) {
        let (base, within) = (self.base.clone(), self.within());
        self.source.mentions.push(Mention { line, base, path, within, import });
    }

    /// `use a::{b, c as d};`
    fn read_use(&mut self) {
        let is_passed = match self.at.checked_sub(1).map(|at| self.tokens[at].1) {
            Some(Name("pub")) => true,
            Some(Mark(')')) => {
                let before = self.tokens[..self.at].iter().rposition(|(_, token)| *token == Mark('('));
                before.and_then(|at| at.checked_sub(1)).is_some_and(|at| self.tokens[at].1 == Name("pub"))
            }
            _ => false,
        };
        let import = if is_passed { Import::Passed } else { Import::Private };
        self.at += 1;
        self.read_tree(&mut Vec::new(), import);
    }

    /// One branch of a `use`, up to its `,`, `}` or `;`.
    fn read_tree(&mut self, path: &mut Vec<String>, import: Import) {
        let (len, line) = (path.len(), self.tokens.get(self.at).map_or(0, |(line, _)| *line));
        let mut alias = None;
        loop {
            match self.token(0) {
                Some(Name("as")) => {
                    alias = self.name(1);
                    self.at += 1;
                }
                Some(Name(name)) => path.push(name.to_owned()),
                Some(Mark('*')) => {
                    self.source.globs.push(path.clone());
                    self.mention(line, path.clone(), Some(import));
                }
                Some(Mark('{')) => {
                    self.at += 1;
                    while !matches!(self.token(0), Some(Mark('}')) | None) {
                        self.read_tree(path, import);
                        self.at += usize::from(self.token(0) == Some(Mark(',')));
                    }
                }
                Some(Separator) => {}
                _ => break,
            }
            let is_end = matches!(self.token(0), Some(Mark('*' | '}')));
            self.at += 1;
            if is_end {
                path.truncate(len);
                return;
            }
        }
        self.import(path.clone(), alias, line, import);
        path.truncate(len);
    }

    fn import(&mut self, mut path: Vec<String>, alias: Option<&str>, line: usize, import: Import) {
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let Some(last) = path.last().cloned() else { return };
        self.source.imports.insert(alias.map_or(last, ToOwned::to_owned), path.clone());
        self.mention(line, path, Some(import));
    }

    /// `impl<T> a::Type<T> {`
    fn read_impl(&mut self) {
        let before = self.at.checked_sub(1).map(|at| self.tokens[at].1);
        let is_item = matches!(before, None | Some(Mark('}' | ']' | ';') | Name("unsafe")));
        if !is_item || self.within() == Within::Tests {
            return;
        }
        let (mut name, mut angles) = (None, 0usize);
        for (_, token) in &self.tokens[self.at + 1..] {
            match token {
                Mark('<') => angles += 1,
                Mark('>') => angles = angles.saturating_sub(1),
                Mark('{' | ';') | Name("where") => break,
                Name("for") if angles == 0 => return,
                Name(part) if angles == 0 => name = Some(*part),
                _ => {}
            }
        }
        let line = self.tokens[self.at].0;
        self.source.impls.extend(name.map(|name| (line, name.to_owned())));
    }
}

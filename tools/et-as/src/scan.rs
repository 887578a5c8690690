//! Statements and comments in assembly text.

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Something that is passed on: white space, a separator, a comment.
    Other(&'a [u8]),
    /// A statement without its separator. It may contain comments.
    Statement(&'a [u8]),
}

/// Splits lines; a comment may go on over several of them.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    in_comment: bool,
}

impl Scanner {
    /// Splits a line without its end; the pieces together are the line.
    pub(crate) fn split<'a>(&mut self, line: &'a [u8]) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let mut start = 0;
        let mut at = 0;
        // What is outside of statements becomes a piece of its own.
        if self.in_comment {
            at = self.comment_end(line, 0);
            pieces.push(Piece::Other(&line[..at]));
            start = at;
        }
        while at < line.len() {
            match line[at] {
                b'#' => {
                    pieces.push(Piece::Statement(&line[start..at]));
                    pieces.push(Piece::Other(&line[at..]));
                    return pieces;
                }
                b';' => {
                    pieces.push(Piece::Statement(&line[start..at]));
                    pieces.push(Piece::Other(&line[at..=at]));
                    at += 1;
                    start = at;
                }
                b'/' if line.get(at + 1) == Some(&b'*') => {
                    let open = at;
                    at = self.comment_end(line, at + 2);
                    if self.in_comment {
                        pieces.push(Piece::Statement(&line[start..open]));
                        pieces.push(Piece::Other(&line[open..]));
                        return pieces;
                    }
                }
                b'"' => at = string_end(line, at + 1),
                // A character constant: one character, or a backslash and one, and a quote that may
                // be left out.
                b'\'' => {
                    at += if line.get(at + 1) == Some(&b'\\') { 3 } else { 2 };
                    at += usize::from(line.get(at) == Some(&b'\''));
                }
                _ => at += 1,
            }
        }
        pieces.push(Piece::Statement(&line[start..]));
        pieces
    }

    fn comment_end(&mut self, line: &[u8], from: usize) -> usize {
        let end = find(&line[from..], b"*/");
        self.in_comment = end.is_none();
        end.map_or(line.len(), |end| from + end + 2)
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn string_end(line: &[u8], mut at: usize) -> usize {
    while at < line.len() {
        match line[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    line.len()
}

/// A statement without its comments, or none if it is not text.
pub(crate) fn plain(statement: &[u8]) -> Option<String> {
    let mut text = String::from_utf8(statement.to_vec()).ok()?;
    while let Some(open) = text.find("/*") {
        let close = text[open..].find("*/").map_or(text.len(), |close| open + close + 2);
        text.replace_range(open..close, " ");
    }
    Some(text)
}

/// Returns how many bytes of a statement are white space and labels.
pub(crate) fn labels_end(statement: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += statement[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let word = statement[at..]
            .iter()
            .take_while(|&&byte| crate::expression::is_symbol_byte(byte) || byte == b'\\')
            .count();
        if word == 0 || statement.get(at + word) != Some(&b':') {
            return at;
        }
        at += word + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(line: &str) -> Vec<String> {
        let mut scanner = Scanner::default();
        let pieces = scanner.split(line.as_bytes());
        let mut whole = Vec::new();
        let mut found = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Other(bytes) => whole.extend_from_slice(bytes),
                Piece::Statement(bytes) => {
                    whole.extend_from_slice(bytes);
                    found.push(String::from_utf8(bytes.to_vec()).unwrap());
                }
            }
        }
        assert_eq!(whole, line.as_bytes(), "nothing is lost");
        found
    }

    #[test]
    fn separators_count_outside_of_strings_and_comments_only() {
        assert_eq!(statements("nop; ret # a; b"), ["nop", " ret "]);
        assert_eq!(statements(r#".ascii "a;#\"b" ; nop"#), [r#".ascii "a;#\"b" "#, " nop"]);
        assert_eq!(statements("li a0, ';'; nop"), ["li a0, ';'", " nop"]);
        assert_eq!(statements("li a0, '\\''; nop"), ["li a0, '\\''", " nop"]);
        assert_eq!(statements("nop /* ; */ ; ret"), ["nop /* ; */ ", " ret"]);
    }

    #[test]
    fn comments_go_on_over_lines() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.split(b"nop /* a"), [Piece::Statement(b"nop "), Piece::Other(b"/* a")]);
        assert_eq!(scanner.split(b"flw.ps"), [Piece::Other(b"flw.ps"), Piece::Statement(b"")]);
        assert_eq!(scanner.split(b"*/ ret"), [Piece::Other(b"*/"), Piece::Statement(b" ret")]);
    }

    #[test]
    fn labels_are_skipped() {
        for (statement, rest) in
            [("1: a: nop", "nop"), ("\tnop", "nop"), ("x:", ""), ("foo = 1", "foo = 1")]
        {
            assert_eq!(&statement[labels_end(statement.as_bytes())..], rest);
        }
    }
}

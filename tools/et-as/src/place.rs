//! Where a statement is from, as compilers and preprocessors say it.

use std::collections::HashMap;

use crate::translate::Diagnostic;

/// The current place in a source.
#[derive(Debug)]
pub(crate) struct Places {
    name: String,
    /// Line in the file that is read.
    line: u64,
    /// File and line that the last marker says; that of the file itself if there is none.
    marked: Option<(String, u64)>,
    /// Files by the numbers of debug information.
    files: HashMap<String, String>,
    /// File and line of the last `.loc`.
    from: Option<(String, u64)>,
}

impl Places {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), line: 0, marked: None, files: HashMap::new(), from: None }
    }

    /// Goes on to the next line, which may be a marker: `# 12 "file.c" 1`.
    pub(crate) fn start_line(&mut self, line: &[u8]) {
        self.line += 1;
        if let Some((_, line)) = &mut self.marked {
            *line = line.wrapping_add(1);
        }
        if let Some((number, file)) = marker(line) {
            // The line after the marker has the number. No file means the end of inline assembly.
            self.marked = match file.as_str() {
                "" => None,
                _ => Some((file, number.wrapping_sub(1))),
            };
        }
    }

    /// Takes note of `.file` and `.loc`.
    pub(crate) fn directive(&mut self, word: &str, operands: &str) {
        let mut parts = operands.split_whitespace();
        let Some(number) = parts.next() else { return };
        if word == ".loc" {
            let line = parts.next().and_then(|line| line.parse().ok());
            let file = self.files.get(number).cloned();
            self.from = file.zip(line);
        } else if number.bytes().all(|byte| byte.is_ascii_digit()) {
            // A directory may stand before the name.
            let names: Vec<_> = operands.split('"').skip(1).step_by(2).collect();
            let name = match names[..] {
                [directory, name] if !name.starts_with('/') => format!("{directory}/{name}"),
                [.., name] => name.to_owned(),
                [] => return,
            };
            self.files.insert(number.to_owned(), name);
        }
    }

    pub(crate) fn diagnostic(&self, message: String) -> Diagnostic {
        match &self.marked {
            Some(place) => Diagnostic { place: place.clone(), from: None, message },
            None => Diagnostic {
                place: (self.name.clone(), self.line),
                from: self.from.clone(),
                message,
            },
        }
    }
}

fn marker(line: &[u8]) -> Option<(u64, String)> {
    let text = std::str::from_utf8(line).ok()?.strip_prefix("# ")?;
    let (number, rest) = text.split_once(' ')?;
    let (file, _) = rest.strip_prefix('"')?.split_once('"')?;
    Some((number.parse().ok()?, file.to_owned()))
}

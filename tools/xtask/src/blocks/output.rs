//! What a page says that a command prints, and what it prints.

/// What a page writes in the place of what it leaves out.
const LEFT_OUT: &str = "…";

/// Returns `true` if a command that printed `said` is shown truly: word by word, however the lines
/// are broken, with any numbers in the places of numbers, and with anything where `…` stands.
pub(crate) fn is_true(shown: &str, said: &str) -> bool {
    let said = words(said);
    let shown = words(&shown.replace(LEFT_OUT, &format!(" {LEFT_OUT} ")));
    let mut parts = shown.split(|word| word == LEFT_OUT);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = said.strip_prefix(first) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle.iter().filter(|part| !part.is_empty()) {
        let Some(at) = rest.windows(part.len()).position(|words| words == *part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Returns `true` if a page says that a command fails.
pub(crate) fn is_failure(shown: &str) -> bool {
    shown.lines().any(|line| line.starts_with("error: ") || line.starts_with("wrong with "))
}

/// Words, with `#` in the places of numbers.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(without_numbers).collect()
}

fn without_numbers(word: &str) -> String {
    let mut all = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let is_word = first.is_ascii_alphanumeric();
        let end = rest.find(|c: char| c.is_ascii_alphanumeric() != is_word).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        rest = after;
        if is_word {
            all += &without_digits(part);
        } else {
            all += part;
        }
    }
    // Decimal places come and go.
    all.replace("#.#", "#")
}

/// A run of letters and digits: `#` for a number to whatever base, else for the digits in it.
fn without_digits(part: &str) -> String {
    let digits = part.strip_prefix("0x").unwrap_or(part);
    let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hexadecimal && part.bytes().any(|byte| byte.is_ascii_digit()) {
        return "#".to_owned();
    }
    let mut all = String::new();
    for c in part.chars() {
        match c.is_ascii_digit() {
            true if all.ends_with('#') => {}
            true => all.push('#'),
            false => all.push(c),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "core of 1 harts (18.39 KiB)\nhart 70: at 0x80058010a4 in load+0x6e\nend\n";

    #[test]
    fn numbers_and_line_breaks_may_differ() {
        assert!(is_true(SAID, SAID));
        assert!(is_true("core of 12 harts\n(4 KiB) hart 7: at 0x1\nin load+0x1 end", SAID));
        assert!(is_true("80a5801014:  00003503  ld", "9005801014: 1f ld\n"));
    }

    #[test]
    fn other_words_are_noticed() {
        for wrong in [
            SAID.replace("harts", "hart"),
            SAID.replace("KiB", "MiB"),
            SAID.replace("end\n", ""),
            format!("{SAID}more"),
            SAID.replace("core ", ""),
        ] {
            assert!(!is_true(&wrong, SAID), "{wrong}");
        }
    }

    #[test]
    fn what_is_left_out_may_be_anything() {
        for good in ["core of…", "…\nend", "core … hart 70: … end", "core of 1 …", "…"]
        {
            assert!(is_true(good, SAID), "{good}");
        }
        for bad in ["core of … hart 70: … harts … end", "… load", "end …", "core … at … hart … end"]
        {
            assert!(!is_true(bad, SAID), "{bad}");
        }
    }

    #[test]
    fn a_page_says_which_commands_fail() {
        assert!(is_failure("text\nerror: launch of x failed\n") && !is_failure("no error: here"));
    }
}

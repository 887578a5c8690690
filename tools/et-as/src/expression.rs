//! Constant expressions of the GNU assembler.

/// Evaluates an expression; `None` if it is not one of constants and known symbols.
pub(crate) fn evaluate(text: &str, symbol: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
    let mut parser = Parser { rest: text, symbol };
    let value = parser.binary(0)?;
    parser.skip();
    parser.rest.is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
    symbol: &'a dyn Fn(&str) -> Option<i64>,
}

/// Operators and how tightly they bind: not as in C, bits bind tighter than sums.
const OPERATORS: [(&str, u32); 10] = [
    ("<<", 3),
    (">>", 3),
    ("*", 3),
    ("/", 3),
    ("%", 3),
    ("|", 2),
    ("&", 2),
    ("^", 2),
    ("+", 1),
    ("-", 1),
];

fn apply(operator: &str, a: i64, b: i64) -> Option<i64> {
    Some(match operator {
        "<<" => a.checked_shl(u32::try_from(b).ok()?)?,
        // The assembler shifts unsigned values.
        ">>" => a.cast_unsigned().checked_shr(u32::try_from(b).ok()?)?.cast_signed(),
        "*" => a.wrapping_mul(b),
        "/" => a.checked_div(b)?,
        "%" => a.checked_rem(b)?,
        "|" => a | b,
        "&" => a & b,
        "^" => a ^ b,
        "+" => a.wrapping_add(b),
        _ => a.wrapping_sub(b),
    })
}

pub(crate) fn is_symbol_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$')
}

impl<'a> Parser<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, text: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Operators that bind tighter than `level`.
    fn binary(&mut self, level: u32) -> Option<i64> {
        let mut value = self.unary()?;
        loop {
            self.skip();
            let next = OPERATORS.iter().find(|(operator, _)| self.rest.starts_with(operator));
            let Some(&(operator, binds)) = next.filter(|(_, binds)| *binds > level) else {
                return Some(value);
            };
            self.rest = &self.rest[operator.len()..];
            let right = self.binary(binds)?;
            value = apply(operator, value, right)?;
        }
    }

    fn unary(&mut self) -> Option<i64> {
        if self.take("-") {
            return Some(self.unary()?.wrapping_neg());
        }
        if self.take("~") {
            return Some(!self.unary()?);
        }
        if self.take("+") {
            return self.unary();
        }
        if self.take("(") {
            let value = self.binary(0)?;
            return self.take(")").then_some(value);
        }
        let word = self.word();
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            et_isa::operand::number(word)
        } else {
            (self.symbol)(word)
        }
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest;
        let end = rest.bytes().position(|byte| !is_symbol_byte(byte)).unwrap_or(rest.len());
        self.rest = &rest[end..];
        &rest[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_as_the_assembler_does() {
        let symbol = |name: &str| (name == "SIZE").then_some(64);
        for (text, value) in [
            ("0xB1", Some(0xB1)),
            ("(1<<3)|1", Some(9)),
            ("1 | 2 + 4", Some(7)),
            ("2 + 1 & 3", Some(3)),
            ("-(SIZE / 8) - 1", Some(-9)),
            ("~0 >> 60", Some(15)),
            ("10 - 3 - 2", Some(5)),
            ("2*3+4*5", Some(26)),
            ("SIZE %", None),
            ("(1", None),
            ("1/0", None),
            ("OTHER", None),
            ("1 << 64", None),
            ("f1", None),
            ("", None),
        ] {
            assert_eq!(evaluate(text, &symbol), value, "{text}");
        }
    }
}

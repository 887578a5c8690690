//! What llama.cpp's programs say.

/// The condition at which ggml ends a program whose backend pads a tensor; it says nothing about
/// the device.
const NO_PADDING: &str = "GGML_ASSERT(size <= ggml_nbytes(tensor)";

/// What is noted of a program that a signal has ended.
pub(super) const BY_SIGNAL: &str = "ended by signal";

/// Cases of a step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cases {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    pub(super) remarks: Vec<String>,
}

impl Cases {
    pub(super) fn passed(passed: usize) -> Self {
        Self { passed, ..Self::default() }
    }

    pub(super) fn failure(why: String) -> Self {
        Self { failed: 1, remarks: vec![format!("FAILED: {why}")], ..Self::default() }
    }

    pub(super) fn skipped(why: String) -> Self {
        Self { skipped: 1, remarks: vec![format!("skipped, because {why}")], ..Self::default() }
    }

    pub(super) fn judged(what: &str, is_so: bool) -> Self {
        if is_so { Self::passed(1) } else { Self::failure(format!("not so: {what}")) }
    }

    pub(super) fn add(&mut self, mut other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.remarks.append(&mut other.remarks);
    }

    /// Returns `true` if a case of an operator has failed.
    pub(super) fn has_failed(&self, name: &str) -> bool {
        self.remarks.iter().any(|remark| operator(remark) == Some(name))
    }

    /// Counts the failures of an operator as skipped.
    pub(super) fn excuse(&mut self, name: &str, why: &str) {
        for remark in self.remarks.iter_mut().filter(|remark| operator(remark) == Some(name)) {
            *remark = format!("skipped, because {why}: {remark}");
            self.failed -= 1;
            self.skipped += 1;
        }
    }

    /// Of `test-backend-ops`: a line for each case, and a sum at the end, without which the program
    /// did not come to it. What the backend does not claim is no case.
    pub(super) fn of_operators(said: &str) -> Self {
        let mut cases = Self::default();
        let mut sum = None;
        for line in said.lines() {
            let line = plain(line);
            if line.ends_with("OK") && line.contains("):") {
                cases.passed += 1;
            } else if line.ends_with("FAIL") && line.contains("):") {
                cases.failed += 1;
                cases.remarks.push(line.trim().to_owned());
            } else if let Some(numbers) = line.trim().strip_suffix(" tests passed") {
                sum = numbers.split_once('/').and_then(|(passed, all)| {
                    Some((passed.parse::<usize>().ok()?, all.parse::<usize>().ok()?))
                });
            }
        }
        if sum != Some((cases.passed, cases.passed + cases.failed)) || cases.passed == 0 {
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            cases.failed += 1;
            cases.remarks.push(format!("the program ended early; its last line: {last}"));
        }
        cases
    }

    /// Of `test-llama-archs`: a table with a row for each model, which says what became of it. A
    /// row of an architecture that the program itself does not test is no case.
    pub(super) fn of_architectures(name: &str, said: &str) -> Self {
        let mut cases = Self::default();
        for line in said.lines() {
            let line = plain(line);
            let fields: Vec<_> = line.split('|').map(str::trim).collect();
            // Rows of other devices may be there, too.
            if !fields.contains(&name) || !fields.iter().any(|field| field.starts_with("ET")) {
                continue;
            }
            if line.contains("FAIL") {
                cases.failed += 1;
                cases.remarks.push(line.trim().to_owned());
            } else if line.contains("OK") {
                cases.passed += 1;
            }
        }
        if said.contains(NO_PADDING) {
            // The program has ended in a row, and has said why with its errors.
            let why = "ggml of this version refuses backends that pad tensors";
            cases.add(Self::skipped(format!("{name}: {why}")));
        } else if cases.passed + cases.failed == 0 || said.contains(BY_SIGNAL) {
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let what = format!("{name} was not tested to the end; the last line: {last}");
            cases.add(Self::failure(what));
        }
        cases
    }
}

/// Of a line of `test-backend-ops` the operator of the case that it judges.
pub(super) fn operator(line: &str) -> Option<&str> {
    // Of a case that has failed the error comes first.
    let (before, _) = line.split_once('(')?;
    let name = before.rsplit(' ').next()?;
    let line = plain(line);
    let is_case = line.contains("):") && (line.ends_with("OK") || line.ends_with("FAIL"));
    is_case.then_some(name)
}

/// A line without colours.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        text += before;
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    text + rest
}

/// Tokens per second, as llama.cpp measures them while it makes text.
pub(super) fn speed(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("eval time") && !line.contains("prompt"))?;
    let (before, _) = line.split_once(" tokens per second")?;
    before.rsplit([' ', ',']).find(|word| !word.is_empty())?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_counted_and_must_agree_with_the_sum() {
        let said = "  ADD(type=f32,ne=[1,1,8,1]): \u{1b}[1;32mOK\u{1b}[0m\n\
            SUB(type=f16): not supported [ET0]\n\
            [MUL] ERR = 1.0 > 0.1   MUL(type=f32): \u{1b}[1;31mFAIL\u{1b}[0m\n\
            1/2 tests passed\n  Backend ET: \u{1b}[1;31mFAIL\u{1b}[0m\n";
        let cases = Cases::of_operators(said);
        assert_eq!((cases.passed, cases.failed), (1, 1));
        assert!(cases.remarks[0].starts_with("[MUL] ERR"));
        let operators: Vec<_> = said.lines().filter_map(operator).collect();
        assert_eq!(operators, ["ADD", "MUL"], "that which is not supported is no case");
        let mut cases = cases;
        assert!(cases.has_failed("MUL") && !cases.has_failed("ADD"));
        cases.excuse("ADD", "no reason");
        assert_eq!((cases.failed, cases.skipped), (1, 0));
        cases.excuse("MUL", "a reason");
        assert_eq!((cases.passed, cases.failed, cases.skipped), (1, 0, 1));
        assert!(cases.remarks[0].starts_with("skipped, because a reason: [MUL] ERR"));
        let early = Cases::of_operators(said.split_once("1/2").unwrap_or_default().0);
        assert_eq!((early.passed, early.failed), (1, 2));
        assert!(early.remarks[1].contains("ended early"), "{early:?}");
        assert_eq!(Cases::of_operators("0/0 tests passed").failed, 1);
    }

    #[test]
    fn architectures_that_do_not_come_up_have_failed() {
        let said =
            "|   llama|  ET0|Dense| 2.85e-11|\u{1b}[32mOK\u{1b}[0m|\n|llama| ET0|MoE|FAIL|\n";
        let cases = Cases::of_architectures("llama", said);
        assert_eq!((cases.passed, cases.failed), (1, 1));
        assert_eq!(Cases::of_architectures("gemma", said).failed, 1);
        let older = "| mamba|ET device 0| Dense|OK|\n| mamba| CPU| Dense|OK|\n";
        let cases = Cases::of_architectures("mamba", older);
        assert_eq!((cases.passed, cases.failed), (1, 0));
        let row = "| mamba| ET0| Dense|\n";
        let why =
            "ggml-backend.cpp:71: GGML_ASSERT(size <= ggml_nbytes(tensor) || x) failed\n#0  main\n";
        let cases = Cases::of_architectures("mamba", &(row.to_owned() + why));
        assert_eq!((cases.passed, cases.failed, cases.skipped), (0, 0, 1));
        let cases = Cases::of_architectures("mamba", row);
        assert_eq!((cases.passed, cases.failed, cases.skipped), (0, 1, 0));
        assert!(
            cases.remarks[0].contains("was not tested to the end; the last line: | mamba"),
            "{cases:?}"
        );
        // The first row was well, the program ended in the second.
        let ended = format!("| llama| ET0|Dense|OK|\n| llama| ET0|MoE|\n{BY_SIGNAL} 11\n");
        let cases = Cases::of_architectures("llama", &ended);
        assert_eq!((cases.passed, cases.failed), (1, 1));
    }

    #[test]
    fn the_speed_is_that_of_new_text() {
        let said = "x: prompt eval time =  10.00 ms /  5 tokens ( 2.00 ms per token, 500.00 tokens per second)\n\
            x:        eval time =  90.00 ms / 15 runs ( 6.00 ms per token,   166.67 tokens per second)\n";
        assert_eq!(speed(said), Some(166.67));
        assert_eq!(speed(""), None);
    }
}

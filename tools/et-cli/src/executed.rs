//! What a kernel has executed: which instructions, and how often. The simulator in this process
//! counts that; cards do not.

use anyhow::{Context, bail};
use et::sim::{Count, Histogram};
use et::{Device, Locator};
use serde_json::{Value, json};

use crate::open;

/// Rows of the table; `--json` and profiles have all.
const ROWS: usize = 40;

/// Names a device that counts, after one that may not.
fn counting(locator: &str) -> anyhow::Result<Locator> {
    let mut locator = locator.parse()?;
    match &mut locator {
        Locator::Sim(board) => board.count = Count::Instructions,
        other => bail!("{other} does not count instructions: only the simulator \"sim:\" does"),
    }
    Ok(locator)
}

/// Opens a device; one that counts, if that is wanted.
pub(crate) fn open(locator: &str, is_counted: bool) -> anyhow::Result<Device> {
    let opened = match is_counted {
        false => open::open(locator).map_err(anyhow::Error::from),
        true => counting(locator).and_then(|named| Ok(et::open_with(named, et::Config::new())?)),
    };
    opened.with_context(|| format!("opening {locator}"))
}

/// Instructions, and how often each was executed, most frequent first.
#[derive(Debug, Default)]
pub(crate) struct Executed(Vec<(String, u64)>);

impl Executed {
    /// Takes what the device has counted since the last call.
    pub(crate) fn take(device: &Device) -> Self {
        let launches = device.hal().as_sim().map(|sim| sim.board().take_executed());
        let mut all = Histogram::default();
        launches.into_iter().flatten().for_each(|launch| all.merge(&launch.histogram));
        let counts = all.by_count().into_iter();
        Self(counts.map(|(counted, count)| (counted.to_string(), count)).collect())
    }

    pub(crate) fn counts(&self) -> &[(String, u64)] {
        &self.0
    }

    /// Adds them to a profile of Chrome trace events, as those of something.
    pub(crate) fn added_to(&self, profile: &[u8], of: &str) -> anyhow::Result<Vec<u8>> {
        let mut profile: Value = serde_json::from_slice(profile).context("reading the profile")?;
        let events = profile["traceEvents"].as_array_mut().context("a profile without events")?;
        events.push(json!({
            "ph": "M", "pid": 1, "name": "executed",
            "args": {"name": of, "instructions": self.counts()},
        }));
        Ok(serde_json::to_vec(&profile)?)
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// A table, as far as it is of interest.
    pub(crate) fn lines(&self) -> Vec<String> {
        let total = self.total();
        let mut lines = vec![format!("{total:>14}           instructions executed")];
        let mut before = 0;
        for (name, count) in self.0.iter().take(ROWS) {
            before += count;
            let (share, sum) = (percent(*count, total), percent(before, total));
            lines.push(format!("{count:>14} {share:>5.1} % {sum:>6.1} %  {name}"));
        }
        let rest = self.0.len().saturating_sub(ROWS);
        if rest != 0 {
            lines.push(format!(
                "{:>14} {:>5.1} %           {rest} others",
                total - before,
                percent(total - before, total)
            ));
        }
        lines
    }

    /// The same for machines, all of it.
    pub(crate) fn document(&self) -> Value {
        let total = self.total();
        let rows = self.0.iter().map(|(name, count)| {
            json!({"instruction": name, "count": count, "share": percent(*count, total) / 100.0})
        });
        json!({ "total": total, "counts": rows.collect::<Vec<_>>() })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_shares_and_their_sums_and_says_what_is_left_out() {
        let mut counts = vec![("fmadd.ps".to_owned(), 600), ("addi".to_owned(), 300)];
        counts.extend((0..50).map(|number| (format!("rare{number}"), 2)));
        let lines = Executed(counts).lines();
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["600", "60.0", "%", "60.0", "%", "fmadd.ps"]
        );
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["300", "30.0", "%", "90.0", "%", "addi"]
        );
        assert_eq!(lines.len(), 1 + ROWS + 1);
        assert!(lines[ROWS + 1].contains("12 others"), "{lines:?}");
        assert_eq!(Executed::default().lines().len(), 1);
        assert_eq!(Executed::default().document(), json!({"total": 0, "counts": []}));
    }

    #[test]
    fn only_the_simulator_counts() {
        let Locator::Sim(board) = counting("sim:shires=3").unwrap() else { panic!("not sim") };
        assert_eq!((board.count, board.shires), (Count::Instructions, 7));
        let error = counting("vfio-user:/tmp/socket").unwrap_err().to_string();
        assert!(error.contains("vfio-user:/tmp/socket does not count"), "{error}");
        assert!(counting("nothing").is_err());
    }
}

//! The part of the page on instructions: those that were executed, and those in the code.

use std::fmt::{self, Display, Write};

use super::mix::{self, Mix};
use super::page::{Escaped, ROWS, grouped, percent};
use super::profile::Profile;

pub(super) fn section(out: &mut String, profile: &Profile, mixes: &[Mix]) -> fmt::Result {
    out.push_str("<section id=\"mix\"><h2>Instruction mix</h2>");
    if profile.executed.is_empty() {
        out.push_str(
            "<p class=\"note\">Which instructions were executed is not in this profile. With \
             <code>--instructions</code>, <code>et run</code> and <code>et graph</code> have the \
             simulator count them; a card does not.</p>",
        );
    }
    for (kernel, counts) in &profile.executed {
        let total = counts.iter().map(|(_, count)| count).sum();
        let kinds = mix::of_counts(counts);
        heading(out, kernel, total, "instructions executed")?;
        table(out, total, kinds.iter().map(|(kind, count)| (*kind, *count)))?;
        let shown = counts.iter().take(ROWS);
        table(out, total, shown.map(|(name, count)| (Escaped(name), *count)))?;
        if let Some(rest @ 1..) = counts.len().checked_sub(ROWS) {
            write!(out, "<p class=\"note\">and {rest} more.</p>")?;
        }
    }
    if mixes.is_empty() {
        out.push_str(
            "<p class=\"note\"><code>et report --kernel FILE</code> shows what the code of a \
             kernel consists of.</p>",
        );
    }
    for (name, kinds) in mixes {
        let total = kinds.iter().map(|(_, count)| count).sum();
        heading(out, name, total, "instructions in the code")?;
        table(out, total, kinds.iter().map(|(kind, count)| (*kind, *count)))?;
    }
    out.push_str("</section>\n");
    Ok(())
}

fn heading(out: &mut String, kernel: &str, total: u64, what: &str) -> fmt::Result {
    write!(out, "<h3>{} <small>{} {what}</small></h3>", Escaped(kernel), grouped(total))
}

fn table<N: Display>(
    out: &mut String,
    total: u64,
    rows: impl Iterator<Item = (N, u64)>,
) -> fmt::Result {
    out.push_str("<div class=\"scroll\"><table><tbody>");
    for (name, count) in rows {
        let share = percent(count, total);
        write!(
            out,
            "<tr><td>{name}</td><td class=\"n\">{}</td><td class=\"n bar wide\">\
             <i style=\"--share:{share:.2}\"></i>{share:.1} %</td></tr>",
            grouped(count)
        )?;
    }
    out.push_str("</tbody></table></div>");
    Ok(())
}

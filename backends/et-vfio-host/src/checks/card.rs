//! The card itself, as the bus sees it.

use super::{Context, size};
use crate::pci::{Config, EMULATION, SILICON, VENDOR};
use crate::preflight::chain;
use crate::{Check, Error, Finding, Function};

/// Length of BAR0, a window on device memory. Spec: §1
const BAR0_BYTES: u64 = 0x8_0000_0000;
/// Length of BAR2: mailboxes and doorbells. Spec: §1
const BAR2_BYTES: u64 = 0x4000;

fn look_again(finding: Finding) -> Finding {
    finding.fix("echo 1 > /sys/bus/pci/rescan").fix(format!("lspci -D -d {VENDOR:04x}:"))
}

impl Context<'_> {
    pub(super) fn no_card(&self, failure: &Error) -> Finding {
        let Error::NoDevice { bdf } = failure else {
            return Finding::problem(Check::Card, chain(failure));
        };
        let others: Vec<String> =
            self.host.cards().unwrap_or_default().iter().map(ToString::to_string).collect();
        let evidence = if others.is_empty() {
            format!("no function {bdf}, and none with vendor {VENDOR:04x}")
        } else {
            format!("no function {bdf}; cards are at {}", others.join(", "))
        };
        look_again(Finding::problem(Check::Card, evidence))
    }

    pub(super) fn no_cards(&self) -> Result<Finding, Error> {
        let cards = self.host.cards()?;
        if let Some(card) = cards.first() {
            return Ok(Finding::ok(
                Check::Card,
                format!("{} of them, the first at {card}", cards.len()),
            ));
        }
        let evidence = format!("no function with vendor {VENDOR:04x} on the PCI bus");
        Ok(look_again(Finding::problem(Check::Card, evidence)))
    }

    pub(super) fn card(&self, function: &Function) -> Finding {
        let Function { vendor, device, class, .. } = function;
        let ids = format!("{vendor:04x}:{device:04x}, class {class:06x}");
        if !function.is_card() {
            let wanted = format!("{VENDOR:04x}:{SILICON:04x}");
            return Finding::problem(Check::Card, format!("{ids}, not an ET-SoC-1 ({wanted})"))
                .fix(format!("lspci -D -d {VENDOR:04x}:"));
        }
        let rescan = |finding: Finding| {
            finding
                .fix(format!("echo 1 > {}/remove", Function::folder(self.bdf).display()))
                .fix("echo 1 > /sys/bus/pci/rescan")
        };
        match &function.config {
            // Without power it cannot answer; the next check says so.
            Config::AllOnes if function.power_state.as_deref() == Some("D3cold") => {
                Finding::ok(Check::Card, ids)
            }
            Config::AllOnes => {
                let evidence =
                    format!("{ids}, configuration space reads all ones: the link is down");
                rescan(Finding::problem(Check::Card, evidence))
            }
            Config::Differs { vendor, device } => {
                let evidence = format!("was {ids} and answers {vendor:04x}:{device:04x} now");
                rescan(Finding::problem(Check::Card, evidence))
            }
            Config::Unreadable(why) => {
                Finding::warning(Check::Card, format!("{ids}, configuration space not read: {why}"))
            }
            Config::Answers if *device == EMULATION => {
                Finding::ok(Check::Card, format!("{ids}, a test or emulation device"))
            }
            Config::Answers => Finding::ok(Check::Card, ids),
        }
    }

    pub(super) fn power(&self, function: &Function) -> Finding {
        let wake = format!("echo on > {}/power/control", Function::folder(self.bdf).display());
        match function.power_state.as_deref() {
            None => Finding::skipped(Check::Power, "the kernel does not say"),
            Some("D0") => Finding::ok(Check::Power, "D0"),
            Some("unknown") if function.driver.is_none() => {
                Finding::skipped(Check::Power, "the kernel learns it when a driver takes the card")
            }
            // vfio-pci lets devices sleep that are not open.
            Some("D3hot") if function.is_vfio() => {
                Finding::ok(Check::Power, "D3hot, woken when opened")
            }
            Some("D3cold") => Finding::problem(Check::Power, "D3cold: no power").fix(wake),
            Some(state) => {
                Finding::warning(Check::Power, format!("{state} instead of D0")).fix(wake)
            }
        }
    }

    pub(super) fn bars(&self, function: &Function) -> Finding {
        if !function.is_card() {
            return Finding::skipped(Check::Bars, "not an ET-SoC-1");
        }
        let [bar0, _, bar2, ..] = function.bars;
        let found = format!("BAR0 {}, BAR2 {}", size(bar0.len_bytes), size(bar2.len_bytes));
        let wanted = format!("wanted are {} and {}", size(BAR0_BYTES), size(BAR2_BYTES));
        if [bar0, bar2].iter().any(|bar| bar.len_bytes == 0 || bar.is_unassigned()) {
            let evidence = format!("{found}: not assigned by firmware or kernel");
            return Finding::problem(Check::Bars, evidence)
                .fix(self.kernel_argument("pci=realloc"))
                .fix("systemctl reboot --firmware-setup # enable \"Above 4G Decoding\"");
        }
        if bar2.len_bytes < BAR2_BYTES {
            return Finding::problem(Check::Bars, format!("{found}; {wanted}"))
                .fix(format!("lspci -vv -s {}", self.bdf));
        }
        if bar0.len_bytes != BAR0_BYTES || bar2.len_bytes != BAR2_BYTES {
            let evidence = format!("{found}; {wanted}");
            if function.device == EMULATION {
                return Finding::warning(Check::Bars, evidence);
            }
            let resize = Function::folder(self.bdf).join("resource0_resize");
            let finding = Finding::problem(Check::Bars, evidence);
            return if self.host.exists(&resize) && bar0.len_bytes != BAR0_BYTES {
                // The file takes the logarithm of the size in MiB: 15 is 32 GiB.
                finding.fix(format!("echo 15 > {}", resize.display()))
            } else {
                finding.fix(format!("lspci -vv -s {}", self.bdf))
            };
        }
        Finding::ok(Check::Bars, found)
    }

    pub(super) fn virtual_functions(&self, function: &Function) -> Finding {
        if let Some(parent) = function.physical_function {
            let evidence = format!("is a virtual function of {parent}; opening may need a token");
            return Finding::warning(Check::VirtualFunctions, evidence);
        }
        match function.virtual_functions {
            0 => Finding::ok(Check::VirtualFunctions, "none"),
            count => Finding::problem(Check::VirtualFunctions, format!("{count} enabled"))
                .fix(format!("echo 0 > {}/sriov_numvfs", Function::folder(self.bdf).display())),
        }
    }

    pub(super) fn reset(&self, function: &Function) -> Finding {
        match (&function.reset_methods, function.resettable) {
            (Some(methods), true) => Finding::ok(Check::Reset, methods.join(", ")),
            (None, true) => Finding::ok(Check::Reset, "possible, by a method the kernel chooses"),
            (_, false) => Finding::warning(
                Check::Reset,
                "the kernel cannot reset the function: state of a program that died stays",
            )
            .fix(format!("cat {}/reset_method", Function::folder(self.bdf).display())),
        }
    }
}

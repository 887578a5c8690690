//! Levels of texts: what the device writes follows what the log of the process lets through.

use et_devapi::trace::{Body, Entry};
use tracing::subscriber::NoSubscriber;
use tracing::{Level, dispatcher, enabled};

use super::Source;

/// Levels of the device. Spec: §16.2
const WARNING: u8 = 2;
const INFO: u8 = 3;
pub(crate) const DEBUG: u8 = 4;

/// The highest level that the log lets through for a target; everything, if the thread has no log:
/// who reads the entries decides then.
macro_rules! threshold {
    ($target:literal) => {
        if dispatcher::get_default(|log| log.is::<NoSubscriber>()) {
            DEBUG
        } else if enabled!(target: $target, Level::DEBUG) {
            DEBUG
        } else if enabled!(target: $target, Level::INFO) {
            INFO
        } else if enabled!(target: $target, Level::WARN) {
            WARNING
        } else {
            u8::from(enabled!(target: $target, Level::ERROR))
        }
    };
}

pub(super) fn of_kernels() -> u8 {
    threshold!("et::kernel")
}

pub(crate) fn of_firmware() -> u8 {
    threshold!("et::firmware")
}

/// The masks of events and of filters that let texts up to a level through.
///
/// All ones as the mask of events would make the filter all ones, whatever was asked for, and hide
/// from firmware a level that there is not. The highest bit stands for nothing. Spec: §16.2
pub(crate) fn masks(event_mask: u32, level: u8) -> (u32, u32) {
    let events = if level == DEBUG { event_mask } else { event_mask & !(1 << 31) };
    (events, u32::from(level) | 0xffff_ff00)
}

/// How much an entry matters. `most` is the highest level that was asked for: a text that does not
/// say its level has that one at most.
pub(super) fn of(source: Source, entry: &Entry<'_>, most: u8) -> Level {
    match (source, entry.body) {
        (_, Body::Exception(_)) => Level::WARN,
        (_, Body::CmdStatus(status)) if status.cmd_status == 4 => Level::WARN,
        (Source::Kernel, Body::String(_)) => named(entry.level.unwrap_or(most.min(INFO))),
        (_, Body::String(_)) => named(entry.level.unwrap_or(most)),
        (Source::Kernel, _) => Level::INFO,
        _ => Level::DEBUG,
    }
}

fn named(level: u8) -> Level {
    match level {
        0 | 1 => Level::ERROR,
        WARNING => Level::WARN,
        INFO => Level::INFO,
        _ => Level::DEBUG,
    }
}

/// Logs at a level that is known at run time only.
macro_rules! say {
    ($level:expr, $target:literal, $($said:tt)*) => {
        match $level {
            tracing::Level::ERROR => tracing::error!(target: $target, $($said)*),
            tracing::Level::WARN => tracing::warn!(target: $target, $($said)*),
            tracing::Level::INFO => tracing::info!(target: $target, $($said)*),
            _ => tracing::debug!(target: $target, $($said)*),
        }
    };
}
pub(super) use say;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_kept_whatever_kinds_are_wanted() {
        assert_eq!(masks(u32::MAX, DEBUG), (u32::MAX, 0xffff_ff04));
        assert_eq!(masks(u32::MAX, 1), (0x7fff_ffff, 0xffff_ff01));
        assert_eq!(masks(1, 0), (1, 0xffff_ff00));
        assert_eq!(masks(u32::MAX, 5), (0x7fff_ffff, 0xffff_ff05), "for firmware to refuse");
    }
}

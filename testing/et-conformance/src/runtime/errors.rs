//! Errors that no one asks for are found at the device.

use std::sync::{Arc, Mutex, PoisonError};

use et_hal::Hal;
use et_runtime::{DeviceError, Error, Launch, StreamError};

use super::bench::Bench;
use crate::check::{check, check_eq};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::errors":
    what_no_one_asks_for_reaches_the_device [Need::Compute],
    errors_and_their_callback_outlive_a_reset [Need::Compute, Need::FunctionReset],
}

/// Numbers of stream and operation.
type Name = (u32, u64);

/// Names a failed operation.
fn name(error: &DeviceError) -> Option<Name> {
    match error {
        DeviceError::Stream { stream, error: StreamError::Failed { operation, .. } } => {
            Some((*stream, *operation))
        }
        _ => None,
    }
}

/// What a callback for errors has heard.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Name>>>);

impl Heard {
    fn names(&self) -> Vec<Name> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        names.sort_unstable();
        names
    }
}

impl<H: Hal> Bench<H> {
    fn hear(&self) -> Heard {
        let heard = Heard::default();
        let its = heard.clone();
        self.device.on_error(move |error| {
            its.0.lock().unwrap_or_else(PoisonError::into_inner).extend(name(error));
        });
        heard
    }

    /// Waits until the device has listed these failures and told of them.
    fn check_errors(&self, heard: &Heard, mut expected: Vec<Name>) -> Result<(), Failure> {
        expected.sort_unstable();
        let (mut listed, mut dropped) = (Vec::new(), 0);
        let until = std::time::Instant::now() + self.patience;
        while (listed.len() < expected.len() || heard.names().len() < expected.len())
            && std::time::Instant::now() < until
        {
            self.device.poll();
            let taken = self.device.take_errors();
            listed.extend(taken.errors.iter().filter_map(name));
            dropped += taken.dropped;
        }
        listed.sort_unstable();
        check_eq!(listed, expected, "the errors of the device");
        check_eq!(heard.names(), expected, "what the callback heard");
        check_eq!(dropped, 0, "errors dropped");
        Ok(())
    }
}

/// Of a stream that is there, of one that goes after its operation, and of one that goes before.
fn what_no_one_asks_for_reaches_the_device<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let trap = Launch::new(&bench.load("trap_load")?).u64(1).shires(bench.one_shire());
    let heard = bench.hear();
    let streams = [0; 3].map(|_| bench.device.stream());
    let ids = streams.each_ref().map(et_runtime::Stream::id);
    let (sender, its_own) = std::sync::mpsc::channel();
    streams[0].on_error(move |error| {
        let _ = sender.send(match error {
            StreamError::Failed { operation, .. } => *operation,
            _ => 0,
        });
    });
    let operations = [
        streams[0].launch(&trap)?.id(),
        streams[1].launch(&trap)?.id(),
        streams[2].launch(&trap)?.id(),
    ];
    let [stays, goes_late, goes_at_once] = streams;
    drop(goes_at_once);
    goes_late.synchronize(bench.patience)?;
    drop(goes_late);
    let known = stays.launch(&trap)?;
    check!(known.wait(bench.patience).is_err(), "a kernel that traps succeeds");
    drop(known);
    bench.check_errors(&heard, ids.into_iter().zip(operations).collect())?;
    check!(stays.take_errors().is_empty(), "an error is taken twice");
    let heard: Vec<_> = its_own.try_iter().collect();
    check_eq!(heard, [operations[0]], "of the stream");
    bench.works()
}

fn errors_and_their_callback_outlive_a_reset<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let heard = bench.hear();
    let hang = Launch::new(&bench.load("hang")?).shires(bench.one_shire());
    let stream = bench.device.stream();
    let mut expected = vec![(stream.id(), stream.launch(&hang)?.id())];
    bench.device.reset(bench.patience)?;
    let trap = Launch::new(&bench.load("trap_load")?).u64(1).shires(bench.one_shire());
    let new = bench.device.stream();
    expected.push((new.id(), new.launch(&trap)?.id()));
    bench.check_errors(&heard, expected)?;
    let late = stream.launch(&trap);
    check!(matches!(late, Err(Error::Stale { .. })), "a launch in a stream of before: {late:?}");
    bench.works()
}

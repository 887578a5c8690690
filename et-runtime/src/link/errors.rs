//! What failed without anyone hearing of it, by stream and for the whole device.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use et_hal::DeviceAddr;

use crate::Error;
use crate::core_dump::CoreWriteError;
use crate::report::debug_as_report;
use crate::sync::{Arc, Mutex, lock};

/// Most errors that are kept of one stream; the first ones, which tend to be the causes of the
/// others.
const LIMIT: usize = 64;
/// Most errors that are kept of the device and of all streams that are gone.
const DEVICE_LIMIT: usize = 1024;

/// Something that went wrong in a stream without anyone hearing of it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// An operation failed, and its last handle went without asking for the outcome.
    #[error("operation {operation} ({name}) failed")]
    Failed {
        /// The operation, as [`Event::id`](crate::Event::id) gives it.
        operation: u64,
        /// What it was.
        name: &'static str,
        /// Why.
        #[source]
        error: Error,
    },
    /// A callback panicked.
    #[error("a callback of operation {operation} ({name}) panicked: {message}")]
    Panicked {
        /// The operation.
        operation: u64,
        /// What it was.
        name: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// A launch failed, and its [core file](crate::Launch::core_dump) is not there or not whole.
    /// The failure itself comes with the event.
    #[error("operation {operation} ({name}) has no complete core file at {}", path.display())]
    NotDumped {
        /// The operation.
        operation: u64,
        /// What it was.
        name: &'static str,
        /// Where the file was to be.
        path: Arc<Path>,
        /// Why.
        #[source]
        error: CoreWriteError,
    },
    /// A [`Mapping`](crate::Mapping) was dropped, and what was written to it could not be sent to
    /// the device.
    #[error("mapped memory at {addr} was not written back")]
    NotWrittenBack {
        /// Where it is.
        addr: DeviceAddr,
        /// Why.
        #[source]
        error: Error,
    },
}

debug_as_report!(StreamError, DeviceError);

/// Errors of a stream since they were taken the last time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StreamErrors {
    /// The first 64, oldest first.
    pub errors: Vec<StreamError>,
    /// How many came after them and were dropped.
    pub dropped: u64,
}

impl StreamErrors {
    /// Returns `true` if nothing went wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Something that went wrong on a device without anyone hearing of it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// In a stream, which may be gone.
    #[error("in stream {stream}")]
    Stream {
        /// Its number, as [`Stream::id`](crate::Stream::id) gives it.
        stream: u32,
        /// What.
        #[source]
        error: StreamError,
    },
    /// On the device as a whole: it is lost, or firmware has reported that compute is down.
    #[error("on the device")]
    Device(#[source] Error),
}

/// Errors of a device and of all its streams since they were taken the last time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceErrors {
    /// Oldest first: the first 64 of each stream, and the first 1024 of the device and of streams
    /// that are gone.
    pub errors: Vec<DeviceError>,
    /// How many came after them and were dropped.
    pub dropped: u64,
}

impl DeviceErrors {
    /// Returns `true` if nothing went wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }
}

/// What is called with each error as it is listed.
type Listener<E> = Arc<dyn Fn(&E) + Send + Sync>;

/// Where operations leave their errors. Touched only if there are any, and by streams that come
/// and go.
///
/// The lists and the listener belong to the device and outlive its resets; numbers of streams do
/// not, so each link has a generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorLists {
    shared: Arc<Mutex<Shared>>,
    generation: u32,
}

#[derive(Default)]
struct Shared {
    streams: BTreeMap<(u32, u32), OfStream>,
    /// Of the device itself, and of streams without handles.
    device: List<DeviceError>,
    /// Of the link in use.
    generation: u32,
    /// Errors so far: their order.
    count: u64,
    listener: Option<Listener<DeviceError>>,
}

/// What a stream has as long as it has handles.
#[derive(Default)]
struct OfStream {
    list: List<StreamError>,
    listener: Option<Listener<StreamError>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("count", &self.count).finish_non_exhaustive()
    }
}

/// Errors with their places in the order of all.
struct List<E> {
    errors: Vec<(u64, E)>,
    dropped: u64,
}

impl<E> Default for List<E> {
    fn default() -> Self {
        Self { errors: Vec::new(), dropped: 0 }
    }
}

impl<E> List<E> {
    fn push(&mut self, limit: usize, place: u64, error: E) {
        if self.errors.len() < limit {
            self.errors.push((place, error));
        } else {
            self.dropped += 1;
        }
    }
}

impl ErrorLists {
    /// The same lists, for the link that comes after a reset.
    pub(crate) fn successor(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), generation: self.generation.wrapping_add(1) }
    }

    /// From now on this is the link in use.
    pub(crate) fn begin(&self) {
        lock(&self.shared).generation = self.generation;
    }

    pub(super) fn open(&self, stream: u32) {
        lock(&self.shared).streams.insert((self.generation, stream), OfStream::default());
    }

    /// No one is left who could ask the stream.
    pub(super) fn close(&self, stream: u32) {
        let mut shared = lock(&self.shared);
        let Some(OfStream { list, listener }) = shared.streams.remove(&(self.generation, stream))
        else {
            return;
        };
        shared.device.dropped += list.dropped;
        for (place, error) in list.errors {
            let error = DeviceError::Stream { stream, error };
            shared.device.push(DEVICE_LIMIT, place, error);
        }
        drop(shared);
        // What it owns may do anything when it goes, so it goes without the lock.
        drop(listener);
    }

    /// Lists an error; returns it for [`tell`](Self::tell) if anyone listens.
    #[must_use]
    pub(super) fn push(&self, error: DeviceError) -> Option<DeviceError> {
        let mut shared = lock(&self.shared);
        let Shared { streams, device, count, listener, .. } = &mut *shared;
        let its_own = match &error {
            DeviceError::Stream { stream, .. } => streams.get_mut(&(self.generation, *stream)),
            DeviceError::Device(_) => None,
        };
        let is_heard = listener.is_some() || its_own.as_ref().is_some_and(|s| s.listener.is_some());
        let for_listeners = is_heard.then(|| error.clone());
        let place = *count;
        *count += 1;
        match error {
            DeviceError::Stream { stream, error } => match its_own {
                Some(of_stream) => of_stream.list.push(LIMIT, place, error),
                None => device.push(DEVICE_LIMIT, place, DeviceError::Stream { stream, error }),
            },
            error => device.push(DEVICE_LIMIT, place, error),
        }
        for_listeners
    }

    /// Returns the calls of the listeners: of that of the stream, and of that of the device. To be
    /// made without any lock.
    pub(super) fn calls<'e>(&self, error: &'e DeviceError) -> [Option<Box<dyn FnOnce() + 'e>>; 2] {
        let shared = lock(&self.shared);
        let of_stream = match error {
            DeviceError::Stream { stream, error } => {
                let its_own = shared.streams.get(&(self.generation, *stream));
                its_own
                    .and_then(|its_own| its_own.listener.clone())
                    .map(|listener| Box::new(move || listener(error)) as Box<dyn FnOnce()>)
            }
            DeviceError::Device(_) => None,
        };
        let of_device = shared.listener.clone();
        [of_stream, of_device.map(|listener| Box::new(move || listener(error)) as Box<_>)]
    }

    pub(super) fn listen_to(&self, stream: u32, listener: Listener<StreamError>) {
        let mut listener = Some(listener);
        if let Some(its_own) = lock(&self.shared).streams.get_mut(&(self.generation, stream)) {
            std::mem::swap(&mut its_own.listener, &mut listener);
        }
        // As below.
        drop(listener);
    }

    pub(crate) fn listen(&self, listener: Listener<DeviceError>) {
        let before = lock(&self.shared).listener.replace(listener);
        // What it owns may do anything when it goes, so it goes without the lock.
        drop(before);
    }

    /// The device goes, unless a later link is in use: forgets the listener, and says so if there
    /// was none and errors are left.
    pub(crate) fn end(&self, device: &str) {
        let mut shared = lock(&self.shared);
        if shared.generation != self.generation {
            return;
        }
        let listener = shared.listener.take();
        let left = shared.streams.values().map(|of| of.list.errors.len()).sum::<usize>();
        let left = left + shared.device.errors.len();
        drop(shared);
        if listener.is_none() && left != 0 {
            tracing::warn!(device, left, "closed with errors that were never taken");
        }
    }

    pub(super) fn take(&self, stream: u32) -> StreamErrors {
        let mut shared = lock(&self.shared);
        let its_own = shared.streams.get_mut(&(self.generation, stream));
        let list = its_own.map(|its_own| std::mem::take(&mut its_own.list));
        let List { errors, dropped } = list.unwrap_or_default();
        StreamErrors { errors: errors.into_iter().map(|(_, error)| error).collect(), dropped }
    }

    /// Takes those of the device and of all streams.
    pub(crate) fn take_all(&self) -> DeviceErrors {
        let mut shared = lock(&self.shared);
        let List { mut errors, mut dropped } = std::mem::take(&mut shared.device);
        for (&(_, stream), its_own) in &mut shared.streams {
            let list = std::mem::take(&mut its_own.list);
            dropped += list.dropped;
            let of_stream = |(place, error)| (place, DeviceError::Stream { stream, error });
            errors.extend(list.errors.into_iter().map(of_stream));
        }
        drop(shared);
        errors.sort_unstable_by_key(|&(place, _)| place);
        DeviceErrors { errors: errors.into_iter().map(|(_, error)| error).collect(), dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(stream: u32, operation: u64) -> DeviceError {
        let error = StreamError::Failed { operation, name: "x", error: Error::all_closed() };
        DeviceError::Stream { stream, error }
    }

    fn push(lists: &ErrorLists, stream: u32, operation: u64) {
        assert!(lists.push(failed(stream, operation)).is_none(), "there is no listener");
    }

    fn tell(lists: &ErrorLists, error: &DeviceError) {
        lists.calls(error).into_iter().flatten().for_each(|call| call());
    }

    /// Streams and operations of a list; none for those of the device.
    fn names(taken: &DeviceErrors) -> Vec<Option<(u32, u64)>> {
        let name = |error: &DeviceError| match error {
            DeviceError::Stream { stream, error: StreamError::Failed { operation, .. } } => {
                Some((*stream, *operation))
            }
            _ => None,
        };
        taken.errors.iter().map(name).collect()
    }

    #[test]
    fn the_first_errors_are_kept_and_the_others_counted() {
        let lists = ErrorLists::default();
        lists.open(3);
        (0..LIMIT as u64 + 6).for_each(|operation| push(&lists, 3, operation));
        let taken = lists.take(3);
        assert_eq!((taken.errors.len(), taken.dropped), (LIMIT, 6));
        assert!(matches!(taken.errors[0], StreamError::Failed { operation: 0, .. }));
        assert!(lists.take(3).is_empty());
        push(&lists, 3, 100);
        assert_eq!((lists.take(3).errors.len(), lists.take(3).dropped), (1, 0));
    }

    #[test]
    fn what_a_stream_leaves_goes_to_its_device_in_the_order_of_all() {
        let lists = ErrorLists::default();
        lists.open(1);
        lists.open(2);
        push(&lists, 2, 10);
        push(&lists, 1, 11);
        assert!(lists.push(DeviceError::Device(Error::all_closed())).is_none());
        lists.close(2);
        push(&lists, 2, 12);
        push(&lists, 1, 13);
        let taken = lists.take_all();
        assert_eq!(
            names(&taken),
            [Some((2, 10)), Some((1, 11)), None, Some((2, 12)), Some((1, 13))]
        );
        assert!(lists.take(1).is_empty() && lists.take_all().is_empty(), "taken once");
    }

    #[test]
    fn errors_of_streams_that_are_gone_are_bounded_and_counted() {
        let lists = ErrorLists::default();
        for stream in 0..20 {
            lists.open(stream);
            (0..LIMIT as u64 + 1).for_each(|operation| push(&lists, stream, operation));
            lists.close(stream);
        }
        let taken = lists.take_all();
        let all = 20 * (LIMIT as u64 + 1);
        assert_eq!(taken.errors.len(), DEVICE_LIMIT);
        assert_eq!(taken.dropped, all - DEVICE_LIMIT as u64);
    }

    #[test]
    fn streams_of_before_a_reset_are_others_and_the_listener_stays() {
        let before = ErrorLists::default();
        before.open(1);
        push(&before, 1, 5);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&heard);
        before.listen(Arc::new(move |error: &DeviceError| lock(&its).push(error.to_string())));
        let after = before.successor();
        after.begin();
        before.end("card");
        after.open(1);
        assert!(after.take(1).is_empty(), "of a stream of before");
        let told = after.push(failed(1, 6)).unwrap();
        tell(&after, &told);
        assert_eq!(*lock(&heard), ["in stream 1"]);
        before.close(1);
        assert_eq!(names(&after.take_all()), [Some((1, 5)), Some((1, 6))]);
        after.end("card");
        tell(&after, &told);
        assert_eq!((lock(&heard).len(), Arc::strong_count(&heard)), (1, 1), "after the end");
    }

    /// A callback may own the last handle of another stream.
    #[test]
    fn what_a_callback_owns_may_close_other_streams_when_it_goes() {
        struct Closes(ErrorLists, u32);
        impl Drop for Closes {
            fn drop(&mut self) {
                self.0.close(self.1);
            }
        }
        let lists = ErrorLists::default();
        (1..5).for_each(|stream| lists.open(stream));
        let owner = |stream| {
            let owned = Closes(lists.clone(), stream);
            move || drop(lock(&owned.0.shared))
        };
        let owns = owner(2);
        lists.listen_to(1, Arc::new(move |_: &StreamError| owns()));
        let owns = owner(3);
        // It takes the place of the other, which goes.
        lists.listen_to(1, Arc::new(move |_: &StreamError| owns()));
        lists.close(1);
        assert_eq!(lock(&lists.shared).streams.keys().collect::<Vec<_>>(), [&(0, 4)]);
        // A stream that is gone has no callback; what was to be one goes.
        let owns = owner(4);
        lists.listen_to(1, Arc::new(move |_: &StreamError| owns()));
        assert!(lock(&lists.shared).streams.is_empty());
    }

    #[test]
    fn a_stream_is_told_of_its_own_errors_before_the_device() {
        let lists = ErrorLists::default();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = |name: &'static str| {
            let its = Arc::clone(&heard);
            move |error: String| lock(&its).push(format!("{name}: {error}"))
        };
        lists.open(1);
        lists.open(2);
        let of_stream = listener("stream 1");
        lists.listen_to(1, Arc::new(move |error: &StreamError| of_stream(error.to_string())));
        let own = lists.push(failed(1, 5)).unwrap();
        assert!(lists.push(failed(2, 6)).is_none(), "no one listens to it");
        let of_device = listener("device");
        lists.listen(Arc::new(move |error: &DeviceError| of_device(error.to_string())));
        let other = lists.push(failed(2, 7)).unwrap();
        tell(&lists, &own);
        tell(&lists, &other);
        let failed = "operation 5 (x) failed";
        let expected = [
            format!("stream 1: {failed}"),
            "device: in stream 1".into(),
            "device: in stream 2".into(),
        ];
        assert_eq!(*lock(&heard), expected);
        // It goes with the last handle, and what it owns with it; the device still hears.
        let before = Arc::strong_count(&heard);
        lists.close(1);
        assert_eq!(Arc::strong_count(&heard), before - 1);
        tell(&lists, &own);
        assert_eq!(lock(&heard).len(), 4);
    }
}

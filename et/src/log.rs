//! What the stack says while it works, for programs that are not themselves users of `tracing`:
//! those in other languages, above all.
//!
//! The stack logs by [`tracing`](https://docs.rs/tracing), and a Rust program may subscribe as it
//! likes; it needs nothing of this.
//!
//! ```
//! # fn main() -> Result<(), et::log::LogError> {
//! et::log::forward("et_runtime=debug", |message| {
//!     eprintln!("{} {}: {}", message.level, message.target, message.text);
//! })?;
//! # Ok(())
//! # }
//! ```

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

/// The environment variable that says what is logged.
pub const VARIABLE: &str = "ET_LOG";

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Something failed.
    Error = 1,
    /// Something is not as it should be.
    Warn,
    /// What users want to know.
    Info,
    /// What helps to find mistakes.
    Debug,
    /// Every step.
    Trace,
}

impl From<tracing::Level> for Level {
    fn from(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Info,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::TRACE => Self::Trace,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        })
    }
}

/// One thing said.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Message<'a> {
    /// How much it matters.
    pub level: Level,
    /// Who says it: a module, as `et_runtime::link`, or `et::kernel` and `et::firmware` for what
    /// was read from the device.
    pub target: &'a str,
    /// What, on one line: the message, then its fields as `name=value`.
    pub text: &'a str,
}

/// Messages are not forwarded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The filter has no meaning.
    #[error("\"{filter}\" is not what to log, such as \"debug\" or \"et_runtime=trace\": {why}")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong.
        why: String,
    },
    /// The program has a subscriber of its own, which hears everything.
    #[error("the program has a subscriber of `tracing` already")]
    Taken,
}

type Sink = Arc<dyn Fn(&Message<'_>) + Send + Sync>;

static SINK: RwLock<Option<Sink>> = RwLock::new(None);
static FILTER: Mutex<Option<reload::Handle<EnvFilter, Registry>>> = Mutex::new(None);

/// Has `sink` called for every message that `filter` lets through: a level, or levels of targets,
/// as `warn,et_runtime=debug`. What was asked for before ends.
///
/// Messages come from whichever thread has something to say, also while it holds locks: `sink` must
/// not use a device, nor wait for a thread that does. What it logs itself is not forwarded.
///
/// # Errors
/// [`LogError`], with everything as it was.
pub fn forward(
    filter: &str,
    sink: impl Fn(&Message<'_>) + Send + Sync + 'static,
) -> Result<(), LogError> {
    let parsed = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| LogError::Filter { filter: filter.into(), why: error.to_string() })?;
    let mut handle = FILTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*handle {
        // The subscriber is global, so it is there.
        handle.reload(parsed).map_err(|_| LogError::Taken)?;
    } else {
        let (layer, new) = reload::Layer::new(parsed);
        let subscriber = Registry::default().with(layer).with(Forward);
        tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Taken)?;
        *handle = Some(new);
    }
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(sink));
    Ok(())
}

/// The same, as lines on standard error.
///
/// # Errors
/// As [`forward`].
pub fn to_stderr(filter: &str) -> Result<(), LogError> {
    forward(filter, |Message { level, target, text }| {
        // A program without standard error does not want to know.
        let (Ok(()) | Err(_)) = writeln!(std::io::stderr(), "{level:<5} {target}: {text}");
    })
}

/// Does [that](to_stderr) if the environment asks for it, and nothing has asked before. For
/// libraries to call when they are first used.
pub fn to_stderr_if_asked() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let is_set = SINK.read().unwrap_or_else(PoisonError::into_inner).is_some();
        let Ok(filter) = std::env::var(VARIABLE) else { return };
        if is_set || filter.is_empty() {
            return;
        }
        match to_stderr(&filter) {
            // A program that subscribes itself hears all there is.
            Ok(()) | Err(LogError::Taken) => {}
            Err(error) => {
                let (Ok(()) | Err(_)) = writeln!(std::io::stderr(), "{VARIABLE}: {error}");
            }
        }
    });
}

struct Forward;

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let sink = SINK.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(sink) = sink else { return };
        let mut line = Line::default();
        event.record(&mut line);
        let Line { mut text, fields } = line;
        if !text.is_empty() && !fields.is_empty() {
            text.push(' ');
        }
        text.push_str(&fields);
        let metadata = event.metadata();
        let (level, target) = ((*metadata.level()).into(), metadata.target());
        sink(&Message { level, target, text: &text });
    }
}

/// A message and its fields.
#[derive(Default)]
struct Line {
    text: String,
    fields: String,
}

impl Visit for Line {
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        // With its causes: who reads a log has nothing else.
        self.record_debug(field, &format_args!("{}", et_runtime::Report(value)));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Into a `String`, which does not fail.
        let (Ok(()) | Err(_)) = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => {
                let space = if self.fields.is_empty() { "" } else { " " };
                write!(self.fields, "{space}{name}={value:?}")
            }
        };
    }
}

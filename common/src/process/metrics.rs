//! Metrics: a crate declares all of its metrics in its `metrics.rs`, each with its labels and help
//! text, and nothing else in the crate names one.
//!
//! The declarations are also the registry. Buckets and help texts are set from it when a process
//! starts, and a test compares it with the table in `deploy/README.md`.

pub use metrics::{Counter as CounterUnder, Histogram as HistogramUnder};
use metrics::{IntoF64, Label, SharedString};

/// The kind of a metric, which decides how it is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A histogram of durations, in seconds.
    Seconds,
    /// A histogram of delays, in seconds: usually short, but days while no worker runs.
    Delays,
    /// A histogram of how many items are handled at once.
    Sizes,
}

impl MetricKind {
    /// The bounds of a histogram's buckets; `None` for other kinds.
    pub fn buckets(self) -> Option<&'static [f64]> {
        match self {
            Self::Counter | Self::Gauge => None,
            Self::Seconds => Some(&[
                0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0,
                2.5, 5.0, 10.0, 30.0,
            ]),
            Self::Delays => Some(&[
                0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0,
                86_400.0,
            ]),
            Self::Sizes => Some(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0]),
        }
    }
}

/// One metric. Labels are given in the order in which they are declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The exported name.
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The exported help text, one line.
    pub help: &'static str,
}

impl Metric {
    fn labels<V: Into<SharedString>, const N: usize>(&self, values: [V; N]) -> Vec<Label> {
        let named = self.labels.iter().zip(values);
        named
            .map(|(name, value)| Label::new(*name, value))
            .collect()
    }
}

/// A counter with so many labels.
#[derive(Debug, Clone, Copy)]
pub struct Counter<const LABELS: usize> {
    /// How it is declared.
    pub metric: Metric,
}

impl Counter<0> {
    /// Adds to the counter.
    pub fn increment(&self, by: u64) {
        self.add::<&str>([], by);
    }
}

impl<const LABELS: usize> Counter<LABELS> {
    /// Adds to the counter with these label values.
    pub fn add<V: Into<SharedString>>(&self, values: [V; LABELS], by: u64) {
        self.under(values).increment(by);
    }

    /// The counter with these label values, for hot paths where a look-up each time is too slow.
    pub fn under<V: Into<SharedString>>(&self, values: [V; LABELS]) -> CounterUnder {
        metrics::counter!(self.metric.name, self.metric.labels(values))
    }
}

/// A gauge with so many labels.
#[derive(Debug, Clone, Copy)]
pub struct Gauge<const LABELS: usize> {
    /// How it is declared.
    pub metric: Metric,
}

impl Gauge<0> {
    /// Sets the gauge.
    pub fn set(&self, to: f64) {
        self.set_under::<&str>([], to);
    }

    /// Adds 1 to the gauge until the returned guard is dropped.
    #[must_use]
    pub fn hold(&self) -> OneMore {
        let gauge = self.under::<&str>([]);
        gauge.increment(1.0);
        OneMore(gauge)
    }
}

impl<const LABELS: usize> Gauge<LABELS> {
    /// Sets the gauge with these label values.
    pub fn set_under<V: Into<SharedString>>(&self, values: [V; LABELS], to: f64) {
        self.under(values).set(to);
    }

    fn under<V: Into<SharedString>>(&self, values: [V; LABELS]) -> metrics::Gauge {
        metrics::gauge!(self.metric.name, self.metric.labels(values))
    }
}

/// A guard that subtracts 1 from its gauge when dropped.
#[derive(Debug)]
pub struct OneMore(metrics::Gauge);

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// A histogram with so many labels.
#[derive(Debug, Clone, Copy)]
pub struct Histogram<const LABELS: usize> {
    /// How it is declared.
    pub metric: Metric,
}

/// A histogram of delays.
pub type Delays<const LABELS: usize> = Histogram<LABELS>;
/// A histogram of durations.
pub type Seconds<const LABELS: usize> = Histogram<LABELS>;
/// A histogram of sizes.
pub type Sizes<const LABELS: usize> = Histogram<LABELS>;

impl<const LABELS: usize> Histogram<LABELS> {
    /// Records a value or a duration with these label values.
    pub fn record<V: Into<SharedString>>(&self, values: [V; LABELS], value: impl IntoF64) {
        self.under(values).record(value);
    }

    /// The histogram with these label values, for hot paths where a look-up each time is too slow.
    pub fn under<V: Into<SharedString>>(&self, values: [V; LABELS]) -> HistogramUnder {
        metrics::histogram!(self.metric.name, self.metric.labels(values))
    }
}

/// Declares the metrics of a crate and `ALL`, the list of them. The doc comment is the help text:
///
/// ```
/// letterbox_common::metrics! {
///     /// Letters taken
///     LETTERS: Counter = "letterbox_example_letters_total" [color];
///     /// Time to open a letter
///     OPENING: Seconds = "letterbox_example_opening_seconds" [];
/// }
/// LETTERS.add(["red"], 1);
/// assert_eq!(ALL[0].help.trim(), "Letters taken");
/// ```
#[macro_export]
macro_rules! metrics {
    ($(
        $(#[doc = $help:literal])+
        $name:ident: $kind:ident = $metric:literal [$($label:ident),*];
    )+) => {
        $(
            $(#[doc = $help])+
            pub(crate) const $name: $crate::process::metrics::$kind<
                { <[&str]>::len(&[$(stringify!($label)),*]) },
            > = $crate::process::metrics::$kind {
                metric: $crate::process::metrics::Metric {
                    name: $metric,
                    kind: $crate::process::metrics::MetricKind::$kind,
                    labels: &[$(stringify!($label)),*],
                    help: concat!($($help),+),
                },
            };
        )+
        /// Every metric of this crate.
        pub const ALL: &[$crate::process::metrics::Metric] = &[$($name.metric),+];
    };
}

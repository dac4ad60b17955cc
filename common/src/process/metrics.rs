//! Metrics: a crate declares all of its metrics in its `metrics.rs`, each with its labels and help
//! text, and nothing else in the crate names one.
//!
//! The declarations are also the registry. Buckets and help texts are set from it when a process
//! starts, and a test compares it with the table in `deploy/README.md`.

use std::time::Duration;

use metrics::{Label, SharedString};

/// The kind of a metric, which decides how it is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1; its labels carry the information.
    Info,
    /// A histogram of durations, in seconds.
    Seconds,
    /// A histogram of delays, in seconds: usually short, but days while no worker runs.
    Delays,
    /// A histogram of how many items are handled at once.
    Sizes,
}

impl MetricKind {
    /// The bounds of a histogram's buckets; `None` for other kinds.
    #[must_use]
    pub fn buckets(self) -> Option<&'static [f64]> {
        match self {
            Self::Counter | Self::Gauge | Self::Info => None,
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

    /// Prometheus's name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge | Self::Info => "gauge",
            Self::Seconds | Self::Delays | Self::Sizes => "histogram",
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
        debug_assert_eq!(self.labels.len(), N, "{}", self.name);
        let named = self.labels.iter().zip(values);
        named
            .map(|(name, value)| Label::new(*name, value))
            .collect()
    }
}

/// A counter.
#[derive(Debug, Clone, Copy)]
pub struct Counter(pub Metric);

impl Counter {
    /// Adds to a counter that has no labels.
    pub fn increment(&self, by: u64) {
        self.add::<&str, 0>([], by);
    }

    /// Adds to the counter with these label values.
    pub fn add<V: Into<SharedString>, const N: usize>(&self, values: [V; N], by: u64) {
        self.under(values).increment(by);
    }

    /// The counter with these label values, for hot paths where a look-up each time is too slow.
    pub fn under<V: Into<SharedString>, const N: usize>(&self, values: [V; N]) -> CounterUnder {
        CounterUnder(metrics::counter!(self.0.name, self.0.labels(values)))
    }
}

/// A counter with certain label values.
#[derive(Debug, Clone)]
pub struct CounterUnder(metrics::Counter);

impl CounterUnder {
    /// Adds to the counter.
    pub fn increment(&self, by: u64) {
        self.0.increment(by);
    }
}

/// A gauge.
#[derive(Debug, Clone, Copy)]
pub struct Gauge(pub Metric);

impl Gauge {
    /// Adds to a gauge that has no labels.
    fn add(&self, by: f64) {
        metrics::gauge!(self.0.name).increment(by);
    }

    /// Sets a gauge that has no labels.
    pub fn set(&self, to: f64) {
        self.set_under::<&str, 0>([], to);
    }

    /// Sets the gauge with these label values.
    pub fn set_under<V: Into<SharedString>, const N: usize>(&self, values: [V; N], to: f64) {
        metrics::gauge!(self.0.name, self.0.labels(values)).set(to);
    }

    /// Adds 1 to the gauge until the returned guard is dropped.
    #[must_use]
    pub fn hold(&self) -> OneMore {
        self.add(1.0);
        OneMore(*self)
    }
}

/// A guard that subtracts 1 from its gauge when dropped.
#[derive(Debug)]
pub struct OneMore(Gauge);

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.add(-1.0);
    }
}

/// A metric that is always 1 and carries information in its labels.
#[derive(Debug, Clone, Copy)]
pub struct Info(pub Metric);

impl Info {
    /// Exports these label values.
    pub fn tell<V: Into<SharedString>, const N: usize>(&self, values: [V; N]) {
        metrics::gauge!(self.0.name, self.0.labels(values)).set(1.0);
    }
}

/// A histogram of delays.
#[derive(Debug, Clone, Copy)]
pub struct Delays(pub Metric);

impl Delays {
    /// The histogram with these label values.
    pub fn under<V: Into<SharedString>, const N: usize>(&self, values: [V; N]) -> SecondsUnder {
        SecondsUnder(metrics::histogram!(self.0.name, self.0.labels(values)))
    }
}

/// A histogram of durations.
#[derive(Debug, Clone, Copy)]
pub struct Seconds(pub Metric);

impl Seconds {
    /// Records one duration with these label values.
    pub fn record<V: Into<SharedString>, const N: usize>(&self, values: [V; N], time: Duration) {
        self.under(values).record(time);
    }

    /// The histogram with these label values, for hot paths where a look-up each time is too slow.
    pub fn under<V: Into<SharedString>, const N: usize>(&self, values: [V; N]) -> SecondsUnder {
        SecondsUnder(metrics::histogram!(self.0.name, self.0.labels(values)))
    }
}

/// A histogram of durations or delays with certain label values.
#[derive(Debug, Clone)]
pub struct SecondsUnder(metrics::Histogram);

impl SecondsUnder {
    /// Records one duration.
    pub fn record(&self, time: Duration) {
        self.0.record(time.as_secs_f64());
    }
}

/// A histogram of sizes.
#[derive(Debug, Clone, Copy)]
pub struct Sizes(pub Metric);

impl Sizes {
    /// Records one size with these label values.
    pub fn record<V: Into<SharedString>, const N: usize>(&self, values: [V; N], size: usize) {
        metrics::histogram!(self.0.name, self.0.labels(values)).record(size as f64);
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
            pub(crate) const $name: $crate::process::metrics::$kind =
                $crate::process::metrics::$kind($crate::process::metrics::Metric {
                    name: $metric,
                    kind: $crate::process::metrics::MetricKind::$kind,
                    labels: &[$(stringify!($label)),*],
                    help: concat!($($help),+),
                });
        )+
        /// Every metric of this crate.
        pub const ALL: &[$crate::process::metrics::Metric] = &[$($name.0),+];
    };
}

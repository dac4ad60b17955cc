//! All rounds together: of each figure its values, the median, the lowest and the highest; and the
//! same as a file for programs, which a later run can be compared with.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::{
    figures::{FAILED, Place, Round},
    targets::Judged,
};

/// Values of one kind, at least one, sorted.
#[derive(Debug, Clone, PartialEq)]
pub struct Values(Vec<f64>);

impl Values {
    /// Nothing where there is none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self(values))
    }

    /// The mean of the middle two, where there is no middle one.
    pub fn median(&self) -> f64 {
        let (count, half) = (self.0.len(), self.0.len() / 2);
        if count % 2 == 1 {
            self.0[half]
        } else {
            f64::midpoint(self.0[half - 1], self.0[half])
        }
    }

    pub fn least(&self) -> f64 {
        self.0[0]
    }

    pub fn most(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

/// One figure over all rounds.
pub struct Line {
    pub place: Place,
    /// In the order of the rounds.
    raw: Vec<f64>,
    pub values: Values,
}

/// Every figure, those of one measurement next to each other.
pub struct Summary(pub Vec<Line>);

impl Summary {
    pub fn of(rounds: &[Round], once: &Round) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for (place, _) in rounds.iter().chain([once]).flat_map(Round::figures) {
            if !places.contains(place) {
                let same = |other: &Place| {
                    (other.section, &other.measurement) == (place.section, &place.measurement)
                };
                let behind = places
                    .iter()
                    .rposition(same)
                    .map_or(places.len(), |at| at + 1);
                places.insert(behind, place.clone());
            }
        }
        let lines = places.into_iter().filter_map(|place| {
            let all = rounds.iter().chain([once]);
            let mut raw: Vec<f64> = all.filter_map(|round| round.at(&place)).collect();
            // A round in which nothing failed says nothing.
            if place.figure.starts_with(FAILED) && once.at(&place).is_none() {
                raw.resize(rounds.len(), 0.0);
            }
            let values = Values::of(raw.iter().copied())?;
            Some(Line { place, raw, values })
        });
        Self(lines.collect())
    }

    pub fn json(&self, rounds: usize, seconds: u64, targets: &[Judged]) -> Value {
        let figures = self.0.iter().map(|line| {
            json!({
                "section": line.place.section,
                "measurement": line.place.measurement,
                "figure": line.place.figure,
                "median": line.values.median(),
                "least": line.values.least(),
                "most": line.values.most(),
                "values": line.raw,
            })
        });
        json!({
            "rounds": rounds,
            "seconds": seconds,
            "figures": Value::from_iter(figures),
            "targets": Value::from_iter(targets.iter().map(Judged::json)),
        })
    }
}

/// The medians of a former run.
#[derive(Debug, Clone)]
pub struct Former(HashMap<[String; 3], f64>);

impl Former {
    /// Reads what a former run has written.
    ///
    /// # Errors
    /// When it can't be read, or something else has written it.
    pub fn read(file: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let whole: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let figures = whole["figures"].as_array();
        let figures = figures.ok_or("it is no result of this benchmark")?;
        let medians = figures.iter().filter_map(|figure| {
            let text = |name: &str| figure[name].as_str().map(str::to_owned);
            let place = [text("section")?, text("measurement")?, text("figure")?];
            Some((place, figure["median"].as_f64()?))
        });
        Ok(Self(medians.collect()))
    }

    pub fn median(&self, section: &str, measurement: &str, figure: &str) -> Option<f64> {
        let place = [section, measurement, figure].map(str::to_owned);
        self.0.get(&place).copied()
    }
}

//! The table that people read.

use crate::{
    figures::FAILED,
    summary::{Former, Summary, Values},
    targets::Judged,
};

/// A row as it is shown.
struct Row([String; 6]);

/// As many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..0.001 => "< 0.001".into(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn spread(values: &Values) -> String {
    format!("{} - {}", number(values.least()), number(values.most()))
}

/// Prints every figure, and the targets behind them.
pub fn print(summary: &Summary, targets: &[Judged], former: Option<&Former>) {
    let last = if former.is_some() { "of former" } else { "" };
    let heads = ["", "", "", "median", "min - max", last];
    let mut rows = vec![Row(heads.map(str::to_owned))];
    let (mut section, mut measurement) = ("", "");
    for line in &summary.0 {
        let place = &line.place;
        let is_new_section = section != place.section;
        let is_new = is_new_section || measurement != place.measurement;
        let former = former
            .and_then(|former| former.median(place.section, &place.measurement, &place.figure));
        let of_former = former.map(|former| line.values.median() / former);
        rows.push(Row([
            if is_new_section {
                place.section.to_owned()
            } else {
                String::new()
            },
            if is_new {
                place.measurement.clone()
            } else {
                String::new()
            },
            place.figure.clone(),
            number(line.values.median()),
            spread(&line.values),
            of_former
                .filter(|ratio| ratio.is_finite())
                .map(number)
                .unwrap_or_default(),
        ]));
        (section, measurement) = (place.section, &place.measurement);
    }
    for (index, target) in targets.iter().enumerate() {
        let met = match target.met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let values = target.values.as_ref();
        rows.push(Row([
            if index == 0 {
                "targets".to_owned()
            } else {
                String::new()
            },
            target.name.to_owned(),
            format!("{} {}", target.wanted(), met),
            values
                .map(|values| number(values.median()))
                .unwrap_or_default(),
            values.map(spread).unwrap_or_default(),
            String::new(),
        ]));
    }
    print_rows(&rows);
    let failures = summary
        .0
        .iter()
        .filter(|line| line.place.figure.starts_with(FAILED))
        .count();
    if failures > 0 {
        println!("{failures} figures above count what failed");
    }
}

/// The first three columns stand on the left, the others on the right.
fn print_rows(rows: &[Row]) {
    const LEFT: usize = 3;
    let width = |column: usize| rows.iter().map(|row| row.0[column].chars().count()).max();
    let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or_default());
    for (at, row) in rows.iter().enumerate() {
        if at > 0 && !row.0[0].is_empty() {
            println!();
        }
        let cells = row
            .0
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                if column < LEFT {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

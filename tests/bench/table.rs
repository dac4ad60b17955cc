//! The table that people read.

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    figures::FAILED,
    summary::{Former, Summary, Values},
    targets::Judged,
};

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

fn shown_if(is_shown: bool, text: &str) -> String {
    if is_shown {
        text.to_owned()
    } else {
        String::new()
    }
}

/// Prints every figure, and the targets behind them.
pub fn print(summary: &Summary, targets: &[Judged], former: Option<&Former>) {
    let last = if former.is_some() { "of former" } else { "" };
    let heads = ["", "", "", "median", "min - max", last];
    let mut rows = vec![heads.map(str::to_owned)];
    let (mut section, mut measurement) = ("", "");
    for line in &summary.0 {
        let place = &line.place;
        let is_new_section = section != place.section;
        let is_new = is_new_section || measurement != place.measurement;
        let former = former
            .and_then(|former| former.median(place.section, &place.measurement, &place.figure));
        let of_former = former.map(|former| line.values.median() / former);
        rows.push([
            shown_if(is_new_section, place.section),
            shown_if(is_new, &place.measurement),
            place.figure.clone(),
            number(line.values.median()),
            spread(&line.values),
            of_former
                .filter(|ratio| ratio.is_finite())
                .map(number)
                .unwrap_or_default(),
        ]);
        (section, measurement) = (place.section, &place.measurement);
    }
    for (index, target) in targets.iter().enumerate() {
        let met = match target.met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let values = target.values.as_ref();
        rows.push([
            shown_if(index == 0, "targets"),
            target.name.to_owned(),
            format!("{} {}", target.wanted(), met),
            values.map_or_else(String::new, |values| number(values.median())),
            values.map_or_else(String::new, spread),
            String::new(),
        ]);
    }
    print_rows(rows);
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
fn print_rows(rows: Vec<[String; 6]>) {
    const LEFT: usize = 3;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (at, row) in rows.into_iter().enumerate() {
        if at > 0 && !row[0].is_empty() {
            table.add_row([""]);
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(LEFT) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
        .lines()
        .for_each(|line| println!("{}", line.trim_end()));
}

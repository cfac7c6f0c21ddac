//! rate.svg and latency.svg: answers a second by outcome, and how long each took, with bands where faults lasted.

use super::bands::{self, Band};
use crate::history::{End, History, Operation, operations};
use crate::limits;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (1200, 420);
const BACKGROUND: RGBColor = WHITE;
const OK: RGBColor = RGBColor(70, 150, 110);
const FAILED: RGBColor = RGBColor(150, 150, 150);
const UNKNOWN: RGBColor = RGBColor(230, 130, 40);
const FAULT: RGBColor = RGBColor(200, 80, 80);

/// Each outcome's colour and name.
const OUTCOMES: [(End, RGBColor, &str); 3] =
    [(End::Ok, OK, "answered"), (End::Failed, FAILED, "failed"), (End::Unknown, UNKNOWN, "unknown")];

fn seconds(time: u64) -> f64 {
    time as f64 / 1e9
}

/// When each operation that has an end ended, how long it took, both in seconds, and how it ended. An answer that there is
/// no such key counts as an answer.
fn ended(history: &History) -> Vec<(f64, f64, End)> {
    let all: Vec<Operation> = operations(history).unwrap_or_default();
    all.iter()
        .filter_map(|operation| {
            let (from, to) = (history.time(operation.called), history.time(operation.returned?));
            let end = if operation.absent() { End::Ok } else { operation.end };
            Some((seconds(to), seconds(to.saturating_sub(from)), end))
        })
        .collect()
}

/// What was faster is drawn as this, ms.
const LOWEST_MS: f64 = 0.1;
/// Labels of the upright axis.
const Y_LABELS: usize = 6;
/// A row of faults' names takes this part of the height.
const ROW_PART: f64 = 0.035;

type Failed = Box<dyn std::error::Error>;

/// Answers a second.
///
/// # Errors
/// The file cannot be written.
pub(super) fn rate(path: &Path, history: &History) -> Result<(), String> {
    draw_rate(path, history).map_err(|error| format!("{}: {error}", path.display()))
}

/// How long operations took.
///
/// # Errors
/// The file cannot be written.
pub(super) fn latency(path: &Path, history: &History) -> Result<(), String> {
    draw_latency(path, history).map_err(|error| format!("{}: {error}", path.display()))
}

fn draw_rate(path: &Path, history: &History) -> Result<(), Failed> {
    let (ended, last) = (ended(history), end_of(history));
    let counted = |outcome: End| {
        let mut counts = vec![0_u32; (last as usize).min(limits::DRAWN_SECONDS_MAX) + 1];
        for (at, _, _) in ended.iter().filter(|(_, _, how)| *how == outcome) {
            counts.get_mut(*at as usize).into_iter().for_each(|count| *count += 1);
        }
        counts
    };
    let counts = OUTCOMES.map(|(outcome, _, _)| counted(outcome));
    let most = counts.iter().flatten().copied().max().unwrap_or(0).max(1);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let mut chart =
        prepared(&area, "operations a second", last, 0.0..f64::from(most) * 1.1, &|count| rounded(*count))?;
    shades(&mut chart, history)?;
    for ((_, color, name), counts) in OUTCOMES.into_iter().zip(&counts) {
        let points = counts.iter().enumerate().map(|(at, count)| (at as f64, f64::from(*count)));
        let line = chart.draw_series(LineSeries::new(points, color))?;
        line.label(name).legend(square(color));
    }
    finish(chart)
}

fn draw_latency(path: &Path, history: &History) -> Result<(), Failed> {
    let points = ended(history);
    let longest = points.iter().map(|(_, took, _)| took * 1000.0).fold(10.0, f64::max) * 1.6;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let range = LOWEST_MS.log10()..longest.log10();
    let mut chart = prepared(&area, "until the answer", end_of(history), range, &|power| took(*power))?;
    shades(&mut chart, history)?;
    for (outcome, color, name) in OUTCOMES {
        let of_it = points.iter().filter(|(_, _, how)| *how == outcome);
        let dots = chart.draw_series(of_it.map(|(at, took, _)| {
            Circle::new((*at, (took * 1000.0).max(LOWEST_MS).log10()), 1, color.filled())
        }))?;
        dots.label(name).legend(square(color));
    }
    finish(chart)
}

/// A logarithm (base 10) of milliseconds as a time.
fn took(power: f64) -> String {
    let ms = 10_f64.powf(power);
    if ms >= 1000.0 { format!("{:.0} s", ms / 1000.0) } else { format!("{} ms", rounded(ms)) }
}

/// At most two decimal places, and none that say nothing.
fn rounded(number: f64) -> String {
    ((number * 100.0).round() / 100.0).to_string()
}

/// When the last event happened, seconds; at least one, so that there is something to draw on.
fn end_of(history: &History) -> f64 {
    seconds(bands::end(history)).max(1.0)
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn prepared<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    what: &str,
    end: f64,
    range: std::ops::Range<f64>,
    label: &dyn Fn(&f64) -> String,
) -> Result<Chart<'a, 'b>, Failed> {
    area.fill(&BACKGROUND)?;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, range)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .x_label_formatter(&|second| rounded(*second))
        .y_desc(what)
        .y_labels(Y_LABELS)
        .y_label_formatter(&label)
        .light_line_style(WHITE)
        .draw()?;
    Ok(chart)
}

/// Faults, with their names.
fn shades(chart: &mut Chart<'_, '_>, history: &History) -> Result<(), Failed> {
    let range = chart.y_range();
    let (top, row) = (range.end, (range.end - range.start) * ROW_PART);
    let bands = bands::bands(history);
    let shade = |band: &Band| {
        let corners = [(seconds(band.begin), range.start), (seconds(band.end), top)];
        Rectangle::new(corners, FAULT.mix(0.15).filled())
    };
    let drawn = chart.draw_series(bands.iter().map(shade))?;
    if !bands.is_empty() {
        drawn.label("a fault lasts").legend(square(FAULT.mix(0.15)));
    }
    chart.draw_series(bands.iter().map(|band| {
        let at = (seconds(band.begin), top - row * (band.row as f64 + 0.2));
        Text::new(format!(" {}", band.name), at, ("sans-serif", 11).into_font())
    }))?;
    Ok(())
}

/// A colour in the legend.
fn square<C: Color>(color: C) -> impl Fn((i32, i32)) -> Rectangle<(i32, i32)> {
    move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled())
}

/// The legend, and the file.
fn finish<'a, 'b: 'a>(mut chart: Chart<'a, 'b>) -> Result<(), Failed> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(BACKGROUND.mix(0.8))
        .border_style(FAILED)
        .draw()?;
    chart.plotting_area().present()?;
    Ok(())
}

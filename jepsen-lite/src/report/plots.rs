//! rate.svg and latency.svg: answers a second by outcome, and how long each took, with bands where faults lasted.

use super::timeline::bands;
use crate::history::{End, History, Operation, operations};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (1200, 420);
const BACKGROUND: RGBColor = WHITE;
const OK: RGBColor = RGBColor(70, 150, 110);
const FAILED: RGBColor = RGBColor(150, 150, 150);
const UNKNOWN: RGBColor = RGBColor(230, 130, 40);

fn color(end: End) -> RGBColor {
    match end {
        End::Ok => OK,
        End::Failed => FAILED,
        End::Unknown => UNKNOWN,
    }
}

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

fn end_of(history: &History) -> f64 {
    seconds(history.time(history.events.len().saturating_sub(1))).max(1.0)
}

fn draw_rate(path: &Path, history: &History) -> Result<(), Failed> {
    let end = end_of(history);
    let mut counts: [Vec<u32>; 3] = std::array::from_fn(|_| vec![0; end as usize + 1]);
    for (at, _, how) in ended(history) {
        let row = match how {
            End::Ok => 0,
            End::Failed => 1,
            End::Unknown => 2,
        };
        if let Some(count) = counts[row].get_mut(at as usize) {
            *count += 1;
        }
    }
    let most = counts.iter().flatten().copied().max().unwrap_or(0).max(1);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let top = f64::from(most) * 1.05;
    let mut chart = prepared(&area, "operations a second", end, 0.0..top)?;
    chart.draw_series(bands(history).iter().map(|band| shade(band, 0.0, top)))?;
    for (row, how) in [End::Ok, End::Failed, End::Unknown].into_iter().enumerate() {
        let points = counts[row].iter().enumerate().map(|(at, count)| (at as f64, f64::from(*count)));
        let points: Vec<(f64, f64)> = points.collect();
        chart.draw_series(LineSeries::new(points, color(how)))?;
    }
    area.present()?;
    Ok(())
}

fn draw_latency(path: &Path, history: &History) -> Result<(), Failed> {
    let points = ended(history);
    let longest = points.iter().map(|(_, took, _)| took * 1000.0).fold(10.0, f64::max) * 1.2;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let mut chart =
        prepared(&area, "milliseconds (logarithm, base 10)", end_of(history), -1.0..longest.log10())?;
    chart.draw_series(bands(history).iter().map(|band| shade(band, -1.0, longest.log10())))?;
    chart.draw_series(points.iter().map(|(at, took, how)| {
        Circle::new((*at, (took * 1000.0).max(0.1).log10()), 1, color(*how).filled())
    }))?;
    area.present()?;
    Ok(())
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn prepared<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    what: &str,
    end: f64,
    range: std::ops::Range<f64>,
) -> Result<Chart<'a, 'b>, Failed> {
    area.fill(&BACKGROUND)?;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..end, range)?;
    chart.configure_mesh().x_desc("seconds").y_desc(what).light_line_style(WHITE).draw()?;
    Ok(chart)
}

fn shade(band: &(u64, u64, u64, String), bottom: f64, top: f64) -> Rectangle<(f64, f64)> {
    let (begin, end, _, _) = band;
    Rectangle::new(
        [(seconds(*begin), bottom), (seconds(*end), top)],
        RGBColor(200, 80, 80).mix(0.15).filled(),
    )
}

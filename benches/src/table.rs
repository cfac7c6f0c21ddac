//! Markdown tables on standard output.

use std::time::Duration;

/// Prints a table under a heading.
pub fn print(heading: &str, columns: &[&str], rows: &[Vec<String>]) {
    println!("\n### {heading}\n");
    println!("| {} |", columns.join(" | "));
    println!("|{}", " --- |".repeat(columns.len()));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
}

/// A rate, whole above 100.
pub fn rate(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Milliseconds.
pub fn millis(value: Duration) -> String {
    format!("{:.2} ms", value.as_secs_f64() * 1000.0)
}

/// Seconds.
pub fn seconds(value: Duration) -> String {
    format!("{:.2} s", value.as_secs_f64())
}

/// What is going on, for the person who waits.
pub fn say(what: impl std::fmt::Display) {
    eprintln!("# {what}");
}

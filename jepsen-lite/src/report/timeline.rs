//! timeline.html: a lane a client, its operations as bars, bands where faults lasted, and the window that fails. One file, no
//! script, nothing from elsewhere.

use crate::checker::Findings;
use crate::edn::Value;
use crate::history::{End, Function, History, Operation, operations};
use crate::judge::told;
use std::fmt::Write as _;

/// Operations that are drawn; a browser takes no more.
const DRAWN_MAX: usize = 30_000;
/// One second is so many pixels wide.
const SECOND_PX: f64 = 120.0;
const LANE_PX: usize = 16;
const TOP_PX: usize = 46;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn x(time: u64) -> f64 {
    time as f64 / 1e9 * SECOND_PX
}

/// From a fault's beginning to its end, and to the moment at which all was whole: time and name.
pub(super) fn bands(history: &History) -> Vec<(u64, u64, u64, String)> {
    let last = history.time(history.events.len().saturating_sub(1));
    let fault = |value: &Value| value.get("fault").and_then(Value::text).unwrap_or("fault").to_string();
    history
        .of_nemesis(&Function::FaultBegin)
        .map(|(at, event)| {
            let name = fault(&event.value);
            let shape = event.value.get("shape").and_then(Value::text).unwrap_or_default();
            let end = history
                .of_nemesis(&Function::FaultEnd)
                .find(|(end, other)| *end > at && fault(&other.value) == name)
                .map_or(last, |(end, _)| history.time(end));
            let whole = history.of_nemesis(&Function::Whole).find(|(whole, _)| *whole > at);
            let whole = whole.map_or(last, |(whole, _)| history.time(whole));
            (history.time(at), end, whole.max(end), format!("{name} {shape}"))
        })
        .collect()
}

/// The page.
pub(super) fn page(history: &History, findings: &Findings) -> String {
    let all = operations(history).unwrap_or_default();
    let clients = history
        .of_nemesis(&Function::Group)
        .find_map(|(_, event)| event.value.int_at("clients"))
        .and_then(|count| u64::try_from(count).ok())
        .filter(|count| *count > 0)
        .unwrap_or_else(|| all.iter().map(|operation| operation.process + 1).max().unwrap_or(1).min(64));
    let last = history.time(history.events.len().saturating_sub(1));
    let (width, height) = (x(last) + 40.0, TOP_PX + LANE_PX * usize::try_from(clients).unwrap_or(1) + 20);
    let mut page = String::from(
        "<!doctype html><meta charset=\"utf-8\"><title>jepsen-lite</title><style>body{font:13px sans-serif;margin:1em}\
         .ok{fill:#6a9}.fail{fill:#bbb}.info{fill:#e94}.bad{fill:#d22}.fault{fill:#c55;opacity:.18}\
         .heal{fill:#cc5;opacity:.18}.window{fill:none;stroke:#d22;stroke-width:2}svg text{font-size:11px}\
         td{padding:0 .7em 0 0;vertical-align:top}div{overflow-x:auto}</style>\n",
    );
    summary(&mut page, findings);
    let _ = writeln!(page, "<div><svg width=\"{width:.0}\" height=\"{height}\">");
    for (begin, end, whole, name) in bands(history) {
        for (from, to, class) in [(begin, end, "fault"), (end, whole, "heal")] {
            let (at, wide) = (x(from), (x(to) - x(from)).max(0.5));
            let _ = writeln!(
                page,
                "<rect class=\"{class}\" x=\"{at:.1}\" y=\"0\" width=\"{wide:.1}\" height=\"{height}\"/>"
            );
        }
        let _ = writeln!(page, "<text x=\"{:.1}\" y=\"28\">{}</text>", x(begin) + 2.0, escaped(&name));
    }
    for second in 0..=last / 1_000_000_000 {
        let _ = writeln!(page, "<text x=\"{:.0}\" y=\"12\">{second} s</text>", second as f64 * SECOND_PX);
    }
    let window = findings.judgement.window.as_ref();
    for operation in all.iter().take(DRAWN_MAX) {
        let bad =
            window.is_some_and(|w| w.calls.contains(&operation.called) || operation.returned == Some(w.to));
        bar(&mut page, history, operation, clients, last, bad);
    }
    if let Some(window) = window {
        let (from, to) = (x(history.time(window.from)), x(history.time(window.to)));
        let _ = writeln!(
            page,
            "<rect class=\"window\" x=\"{:.1}\" y=\"34\" width=\"{:.1}\" height=\"{}\"/>",
            from - 2.0,
            to - from + 4.0,
            height - 36
        );
    }
    page.push_str("</svg></div>\n");
    if all.len() > DRAWN_MAX {
        let _ = writeln!(page, "<p>{DRAWN_MAX} of {} operations are drawn.</p>", all.len());
    }
    details(&mut page, history, findings);
    page
}

fn summary(page: &mut String, findings: &Findings) {
    let verdict = findings.judgement.verdict;
    let passes = if findings.pass() { "passes" } else { "does not pass" };
    let _ = writeln!(page, "<h1>{verdict}; the run {passes}</h1><table>");
    for finding in &findings.all {
        let mark = if finding.passes() { "&#10003;" } else { "&#10007;" };
        let why = escaped(&finding.complaints.join("; "));
        let looked = escaped(&finding.looked);
        let _ = writeln!(page, "<tr><td>{mark}<td>{}<td>{looked}<td>{why}", finding.name);
    }
    page.push_str("</table>\n");
}

fn bar(page: &mut String, history: &History, operation: &Operation, clients: u64, last: u64, bad: bool) {
    let from = history.time(operation.called);
    let to = operation.returned.map_or(last, |at| history.time(at));
    let class = match operation.end {
        _ if bad => "bad",
        End::Ok => "ok",
        End::Failed if operation.absent() => "ok",
        End::Failed => "fail",
        End::Unknown => "info",
    };
    let lane = usize::try_from(operation.process % clients).unwrap_or(0);
    let key = operation.key.as_deref().unwrap_or_default();
    let error = operation.error.as_deref().unwrap_or_default();
    let title = format!(
        "{} {} {key} {} -> {} {error}",
        operation.process,
        operation.function.name(),
        operation.asked,
        operation.told
    );
    let _ = writeln!(
        page,
        "<rect class=\"{class}\" x=\"{:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\"><title>{}</title></rect>",
        x(from),
        TOP_PX + lane * LANE_PX,
        (x(to) - x(from)).max(1.0),
        LANE_PX - 3,
        escaped(&title)
    );
}

/// The events of the failing key around the window.
fn details(page: &mut String, history: &History, findings: &Findings) {
    let Some(window) = &findings.judgement.window else { return };
    page.push_str("<h2>What cannot be put in order</h2><table>\n");
    let events = history.events.iter().enumerate().take(window.to + 1).skip(window.from);
    for (at, event) in events.filter(|(_, event)| event.key == window.key) {
        let mark = if window.calls.contains(&at) || at == window.to { "&#9654;" } else { "" };
        let time = history.time(at) as f64 / 1e9;
        let _ = writeln!(page, "<tr><td>{mark}<td>{at}<td>{time:.4} s<td>{}", escaped(&told(event)));
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::parse;

    #[test]
    fn the_window_and_nothing_unescaped_is_shown() {
        let log = "{:process 0, :type :invoke, :f :put, :key \"<a>\", :value \"1\"}\n{:process 0, :type :ok, :f :put, :key \"<a>\", :value \"1\"}\n\
                   {:process 1, :type :invoke, :f :get, :key \"<a>\", :value nil}\n{:process 1, :type :ok, :f :get, :key \"<a>\", :value \"2\"}\n";
        let history = parse(log).expect("is read");
        let findings = crate::checker::look(&history, 1000).expect("is judged");
        let page = page(&history, &findings);
        assert!(page.contains("class=\"window\"") && page.contains("class=\"bad\""), "{page}");
        assert!(page.contains("&lt;a&gt;") && !page.contains("<a>"), "{page}");
    }
}

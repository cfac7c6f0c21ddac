//! timeline.html: a lane a client, its operations as bars, above them faults and how members stood, and the window that
//! fails. One file, no script, nothing from elsewhere.

use super::bands::{self, Band, Standing};
use crate::checker::Findings;
use crate::history::{End, Function, History, Operation, operations};
use crate::judge::told;
use crate::limits;
use std::fmt::Write as _;

/// Operations that are drawn; a browser takes no more.
const DRAWN_MAX: usize = 30_000;
/// One second is so many pixels wide.
const SECOND_PX: f64 = 120.0;
/// How wide the lanes' names are.
const NAME_PX: usize = 76;
const LANE_PX: usize = 16;
/// The line of seconds.
const TOP_PX: usize = 18;

const STYLE: &str = "body{font:13px sans-serif;margin:1em}.ok{fill:#6a9}.fail{fill:#bbb}.info{fill:#e94}.bad{fill:#d22}\
    .fault{fill:#c55;opacity:.18}.heal{fill:#cc5;opacity:.18}.primary{fill:#247}.in-sync{fill:#9be}.behind{fill:#ddd}\
    .window{fill:none;stroke:#d22;stroke-width:2}svg text{font-size:11px}td{padding:0 .7em 0 0;vertical-align:top}\
    .lanes{display:flex}.lanes div{overflow-x:auto}.legend svg{margin:0 .4em 0 1.2em;vertical-align:-2px}";

/// What the colours stand for, by class.
const LEGEND: [(&str, &str); 9] = [
    ("ok", "answered"),
    ("fail", "failed: it did not happen"),
    ("info", "unknown: it may have happened"),
    ("bad", "cannot be put in order"),
    ("fault", "a fault lasts"),
    ("heal", "mended, until all is whole"),
    ("primary", "primary"),
    ("in-sync", "in sync"),
    ("behind", "not in sync"),
];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn x(time: u64) -> f64 {
    time as f64 / 1e9 * SECOND_PX
}

/// Where the lanes are, from the top, pixels.
struct Lanes {
    rows: usize,
    members: usize,
    clients: u64,
}

impl Lanes {
    fn of(history: &History, all: &[Operation], bands: &[Band]) -> Self {
        let group = history.of_nemesis(&Function::Group).next();
        let told = |what| {
            let count = group.and_then(|(_, event)| event.value.int_at(what))?;
            u64::try_from(count).ok().filter(|count| *count > 0)
        };
        let processes = || all.iter().map(|operation| operation.process.saturating_add(1)).max().unwrap_or(1);
        Self {
            rows: bands.iter().map(|band| band.row + 1).max().unwrap_or(0),
            members: told("members").map_or(0, |count| count.min(limits::MEMBERS_MAX as u64) as usize),
            clients: told("clients").unwrap_or_else(processes).min(limits::CLIENTS_MAX as u64),
        }
    }

    fn fault(row: usize) -> usize {
        TOP_PX + row * LANE_PX
    }

    fn member(&self, place: usize) -> usize {
        Self::fault(self.rows) + place * LANE_PX
    }

    fn client(&self, process: u64) -> usize {
        self.member(self.members)
            + LANE_PX / 2
            + usize::try_from(process % self.clients).unwrap_or(0) * LANE_PX
    }

    fn height(&self) -> usize {
        self.client(self.clients - 1) + LANE_PX + 4
    }

    /// The lanes' names: they stay where they are while the rest is moved.
    fn names(&self, page: &mut String) {
        let _ = writeln!(page, "<svg width=\"{NAME_PX}\" height=\"{}\">", self.height());
        let members = (0..self.members).map(|place| (self.member(place), format!("member {place}")));
        let clients = (0..self.clients).map(|client| (self.client(client), format!("client {client}")));
        for (y, name) in members.chain(clients) {
            let _ = writeln!(page, "<text x=\"0\" y=\"{}\">{name}</text>", y + 11);
        }
        page.push_str("</svg>\n");
    }
}

fn rect(page: &mut String, class: &str, (from, to): (u64, u64), (y, height): (usize, usize)) {
    let (at, wide) = (x(from), (x(to) - x(from)).max(0.5));
    let _ = writeln!(
        page,
        "<rect class=\"{class}\" x=\"{at:.1}\" y=\"{y}\" width=\"{wide:.1}\" height=\"{height}\"/>"
    );
}

/// The page.
pub(super) fn page(history: &History, findings: &Findings) -> String {
    let all = operations(history).unwrap_or_default();
    let bands = bands::bands(history);
    let lanes = Lanes::of(history, &all, &bands);
    let last = bands::end(history);
    let (width, height) = (x(last) + 40.0, lanes.height());
    let mut page =
        format!("<!doctype html><meta charset=\"utf-8\"><title>jepsen-lite</title><style>{STYLE}</style>\n");
    summary(&mut page, findings);
    legend(&mut page);
    page.push_str("<div class=\"lanes\">");
    lanes.names(&mut page);
    let _ = writeln!(page, "<div><svg width=\"{width:.0}\" height=\"{height}\">");
    backdrop(&mut page, history, &bands, &lanes);
    for second in (0..=last / 1_000_000_000).take(limits::DRAWN_SECONDS_MAX) {
        let _ = writeln!(page, "<text x=\"{:.0}\" y=\"12\">{second} s</text>", second as f64 * SECOND_PX);
    }
    let window = findings.judgement.window.as_ref();
    for operation in all.iter().take(DRAWN_MAX) {
        let bad =
            window.is_some_and(|w| w.calls.contains(&operation.called) || operation.returned == Some(w.to));
        bar(&mut page, history, operation, lanes.client(operation.process), bad);
    }
    if let Some(window) = window {
        let (from, to) = (x(history.time(window.from)), x(history.time(window.to)));
        let y = lanes.client(0) - 3;
        let _ = writeln!(
            page,
            "<rect class=\"window\" x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\"/>",
            from - 2.0,
            to - from + 4.0,
            height - y
        );
    }
    page.push_str("</svg></div></div>\n");
    if all.len() > DRAWN_MAX {
        let _ = writeln!(page, "<p>{DRAWN_MAX} of {} operations are drawn.</p>", all.len());
    }
    details(&mut page, history, findings);
    page
}

fn legend(page: &mut String) {
    page.push_str("<p class=\"legend\">");
    for (class, meaning) in LEGEND {
        let square = format!(
            "<svg width=\"13\" height=\"13\"><rect class=\"{class}\" width=\"13\" height=\"13\"/></svg>"
        );
        let _ = write!(page, "{square}{meaning}");
    }
    page.push_str("</p>\n");
}

/// Faults, and how members stood.
fn backdrop(page: &mut String, history: &History, bands: &[Band], lanes: &Lanes) {
    for band in bands {
        let whole_height = (0, lanes.height());
        rect(page, "fault", (band.begin, band.end), whole_height);
        rect(page, "heal", (band.end, band.whole), whole_height);
        let (at, y) = (x(band.begin) + 2.0, Lanes::fault(band.row) + 11);
        let _ = writeln!(page, "<text x=\"{at:.1}\" y=\"{y}\">{}</text>", escaped(&band.name));
    }
    for stretch in bands::stretches(history, lanes.members) {
        let class = match stretch.standing {
            Standing::Primary => "primary",
            Standing::InSync => "in-sync",
            Standing::Behind => "behind",
        };
        rect(page, class, (stretch.from, stretch.to), (lanes.member(stretch.member), LANE_PX - 6));
    }
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

fn bar(page: &mut String, history: &History, operation: &Operation, y: usize, bad: bool) {
    let from = history.time(operation.called);
    let to = operation.returned.map_or_else(|| bands::end(history), |at| history.time(at));
    let class = match operation.end {
        _ if bad => "bad",
        End::Ok => "ok",
        End::Failed if operation.absent() => "ok",
        End::Failed => "fail",
        End::Unknown => "info",
    };
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
        "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\"><title>{}</title></rect>",
        x(from),
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

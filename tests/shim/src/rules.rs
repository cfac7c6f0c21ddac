//! The rules: how they are written, and which one holds for a call. Pure.

use std::fmt;
use std::time::Duration;

/// What a rule does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Waits first.
    Delay(Duration),
    /// Takes so long, one call at a time.
    Serve(Duration),
    /// Does nothing and returns this CKR_ number.
    Fail(u64),
    /// Does the work and returns this CKR_ number.
    Lie(u64),
    /// Waits until the rule is gone.
    Hang,
    /// Crashes.
    Abort,
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The function; None for all.
    pub function: Option<String>,
    /// What it does.
    pub what: What,
    /// The first call that it holds for, from 1.
    pub from: u64,
    /// For how many calls; None for ever.
    pub times: Option<u64>,
}

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// Reads a file of rules.
///
/// # Errors
/// The first line that is no rule.
pub fn parse(text: &str) -> Result<Vec<Rule>, BadRule> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| rule(line).map_err(|why| BadRule { line: at + 1, why })).collect()
}

fn rule(line: &str) -> Result<Rule, String> {
    let mut words = line.split_whitespace();
    let function = words.next().unwrap_or_default();
    if function != "*" && !function.starts_with("C_") {
        return Err(format!("'{function}' is no function: write a name like C_Sign, or *"));
    }
    let number = |after: &str, words: &mut std::str::SplitWhitespace<'_>| {
        let word = words.next().unwrap_or_default();
        let read = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        read.map_err(|_| format!("'{after}' wants a number, not '{word}'"))
    };
    let what = match words.next().unwrap_or_default() {
        "delay" => What::Delay(Duration::from_millis(number("delay", &mut words)?)),
        "serve" => What::Serve(Duration::from_millis(number("serve", &mut words)?)),
        "fail" => What::Fail(number("fail", &mut words)?),
        "lie" => What::Lie(number("lie", &mut words)?),
        "hang" => What::Hang,
        "abort" => What::Abort,
        other => return Err(format!("'{other}' is none of delay, serve, fail, lie, hang, abort")),
    };
    let (mut from, mut times) = (1, None);
    while let Some(word) = words.next() {
        match word {
            "from" => from = number("from", &mut words)?,
            "times" => times = Some(number("times", &mut words)?),
            other => return Err(format!("'{other}' is neither from nor times")),
        }
    }
    let function = (function != "*").then(|| function.to_string());
    Ok(Rule { function, what, from, times })
}

/// Rules with the calls that each has counted.
#[derive(Debug, Default)]
pub struct Rules(Vec<(Rule, u64)>);

impl Rules {
    /// Rules that have counted nothing yet.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self(rules.into_iter().map(|rule| (rule, 0)).collect())
    }

    /// Counts a call; the rule that holds for it, if any. A rule that stands behind the one that holds counts it too.
    pub fn count(&mut self, function: &str) -> Option<Rule> {
        let mut decides = None;
        for (rule, calls) in &mut self.0 {
            if rule.function.as_deref().is_some_and(|named| named != function) {
                continue;
            }
            *calls += 1;
            let since = calls.checked_sub(rule.from);
            if since.is_some_and(|since| rule.times.is_none_or(|times| since < times)) && decides.is_none() {
                decides = Some(rule.clone());
            }
        }
        decides
    }

    /// True while the file still has this rule.
    pub fn has(&self, rule: &Rule) -> bool {
        self.0.iter().any(|(held, _)| held == rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        let text = "# a slow device\nC_Sign serve 5\n\n * fail 0x30 from 3 times 2\nC_UnwrapKey lie 48\n\
                    C_Encrypt delay 200\nC_Sign hang\nC_Sign abort";
        let rules = parse(text).expect("is good");
        let whats: Vec<What> = rules.iter().map(|rule| rule.what).collect();
        let millis = Duration::from_millis;
        let expected = [
            What::Serve(millis(5)),
            What::Fail(0x30),
            What::Lie(0x30),
            What::Delay(millis(200)),
            What::Hang,
            What::Abort,
        ];
        assert_eq!(whats, expected);
        assert_eq!((rules[1].function.as_deref(), rules[1].from, rules[1].times), (None, 3, Some(2)));
        assert_eq!((rules[0].function.as_deref(), rules[0].from, rules[0].times), (Some("C_Sign"), 1, None));
    }

    #[test]
    fn what_is_no_rule_is_named_with_its_line() {
        for (text, line, word) in [
            ("Sign hang", 1, "Sign"),
            ("C_Sign hang\nC_Sign sleep 3", 2, "sleep"),
            ("C_Sign fail", 1, "fail"),
            ("C_Sign fail 0xZZ", 1, "0xZZ"),
            ("C_Sign hang until 3", 1, "until"),
            ("C_Sign", 1, "none of"),
        ] {
            let bad = parse(text).expect_err(text);
            assert_eq!(bad.line, line, "{text}");
            assert!(bad.to_string().contains(word), "{bad}");
        }
    }

    #[test]
    fn a_rule_holds_from_one_call_for_some_calls() {
        let mut rules =
            Rules::new(parse("C_Sign fail 1 from 2 times 2\nC_Sign hang\n* abort").expect("is good"));
        let mut what = |function: &str| rules.count(function).map(|rule| rule.what);
        let signs: Vec<Option<What>> = (0..4).map(|_| what("C_Sign")).collect();
        let fail = Some(What::Fail(1));
        assert_eq!(signs, [Some(What::Hang), fail, fail, Some(What::Hang)]);
        assert_eq!(what("C_Login"), Some(What::Abort));
        let mut none = Rules::new(parse("C_Sign hang").expect("is good"));
        assert_eq!(none.count("C_Login"), None);
    }
}

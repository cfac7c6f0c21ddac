//! Reads the project's files the way the house rules look at them: code without comments and texts, and without what
//! only tests see.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The project's folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the project")
}

/// Every file of the project with one of these endings, as paths from its root, sorted.
pub fn files(endings: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    collect(root(), endings, &mut found);
    assert!(!found.is_empty(), "the project's files are not at {}", root().display());
    found.sort();
    found
}

fn collect(folder: &Path, endings: &[&str], found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("lists a folder of the project") {
        let path = entry.expect("reads an entry of a folder").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_string();
        // Only folders that the project has: a target folder or a person's own things are none of its business.
        let foreign = name == "target" || (name.starts_with('.') && name != ".ci" && name != ".cargo");
        if path.is_dir() {
            let nested_target = path.join("CACHEDIR.TAG").exists();
            if !foreign && !nested_target {
                collect(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path.strip_prefix(root()).expect("lies in the project").display().to_string());
        }
    }
}

/// A file's text.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A Rust file as the rules see it.
pub struct Source {
    /// From the project's root.
    pub path: String,
    /// As it stands.
    pub text: Vec<char>,
    /// Without comments and without what stands in quotes; places are as in `text`.
    pub all: Vec<char>,
    /// `all` without what only tests see.
    pub code: Vec<char>,
}

impl Source {
    /// The line of a place in the text, for people.
    pub fn at(&self, place: usize) -> String {
        let line = self.text[..place].iter().filter(|c| **c == '\n').count() + 1;
        format!("{}:{line}", self.path)
    }
}

/// Every Rust file below one of these folders that is no test.
pub fn production(folders: &[&str]) -> Vec<Source> {
    let all: Vec<Source> = rust_files(folders).into_iter().map(read).collect();
    let tests: BTreeSet<String> = all.iter().flat_map(test_modules).collect();
    let is_test = |path: &str| {
        // By its name too: a `#[path]` can put a test module beside another file.
        path.ends_with("/tests.rs")
            || path.contains("/tests/")
            || tests
                .iter()
                .any(|module| path == format!("{module}.rs") || path.starts_with(&format!("{module}/")))
    };
    all.into_iter().filter(|source| !is_test(&source.path)).collect()
}

/// Every Rust file of the project, tests too.
pub fn everything() -> Vec<Source> {
    files(&[".rs"]).into_iter().map(read).collect()
}

fn rust_files(folders: &[&str]) -> Vec<String> {
    let inside = |path: &String| folders.iter().any(|folder| path.starts_with(&format!("{folder}/")));
    files(&[".rs"]).into_iter().filter(inside).collect()
}

fn read(path: String) -> Source {
    let text: Vec<char> = text(&path).chars().collect();
    let all = blank(&text);
    let code = without_tests(&all);
    Source { path, text, all, code }
}

/// Comments, and what stands in quotes, become blanks.
fn blank(text: &[char]) -> Vec<char> {
    let mut out = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        let end = match text[at] {
            '/' if text.get(at + 1) == Some(&'/') => line_end(text, at),
            '/' if text.get(at + 1) == Some(&'*') => comment_end(text, at),
            '"' => string_end(text, at),
            'r' if !follows_name(text, at) && raw_hashes(text, at + 1).is_some() => raw_end(text, at + 1),
            '\'' if text.get(at + 1) == Some(&'\\') => char_end(text, at + 2),
            '\'' if text.get(at + 2) == Some(&'\'') => at + 3,
            _ => {
                at += 1;
                continue;
            }
        };
        for place in &mut out[at..end.min(text.len())] {
            if *place != '\n' {
                *place = ' ';
            }
        }
        at = end;
    }
    out
}

fn line_end(text: &[char], at: usize) -> usize {
    text[at..].iter().position(|c| *c == '\n').map_or(text.len(), |found| at + found)
}

fn comment_end(text: &[char], at: usize) -> usize {
    let (mut depth, mut place) = (0, at);
    while place < text.len() {
        match (text[place], text.get(place + 1)) {
            ('/', Some('*')) => (depth, place) = (depth + 1, place + 2),
            ('*', Some('/')) => (depth, place) = (depth - 1, place + 2),
            _ => place += 1,
        }
        if depth == 0 {
            break;
        }
    }
    place
}

fn string_end(text: &[char], at: usize) -> usize {
    let mut place = at + 1;
    while place < text.len() && text[place] != '"' {
        place += if text[place] == '\\' { 2 } else { 1 };
    }
    place + 1
}

/// How many hashes stand before the quote of a raw string, if one begins here.
fn raw_hashes(text: &[char], at: usize) -> Option<usize> {
    let hashes = text[at.min(text.len())..].iter().take_while(|c| **c == '#').count();
    (text.get(at + hashes) == Some(&'"')).then_some(hashes)
}

fn raw_end(text: &[char], at: usize) -> usize {
    let hashes = raw_hashes(text, at).unwrap_or(0);
    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let start = at + hashes + 1;
    let found = text[start..].windows(close.len()).position(|window| window == close.as_slice());
    found.map_or(text.len(), |found| start + found + close.len())
}

fn char_end(text: &[char], at: usize) -> usize {
    // At the escaped character itself, which may be a quote.
    text[at + 1..].iter().position(|c| *c == '\'').map_or(text.len(), |found| at + found + 2)
}

fn follows_name(text: &[char], at: usize) -> bool {
    // `br"..."` is a raw string too.
    at > 0 && is_name(text[at - 1]) && !(text[at - 1] == 'b' && (at < 2 || !is_name(text[at - 2])))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Places where a word stands as a whole.
pub fn words(code: &[char], word: &str) -> Vec<usize> {
    let name: Vec<char> = word.chars().collect();
    let starts = code.windows(name.len()).enumerate().filter(|(_, window)| *window == name.as_slice());
    let whole = |at: &usize| {
        let before = at.checked_sub(1).and_then(|at| code.get(at));
        let after = code.get(at + name.len());
        let bounded = |c: Option<&char>| c.is_none_or(|c| !is_name(*c));
        (!is_name(name[0]) || bounded(before)) && (!is_name(name[name.len() - 1]) || bounded(after))
    };
    starts.map(|(at, _)| at).filter(whole).collect()
}

/// The name that stands here, if one does.
pub fn name_at(code: &[char], at: usize) -> String {
    code[at.min(code.len())..].iter().take_while(|c| is_name(**c)).collect()
}

const TESTS_ONLY: &str = "#[cfg(test)]";

/// What each test-only mark is about: from the mark to the end of its item, and a module's name if it lies elsewhere.
fn test_items(all: &[char]) -> Vec<(usize, usize, Option<String>)> {
    let mut items = Vec::new();
    for at in words(all, TESTS_ONLY) {
        let Some(stop) = all[at..].iter().position(|c| *c == '{' || *c == ';').map(|found| at + found) else {
            continue;
        };
        if all[stop] == ';' {
            let item: String = all[at..stop].iter().collect();
            let module = item.rsplit_once("mod ").map(|(_, name)| name.trim().to_string());
            items.push((at, stop, module));
            continue;
        }
        let mut depth = 0;
        let close = all[stop..].iter().position(|c| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0
        });
        items.push((at, close.map_or(all.len(), |found| stop + found + 1), None));
    }
    items
}

fn without_tests(all: &[char]) -> Vec<char> {
    let mut code = all.to_vec();
    for (from, to, _) in test_items(all) {
        code[from..to].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
    }
    code
}

/// The modules that only tests see, as paths without their ending.
fn test_modules(source: &Source) -> Vec<String> {
    let path = PathBuf::from(&source.path);
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    let home = if ["mod", "lib", "main"].contains(&stem) { folder.to_path_buf() } else { folder.join(stem) };
    let modules = test_items(&source.all).into_iter().filter_map(|(_, _, module)| module);
    modules.map(|module| home.join(module).display().to_string()).collect()
}

#[test]
fn comments_and_texts_are_no_code() {
    let text = "let a = \"x // unsafe \\\" y\"; // unsafe\nlet b = r#\"unsafe\"#; /* unsafe /* */ */ let c = '\\'';\nfn f<'a>() { '\"'; unsafe {} }";
    let chars: Vec<char> = text.chars().collect();
    let blanked = blank(&chars);
    assert_eq!(blanked.len(), chars.len());
    assert_eq!(words(&blanked, "unsafe").len(), 1);
    assert_eq!(words(&blanked, "let").len(), 3);
}

#[test]
fn test_only_items_are_no_production_code() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { if x {} } }\nfn c() {}\n#[cfg(test)]\nmod far;\nfn d() {}";
    let all = blank(&text.chars().collect::<Vec<_>>());
    let code: String = without_tests(&all).into_iter().collect();
    let kept: Vec<&str> = code.split_whitespace().filter(|w| w.contains("()")).collect();
    assert_eq!(kept, ["a()", "c()", "d()"]);
    assert_eq!(test_items(&all)[1].2.as_deref(), Some("far"));
}

//! What other programs find of the module by name.

use keyraft_tests::clients::module;
use std::process::Command;

fn said(program: &str, word: &str) -> String {
    let out = Command::new(program).arg(word).arg(module()).output();
    let out = out.unwrap_or_else(|error| panic!("{program}: {error}; run 'dev/deps.sh test'"));
    assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Programs that look for C_Sign itself, and not for a list of functions, find it: every function, and nothing else.
#[test]
fn every_function_is_found_by_its_name() {
    let text = said("nm", "-D");
    let defined: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name).collect();
    // 68 functions of PKCS#11 2.40, and 24 more of 3.0.
    let ours = defined.iter().filter(|name| name.starts_with("C_")).count();
    assert_eq!(ours, 68 + 24, "{defined:?}");
    for name in ["C_Sign", "C_WaitForSlotEvent", "C_GetInterface", "C_VerifyMessageNext"] {
        assert!(defined.contains(&name), "{name} is missing");
    }
    assert_eq!(defined.len(), ours, "the module shows more than PKCS#11: {defined:?}");
}

/// Two modules in one process have functions of the same names: the lists of this one must lead to its own.
#[test]
fn no_other_module_takes_the_place_of_its_functions() {
    let relocations = said("readelf", "-rW");
    let foreign: Vec<&str> = relocations.lines().filter(|line| line.contains(" C_")).collect();
    assert!(foreign.is_empty(), "resolved when the module is loaded: {foreign:#?}");
}

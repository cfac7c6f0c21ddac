//! A PKCS#11 application of the tests, one process each.
//!
//! `pkcs11-client MODULE LABEL PIN MODE`: "steps" and a number of seconds use the cryptoki crate, "talk" calls the
//! module's functions as lines on standard input say, "corners" tries what PKCS#11 wants of a module at its edges.

mod corners;
mod load;
mod policy;
mod raw;
mod steps;
mod talk;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, label, pin, mode] = arguments.as_slice() else {
        eprintln!("usage: pkcs11-client MODULE LABEL PIN steps|SECONDS|talk|corners");
        return ExitCode::from(2);
    };
    let outcome = match (mode.as_str(), mode.parse()) {
        ("steps", _) => steps::steps(module, label, pin),
        ("corners", _) => corners::corners(module, label, pin),
        ("talk", _) => talk::talk(module, label, pin),
        (_, Ok(seconds)) => steps::rounds(module, label, pin, seconds),
        _ => Err(format!("no mode is called '{mode}'")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

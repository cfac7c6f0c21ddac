//! A PKCS#11 module that hands every call on to a real one, and plays a sick token on the way: slow, failing, lying,
//! hanging, crashing. Tests and benches put it between a member and its token; it is no part of a member.
//!
//! What it needs from its environment:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `KEYRAFT_SHIM_MODULE` | the real module; Debian's SoftHSM if left out |
//! | `KEYRAFT_SHIM_RULES` | the file of rules; none if left out, and no file is no rules |
//! | `KEYRAFT_SHIM_PIN` | plays a token with a protected authentication path, which knows this PIN itself |
//!
//! The file of rules holds one rule a line; empty lines and lines that begin with `#` say nothing:
//!
//! ```text
//! FUNCTION WHAT [from N] [times M]
//! ```
//!
//! `FUNCTION` is a name such as `C_Sign`, or `*` for every function. `WHAT` is one of
//!
//! | what | the call |
//! | --- | --- |
//! | `delay MS` | waits, then does its work; calls wait side by side |
//! | `serve MS` | takes so long from begin to end, one call at a time over all functions with such a rule: a slow device |
//! | `fail CKR` | does nothing and returns this number (decimal, or hexadecimal with 0x) |
//! | `lie CKR` | does its work, then returns this number all the same |
//! | `hang` | waits until its rule is gone from the file, then does its work |
//! | `abort` | ends the process as a crash in the library would |
//!
//! A rule holds from its `N`th call (the first if left out) for `M` calls (for ever if left out), counted by this
//! process since the file last changed; the first rule that holds for a call decides. The file is looked at again by
//! each call: replace it by renaming another one over it, so that it is never seen half-written. A file that cannot be
//! understood makes every call fail with `CKR_GENERAL_ERROR`, and is complained of on standard error.
//!
//! With a protected authentication path the token's info bears `CKF_PROTECTED_AUTHENTICATION_PATH`; C_Login of the
//! user with no PIN logs in, and with a PIN is refused by `CKR_PIN_INCORRECT`.

mod faults;
mod ffi;
pub mod rules;

//! The same cases on the embedded token and on SoftHSM, and between the two. A PKCS#11 library's state belongs to its
//! process, so each case runs in a process of its own: this program again, with an environment of its own.

mod bench;
mod by_value;
mod faults;
mod keys;
mod smk;
mod speed;
mod uses;

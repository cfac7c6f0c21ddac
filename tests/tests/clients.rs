//! Programs that people have, unchanged, over the module of a group: see tests/src/clients.rs for how they are judged.

#[path = "clients/corners.rs"]
mod corners;
#[path = "clients/direct.rs"]
mod direct;
#[path = "clients/exports.rs"]
mod exports;
#[path = "clients/faults.rs"]
mod faults;
#[path = "clients/gnutls.rs"]
mod gnutls;
#[path = "clients/java.rs"]
mod java;
#[path = "clients/nss.rs"]
mod nss;
#[path = "clients/openssl.rs"]
mod openssl;
#[path = "clients/pkcs11_tool.rs"]
mod pkcs11_tool;
#[path = "clients/python.rs"]
mod python;
#[path = "clients/rust.rs"]
mod rust;
#[path = "clients/ssh.rs"]
mod ssh;

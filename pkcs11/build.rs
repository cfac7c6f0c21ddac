//! Link arguments of the module.

fn main() {
    // Applications that unload the module (dlclose) and load it again must find their threads' state where it was.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its functions bear the names that every PKCS#11 module's do: another one in the same process must not take their
    // places in this one's lists.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}

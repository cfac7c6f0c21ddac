//! Link arguments of the module.

fn main() {
    // Applications that unload the module (dlclose) and load it again must find their threads' state where it was.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}

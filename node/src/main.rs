//! The `keyraft` binary.

fn main() -> std::process::ExitCode {
    keyraft_node::run::main()
}

#!/usr/bin/env bash
# Installs what building and testing need, where it may (root on Debian or Ubuntu); else prints the line that does.
# Arguments: the groups of packages wanted: build, test, bench.
set -euo pipefail

if ! command -v cargo >/dev/null 2>&1; then
    echo "cargo is missing. Install Rust 1.95 or later from https://rustup.rs and run this again." >&2
    exit 1
fi

wanted=()
need() { # package, path or command that shows it is there
    if [[ "$2" == /* ]]; then compgen -G "$2" >/dev/null || wanted+=("$1")
    else command -v "$2" >/dev/null 2>&1 || wanted+=("$1"); fi
}

for group in "${@:-build}"; do
    case "$group" in
        build)
            need gcc gcc
            need make make
            need perl perl
            need libclang-dev '/usr/lib/llvm-*/lib/libclang*.so*'
            ;;
        test)
            need softhsm2 softhsm2-util
            need opensc pkcs11-tool
            need e2fsprogs mkfs.ext4
            ;;
        bench) need etcd-server etcd ;;
        *) echo "unknown group of packages: $group" >&2; exit 2 ;;
    esac
done

[[ ${#wanted[@]} -eq 0 ]] && exit 0
if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null 2>&1; then
    echo "installing ${wanted[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends "${wanted[@]}" >&2
else
    echo "These packages are missing: ${wanted[*]}. Install them with:" >&2
    echo "  sudo apt-get install ${wanted[*]}" >&2
    exit 1
fi

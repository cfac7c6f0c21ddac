#!/usr/bin/env bash
# Installs what building and testing need, where it may (root on Debian or Ubuntu); else prints the line that does.
# Arguments: the groups of packages wanted: build, test, bench.
set -euo pipefail

if ! command -v cargo >/dev/null 2>&1; then
    echo "cargo is missing. Install Rust 1.95 or later from https://rustup.rs and run this again." >&2
    exit 1
fi

wanted=()
python=no
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
            need iproute2 ip
            need nftables nft
            # Programs that load a PKCS#11 module, as the tests drive them.
            need gnutls-bin p11tool
            need openssl openssl
            need libengine-pkcs11-openssl '/usr/lib/*/engines-3/pkcs11.so'
            need openssh-client ssh-agent
            need libnss3-tools certutil
            need openjdk-17-jdk-headless javac
            need python3-venv '/usr/lib/python3*/ensurepip/__init__.py'
            python=yes
            ;;
        bench)
            need etcd-server etcd
            need softhsm2 softhsm2-util
            need p11-kit p11-kit
            ;;
        *) echo "unknown group of packages: $group" >&2; exit 2 ;;
    esac
done

install() {
    [[ ${#wanted[@]} -eq 0 ]] && return
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
}

# python-pkcs11, in a folder of its own beside what cargo builds. It is the system's Python that apt has made whole.
python_packages() {
    local tools="${CARGO_TARGET_DIR:-target}/tools/python"
    "$tools/bin/python" -c "import pkcs11" >/dev/null 2>&1 && return
    echo "installing python-pkcs11 into $tools" >&2
    /usr/bin/python3 -m venv --clear "$tools" >&2
    "$tools/bin/pip" install --quiet --disable-pip-version-check --require-virtualenv \
        python-pkcs11==0.10.1 asn1crypto==1.5.1 >&2
}

install
[[ "$python" == yes ]] && python_packages
exit 0

# The two commands of a newcomer are `make demo` and `make test`. Each installs what it needs where it may.

CARGO_DENY_VERSION := 0.20.2
TARGET := $(or $(CARGO_TARGET_DIR),target)
# cargo-deny is built once, into the target folder; unoptimised it checks in three seconds, and is built in a fifth of the time.
DENY := $(TARGET)/tools/bin/cargo-deny
# The program and the module as they are built for use.
SHIPPED := $(TARGET)/shipped

.PHONY: help demo test lint doc deny soak bench fix build deps-build deps-test deps-bench

help:
	@echo "make demo    form a group of three, lose its primary, take it back (embedded tokens)"
	@echo "make test    format, lints, every test, docs, licences and sources"
	@echo "make soak    the long sets: 500 kills, 500 power cuts, faults of 30 s twice round, 32 members, 20,000 simulated seeds, fuzzing (hours)"
	@echo "make bench   the figures of docs/BENCHMARKS.md"
	@echo "make fix     format and apply what clippy can mend by itself"

deps-build:
	@dev/deps.sh build
deps-test:
	@dev/deps.sh build test
deps-bench:
	@dev/deps.sh build bench

build: deps-build
	cargo build --package keyraft-node --bin keyraft
	cargo build --package keyraft-pkcs11

demo: build
	$(TARGET)/debug/keyraft demo

test: deps-test lint doc deny
	cargo build --package keyraft-node --bin keyraft
	cargo build --package keyraft-pkcs11 --package keyraft-shim
# Tests build both again, with hooks of their own.
	mkdir -p $(SHIPPED) && cp $(TARGET)/debug/keyraft $(TARGET)/debug/libkeyraft_pkcs11.so $(SHIPPED)
	cargo test --workspace
	$(TARGET)/debug/jepsen-lite run --rung outside --nemesis kill,pause --time 20 --out $(TARGET)/outside \
		--keyraft $(SHIPPED)/keyraft --module $(SHIPPED)/libkeyraft_pkcs11.so

lint: deps-test
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

doc: deps-test
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

deny: $(DENY)
	$(DENY) check bans licenses sources

$(DENY):
	cargo install --debug --locked --quiet cargo-deny --version $(CARGO_DENY_VERSION) --root $(TARGET)/tools

soak: deps-test
	cargo build --package keyraft-node --bin keyraft
	cargo build --package keyraft-pkcs11 --package keyraft-shim
	KEYRAFT_FUZZ_SECONDS=600 cargo test --package keyraft-tests --test fuzz -- --nocapture
	KEYRAFT_CRASH_ROUNDS=500 cargo test --package keyraft-storage --test crash -- --nocapture
	KEYRAFT_CRASH_RUNS=500 KEYRAFT_FAULT_SECONDS=30 KEYRAFT_FAULT_ROUNDS=2 cargo test --package keyraft-tests --test group -- --nocapture
	cargo run --release --package keyraft-jepsen-lite -- run --rung sim --nemesis all --time 10 --seed 1..10000 --out $(TARGET)/soak-serve
	cargo run --release --package keyraft-jepsen-lite -- run --rung sim --nemesis all --time 10 --mode fence --seed 10001..20000 \
		--out $(TARGET)/soak-fence
	KEYRAFT_MEMBERS=32 cargo test --package keyraft-tests --test engine of_nine_members -- --nocapture

bench: deps-bench
	cargo build --release --package keyraft-node --bin keyraft
	cargo build --release --package keyraft-pkcs11 --package keyraft-shim
	cargo run --release --package keyraft-benches

fix:
	cargo fmt --all
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

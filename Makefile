# Every target makes its own environment: there is nothing to install first.
#
#   make run ARGS="--port 8001"      ARGS go to the command that the target runs
#   make test ARGS="-k duplicate"
#   make test WORKERS=1          one test at a time; 0 runs them in this process, for a debugger
#   make run PYTHON=python3.12       another Python, 3.11 or newer

PYTHON ?=
export PYTHON

# Most of a test's time is waiting for another process, so there are more workers than cores.
WORKERS ?= 5
PYTEST = .venv/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast check wheel audit sbom contracts mutants dev-chain-page watching slither bench bench-compare campaign-nodes campaign-index campaign-freezes campaign-delays campaign-postgres soak wordpress cluster lock clean

help: ## Show this
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: ## Make .venv from requirements.lock, nothing else
	@scripts/environment

run: setup ## Start everything on this machine, with a demo brand
	@exec .venv/bin/ltzd dev $(ARGS)

# Both run every part whatever the earlier ones say, so that one run shows every failure. The packages of
# tests/clients come while tests run: the few tests that drive them wait for them. The tests are compiled
# once, beside the contracts' tests, instead of by every worker.

COMPILE_TESTS = PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest --collect-only --quiet -n 0

test: setup ## Run the whole test suite: the contracts', then ltzd's
	@status=0; $(COMPILE_TESTS) >/dev/null 2>&1 & compiling=$$!; \
	scripts/with-node npm test --silent || status=1; \
	scripts/test-tools; \
	wait $$compiling; \
	scripts/with-node --in tests/clients true & \
	$(PYTEST) $(ARGS) || status=1; \
	wait; exit $$status

test-fast: setup ## Run the tests of rules, store and surfaces, without chains, in a minute
	@$(PYTEST) tests/rules tests/store tests/surfaces tests/concurrency $(ARGS)

SLITHER = scripts/with-environment slither scripts/with-node npm run slither --silent

CHECKS = \
	"ruff format --check --quiet --output-format concise ltzd tests benchmarks" \
	"ruff check --quiet ltzd tests benchmarks" \
	"mypy" \
	"lint-imports" \
	"scripts/with-node npm run verify --silent" \
	"$(SLITHER)" \
	"scripts/with-environment deploy scripts/audit" \
	"scripts/with-environment deploy scripts/sbom" \
	"python -m pytest --quiet tests/dev/test_house.py tests/dev/test_vocabulary.py"

check: setup ## Check format, lint, types, import rules, compiled contracts, slither, audit, bills of materials, house rules, vocabulary
	@status=0; export PATH="$(CURDIR)/.venv/bin:$$PATH"; \
	for each in $(CHECKS); do echo "-- $$each"; $$each || { status=1; echo "-- FAILED: $$each"; }; done; \
	exit $$status

MINUTES ?= 10

campaign-nodes: setup ## Try every fault of nodes, then random ones for MINUTES=10; SEED=… repeats a run
	@LTZD_CAMPAIGN_MINUTES=$(MINUTES) LTZD_TEST_SEED=$(SEED) .venv/bin/python -m pytest -n 0 -rA \
		tests/faults/nodes/test_untrusted_nodes.py tests/faults/nodes/test_nodes_over_time.py $(ARGS)

campaign-index: setup ## Compare the index with a model of the chain: thousands of histories, 10^6 transfers, every death
	@LTZD_CAMPAIGN_INDEX=1 .venv/bin/python -m pytest -n 0 -rA tests/indexer/model $(ARGS)

# A frozen test costs no CPU time, so there are many workers.
FREEZABLE = $(addprefix tests/, providers chain actions deliveries cache concurrency daemon indexer operator store \
	surfaces dev/sandbox dev/tester_chain)

campaign-freezes: setup ## Freeze each test once for 1.2 s, as busy build machines do; SEED=… freezes at other moments
	@SEED=$(or $(SEED),1) .venv/bin/python -m pytest -p tests.support.freezes -n 12 $(FREEZABLE) $(ARGS)

campaign-delays: setup ## Hold tasks back at random moments, as busy build machines do; SEED=… holds back others
	@SEED=$(or $(SEED),1) .venv/bin/python -m pytest -p tests.support.delays -n 12 $(FREEZABLE) $(ARGS)

ON_A_DATABASE = $(addprefix tests/, store actions surfaces indexer operator deliveries cli)

campaign-postgres: setup ## Run tests on this machine's PostgreSQL, in Turkish: POSTGRES_BIN=/usr/lib/postgresql/15/bin
	@scripts/test-tools postgres
	@.venv/bin/python -m pytest -p tests.support.older_postgres -n $(WORKERS) --dist loadfile $(ON_A_DATABASE) $(ARGS)

soak: setup ## Traffic on all surfaces through a seeded schedule of faults: SECONDS=600 SEED=… CHAIN=anvil
	@LTZD_SOAK_SECONDS=$(or $(SECONDS),600) LTZD_TEST_SEED=$(SEED) LTZD_SOAK_CHAIN=$(or $(CHAIN),anvil) \
		.venv/bin/python -m pytest -n 0 -rA -s tests/faults/test_soak.py $(ARGS)

wordpress: setup ## Connect a real WordPress in each shape and spend points there, in Chromium; Debian's packages
	@scripts/test-tools browser wordpress
	@LTZD_WORDPRESS=full .venv/bin/python -m pytest -n 0 -rA tests/wordpress $(ARGS)

cluster: setup ## Kill, freeze, promote and restart every part of a whole cluster under load; nginx, PgBouncer from Debian
	@scripts/test-tools nginx pgbouncer redis
	@LTZD_CLUSTER=full .venv/bin/python -m pytest -n 0 -rA tests/faults/cluster $(ARGS)

watching: setup ## Write docs/metrics.md, the pages of alerts and log lines, and Grafana's dashboards anew
	@.venv/bin/python -m tests.support.watching

contracts: ## Compile the contracts into ltzd/chain/compiled
	@scripts/with-node npm run build --silent

mutants: ## Break the contracts on purpose; tests must notice (20 minutes); ARGS=LTZ.sol for one source
	@scripts/with-node npm run mutants --silent -- $(ARGS)

dev-chain-page: setup ## Ask both dev chains for the generated part of docs/dev-chain.md
	@.venv/bin/python -m tests.support.clients.method_page

wheel: setup ## Build the wheel of the last commit, with its lock, into dist/
	@scripts/wheel

audit: setup ## Ask the advisory databases of PyPI and npm about every locked package
	@scripts/with-environment deploy scripts/audit

sbom: setup ## Write bills of materials (CycloneDX) of the lock files into dist/
	@scripts/with-environment deploy scripts/sbom

slither: ## Compare what slither finds in the contracts with contracts/slither.md
	@$(SLITHER)

bench: setup ## Run all benchmarks; `make bench-NAME` runs one
	@scripts/with-node true
	@.venv/bin/python -m benchmarks $(ARGS)

bench-compare: setup ## Tell which ratios changed between two commits: A=… B=… NAMES="intake relays" ROUNDS=3
	@scripts/with-node true
	@.venv/bin/python -m benchmarks.harness.compare $(A) $(B) $(NAMES) --rounds $(or $(ROUNDS),3)

profile-%: setup ## Run a benchmark's first round under py-spy, such as `make profile-intake`; writes profile-NAME.svg
	@scripts/with-node true
	@scripts/with-environment peers py-spy record --subprocesses --output profile-$*.svg -- \
		.venv/bin/python -m benchmarks $* --rounds 1 $(ARGS)

bench-%: setup
	@scripts/with-node true
	@.venv/bin/python -m benchmarks $* $(ARGS)

lock: setup ## Make the lock files anew; ARGS=--upgrade takes newer versions
	@scripts/lock $(ARGS)

clean: ## Delete what the targets made; the dev instance's data in .ltzd stays
	rm -rf .venv .tools contracts/node_modules contracts/out contracts/cache tests/clients/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist

# Everything here needs only Go, and Python 3.10 or newer where it says so. `make help` lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
PYTHON   ?= python3
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.1.0-dev)
COMMIT   ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
BIN      := bin/recipe
CACHE    := $(CURDIR)/.cache
PKGS     ?= ./...
# Packages of test-go; those that run the real atroposlib and other environments have targets of their own.
TESTED   ?= $$($(GO) list $(PKGS) | grep -vE '/plugins/(atropos|gymnasium|openenv|ors|reasoning_gym|reward|textarena|trajectories/conformance|verifiers)$$')
# One test binary a core; the race detector makes each several times slower than a plain one.
PARALLEL ?= 2
# Longer than the longest package takes on a busy machine: cmd/recipe, whose tests start whole runs.
TIMEOUT  ?= 30m

VERSION_PKG := github.com/recipe-rl/recipe/cmd/recipe/build/linked
LDFLAGS  := -s -w -X $(VERSION_PKG).version=$(VERSION) -X $(VERSION_PKG).commit=$(COMMIT)
GOBUILD  := $(GO) build -ldflags '$(LDFLAGS)'
# Every target compiles as recipe is built, or the compiler would see some thousand packages once more for each way.
# Neither programs nor test binaries keep what a debugger reads; the compiler takes 7 % less time without, 15 % with the race detector.
COMPILED := -trimpath -gcflags=all=-dwarf=false
export CGO_ENABLED := 0
export GOFLAGS     := $(strip $(filter-out $(COMPILED),$(shell $(GO) env GOFLAGS)) $(COMPILED))
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
RUFF_VERSION := 0.17.5
# Prints what go test prints, and after it every skipped test with its reason and a line that counts them. With FLAKY, a
# folder, at most ten failed tests are run once more, each by itself: a defect fails again, and a test that passes is
# written there as flaky. A data race or a panic is never run again.
GOTESTSUM := $(GO) run gotest.tools/gotestsum@v1.13.0 --format standard-quiet
# With TIMINGS, a folder, what each test took is written there as JSON.
RERUN     = $(if $(TIMINGS),--jsonfile="$$(mktemp "$(TIMINGS)/XXXXXX")") $(if $(FLAKY),--rerun-fails=1 --rerun-fails-max-failures=10 --rerun-fails-abort-on-data-race --rerun-fails-report="$$(mktemp "$(FLAKY)/XXXXXX")")

.PHONY: help demo build check test ui test-ui test-python-parts test-venv test-go test-race test-atropos test-environments test-python test-trl test-trl-short test-trl-oldest test-axolotl test-atropos-own test-unseen test-agents test-harbor e2e-trl lint lint-go lint-python lint-files lint-structure fmt bench bench-gpu docs generate e2e e2e-all e2e-sglang e2e-sglang-oldest e2e-pairs e2e-external e2e-learning cross cross-check dist test-dist clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

demo: build ## train a small language model on this machine, in about a minute, with no GPU and no Python
	$(BIN) apply --auto-approve recipes/quickstart.hcl

build: ## build the one static binary, bin/recipe
	@mkdir -p bin
	$(GOBUILD) -o $(BIN) ./cmd/recipe

test: test-venv ## run every test (race detector on where goroutines are tested); a part that fails does not keep the others from running
	@failed=0; $(MAKE) --no-print-directory test-go || failed=1; \
	$(MAKE) --no-print-directory --keep-going $(SIDE_BY_SIDE) test-python-parts || failed=1; exit $$failed

# Each of these keeps one core busy, so two run at a time, where make can keep their output apart (GNU make 4).
SIDE_BY_SIDE := $(if $(filter output-sync,$(.FEATURES)),-j2 -Otarget)
test-python-parts: test-atropos test-python test-environments test-trl-short test-trackers site

# Go tests of Python workers need it too, so it is made before any of them.
test-venv:
	scripts/test-python.sh --prepare

# The race detector needs a C compiler; on a machine without one the tests run without it and say so. It lets each
# program wait for a second before it ends, for races at the end; tests start some thousand programs. It makes tests
# several times slower, and a test binary takes seconds to link, so it is there for packages whose goroutines, or
# those of their tests, share state (scripts/concurrent.sh); `make test-race` has it for all. Vet's checks are among
# those of lint, which looks at tests, too.
RACED    ?= $$(scripts/concurrent.sh | grep -xF "$$named")
test-go: export GORACE := atexit_sleep_ms=20
test-go: export PLUGINTEST_DEADLINE ?= 5m
test-go:
	@failed=0; named=$$($(GO) list $(TESTED)); raced=$(RACED) || [ $$? -eq 1 ]; \
	if [ -n "$$raced" ] && ! command -v cc >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1; then \
	  echo 'no C compiler: testing without the race detector'; raced=; \
	fi; \
	unraced=$$(grep -vxF "$$raced" <<<"$$named" || true); \
	if [ -n "$$raced" ]; then \
	  $(subst run,run -exec 'env CGO_ENABLED=1',$(GOTESTSUM)) $(RERUN) --packages="$${raced//$$'\n'/ }" -- -race -vet=off -p $(PARALLEL) -timeout $(TIMEOUT) || failed=1; \
	fi; \
	if [ -n "$$unraced" ]; then \
	  $(GOTESTSUM) $(RERUN) --packages="$${unraced//$$'\n'/ }" -- -vet=off -p $(PARALLEL) -timeout $(TIMEOUT) || failed=1; \
	fi; $(GO) test -C plugins/nomad -vet=off ./... || failed=1; exit $$failed

# Inputs that once failed, each with its test; make test runs all of them, too.
test-regressions: ## run the inputs that once failed: language, plans, clusters, operators, environments (five minutes)
	$(GO) test -vet=off ./cmd/recipe -run '^TestScripts$$/^(language|newaddress|rewards|slurm|checkpoint|again|twofiles|renamed|hung|dead|detach|killed|stop|completion|service|trust|copied|mcp|files)$$'
	$(GO) test -vet=off ./cmd/recipe -run '^(TestSeveral|TestTheExamplesOfCIRun|TestAHostilePullRequest|TestAnAgentAppliesWhatAPersonApproves|TestAPersonSees|TestToolsThatOnlyReadRunNothing|TestAnEditorRunsNothing|TestShellsComplete|TestLostCopies|TestABadLine|TestOutputsFitTheirSchemas|TestARunOfAnotherUser)'
	$(GO) test -vet=off ./plugins/slurm ./engine/plan ./engine/state ./engine/event ./schema/lsp
	$(GO) test -vet=off ./engine/run ./engine/host ./engine/remote ./engine/tracking -run '^(TestFilesOfALiveRun|TestEventNumbers|TestATrainerWithoutIts|TestASuspendedBlock|TestAStopNames|TestARemovedProgram|TestAJobThatIsOmitted|TestAGivenUpJob|TestATrackerOutlives)'
	$(GO) test -vet=off ./schema -run '^(TestArguments|TestAHeredocWith|TestOneOutputBehindAKey|TestMoved|TestMarks|TestSensitiveText|TestVerbOf|TestTextOfNoType|TestAttributesThatAConversion|TestASecret|TestNoPart|TestColumns|TestNamesOf|TestModelFolders|TestRowsThat|TestDataThat)'
	$(GO) test -vet=off ./cmd/recipe -run '^(TestDryRun|TestTurnsWith|TestTinyReads|TestEvaluate|TestAnswersAre|TestAnEvaluation|TestMetricsOf|TestReported)'
	$(PATIENT) $(GO) test -vet=off ./plugins/reward ./plugins/trajectories/group ./sdk/environment ./sdk/kit/envserver ./internal/weightserver
	scripts/test-python.sh -k 'scores_come_from_other or score_that_takes_too_long or truncation_goes_by or other_masks_are or not_taken_are'

test-race: ## run all Go tests with the race detector, those of the whole program too (an hour; weekly)
	@$(MAKE) --no-print-directory test-go TIMEOUT=60m TESTED=./... RACED='$$$$named'

# What a test waits for there may import for half a minute, several times that beside other work.
PATIENT := PLUGINTEST_DEADLINE=5m

# Real atroposlib environments and its run-api, by themselves: each imports for seconds, which beside other tests become minutes.
test-atropos:
	scripts/venv.sh atropos
	@$(PATIENT) $(MAKE) --no-print-directory test-go TIMEOUT=30m TESTED='./plugins/atropos ./plugins/reasoning_gym ./plugins/reward ./plugins/trajectories/conformance'

# Real servers of OpenEnv and ORS, verifiers, Gymnasium and TextArena: some import for half a minute.
test-environments:
	scripts/venv.sh openenv
	scripts/venv.sh ors
	scripts/venv.sh verifiers
	scripts/venv.sh games
	@$(PATIENT) $(MAKE) --no-print-directory test-go TIMEOUT=30m TESTED='./plugins/gymnasium ./plugins/openenv ./plugins/ors ./plugins/textarena ./plugins/verifiers'

test-python:
	scripts/venv.sh kernels
	RECIPE_TRITON=$$(echo $(CURDIR)/.cache/venv-kernels/lib/python3*/site-packages) scripts/test-python.sh

# Real TRL: 0.3 GB beside the PyTorch that environments share, a minute on two idle cores.
test-trl-short:
	scripts/test-trl.sh trl -m short

test-trl: ## every test of trainer "trl" with real TRL, the newest that is supported (CPU)
	scripts/test-trl.sh trl

test-trl-oldest: ## the same with the oldest
	scripts/test-trl.sh trl-oldest

test-axolotl: ## every test of trainer "axolotl" with real Axolotl (CPU)
	scripts/test-axolotl.sh

test-atropos-own: ## run environments of Atropos itself, from its source distribution on PyPI
	scripts/test-atropos-own.sh

test-agents: ## run agents of others, from PyPI and npm, as environments: a download of 1.3 GB, then two minutes
	scripts/test-agents.sh

test-harbor: ## compare rewards of task folders with those of Harbor's own package, from PyPI
	scripts/test-harbor.sh

test-unseen: build ## train on public environments and reward libraries from PyPI, and write docs/environments/packages.md (half an hour)
	$(PYTHON) scripts/unseen/run.py --recipe $(BIN)

check: ## check a change in about a minute: format, vet, fast tests of the packages that it touches and of those that import them
	@scripts/check.sh

lint: lint-go lint-python lint-files lint-structure ## gofmt, go vet, golangci-lint; ruff for Python; no built program in the repository; imports one way

# Programs that hold the types of some thousand packages until they end: collecting garbage less often takes a quarter
# less time, and half as much memory again (2.5 GB).
SPARING := GOGC=300

# It reads the workflows as GitHub would.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

lint-files: # what was built by hand (go build in a package's folder) lies beside its source and is easily committed
	@bad=$$(git ls-files -s | grep '^100755' | cut -f2- | while read -r f; do \
	  [ "$$(head -c 4 "$$f" | od -An -tx1 | tr -d ' ')" != 7f454c46 ] || echo "$$f"; done); \
	if [ -n "$$bad" ]; then echo "built programs are tracked (run git rm --cached):"; echo "$$bad"; exit 1; fi
	@bad=$$(git ls-files -z | xargs -0 -r stat -c '%s %n' 2>/dev/null | awk '$$1 > 2097152 {print $$2, $$1}'); \
	if [ -n "$$bad" ]; then echo "files of more than 2 MiB are tracked (run git rm --cached):"; echo "$$bad"; exit 1; fi
	$(GO) run $(ACTIONLINT) .github/workflows/*.yml

lint-go:
	@bad=$$(git ls-files '*.go' | xargs -r gofmt -l); \
	if [ -n "$$bad" ]; then echo "gofmt would change (run make fmt):"; echo "$$bad"; exit 1; fi
	@$(GO) mod tidy -diff || { echo 'go.mod or go.sum is not tidy: run go mod tidy'; exit 1; }
	$(SPARING) $(GO) run $(GOLANGCI) run --allow-parallel-runners $(PKGS)
	cd plugins/nomad && $(SPARING) $(GO) run $(GOLANGCI) run --allow-parallel-runners

lint-python:
	@if [ -z "$$(git ls-files '*.py' | head -1)" ]; then exit 0; fi; \
	if [ ! -x $(CACHE)/ruff/bin/ruff ]; then \
	  $(PYTHON) -m venv $(CACHE)/ruff && $(CACHE)/ruff/bin/pip install -q ruff==$(RUFF_VERSION); \
	fi; \
	$(CACHE)/ruff/bin/ruff check .

# Tests that read the source alone: in seconds here, a quarter of an hour into make test.
lint-structure:
	$(GO) test -vet=off -run '^(TestImports|TestTheContractsRunNothing|TestAnEnvironmentLinksNoOtherKind|TestWhatRecipeLinks|TestFilesAreFit|TestLinksResolve|TestCellsOfTables|TestTheIndexOfPages|TestPinsAgree|TestPinsOfWorkflows)' ./sdk ./cmd/recipe

fmt: ## format Go and HCL files in place
	git ls-files '*.go' | xargs -r gofmt -w
	$(GO) run ./cmd/recipe fmt --recursive recipes

ui: ## build the dashboard's page from engine/ui/page into engine/ui/built (needs npm)
	cd engine/ui/page && npm ci --no-audit --no-fund && npm run -s build

test-ui: build ## test the dashboard's page in headless Chromium (needs npm and Chromium: apt install chromium)
	scripts/test-ui.sh

bench: ## run the benchmarks; writes docs/benchmarks/latest.txt with a description of the machine
	@mkdir -p docs/benchmarks
	@{ echo "machine: $$(uname -sm), $$(getconf _NPROCESSORS_ONLN) cores, $$($(GO) version)"; \
	   echo "commit:  $(COMMIT)"; \
	   echo "command: go test -run '^$$' -bench . -benchmem -count 3 ./..."; echo; } > docs/benchmarks/latest.txt
	$(GO) test -run '^$$' -bench . -benchmem -count 3 -timeout 30m $(PKGS) | grep -v 'no test files' | tee -a docs/benchmarks/latest.txt

.PHONY: bench-agents
bench-agents: ## compare sessions with the ways of verifiers and TRL: tokens that are trained, and load (ten minutes)
	scripts/bench-agents/run.sh
	scripts/bench-agents/load.sh

# Any machine with an NVIDIA GPU; PYTHON is an interpreter with torch, transformers, peft, vllm and trl. CASES limits what is run;
# ARGS are further options of compare.py.
TOKENIZER ?= HuggingFaceTB/SmolLM2-135M-Instruct
CASES     ?=
ARGS      ?=
bench-gpu: build ## time the whole loop on a GPU beside TRL's; writes dist/bench-gpu/result.json
	$(GOBUILD) -o bin/scores ./scripts/bench-gpu/scores
	rm -rf dist/bench-gpu
	$(PYTHON) scripts/bench-gpu/compare.py --recipe $(BIN) --scores bin/scores --tokenizer $(TOKENIZER) \
	  --python "$$(command -v $(PYTHON))" --out dist/bench-gpu --only '$(CASES)' $(ARGS)

docs: ## regenerate docs/cli and docs/blocks from the commands and the plugins' schemas
	$(GO) run ./cmd/recipe docs --dir docs

# Strict: a link or an anchor that leads nowhere fails it, as does a page that docs/README.md does not list.
SITE := $(CACHE)/venv-site/bin
.PHONY: site
site: ## build the pages of docs as a site with search, dist/site; checks all links; needs no network once its packages are there
	scripts/venv.sh site
	$(SITE)/python scripts/site/stage.py dist/site-pages
	NO_MKDOCS_2_WARNING=1 $(SITE)/mkdocs build --quiet --strict -f dist/site-pages/mkdocs.yml
	$(SITE)/python scripts/site/check.py dist/site
	@echo 'open dist/site/index.html; search needs a server: python3 -m http.server -d dist/site'

generate: test-venv ## write plugins/grpo/schema.json and sections.go anew from the settings, losses and estimators of the worker
	PYTHONPATH=sdk/python/src:plugins/grpo .cache/venv-test/bin/python -m worker --schema >plugins/grpo/schema.json
	$(GO) test -vet=off ./plugins/grpo -run TestSectionsAreTheWorkers -update

e2e: build ## run the end-to-end script against the built binary
	scripts/e2e.sh

e2e-all: build ## the same and the recipes that CI has no time for
	scripts/e2e.sh --all

e2e-trl: build ## the same with TRL instead of recipe's own trainer
	scripts/venv.sh trl
	scripts/e2e.sh -run '^TestTRL'

e2e-matrix: e2e-all e2e-sglang e2e-sglang-oldest e2e-trl e2e-verl e2e-axolotl e2e-pairs e2e-external e2e-learning ## every run of docs/compatibility.md; nightly

SGLANG ?= newest
e2e-sglang: build ## the same with SGLang instead of vLLM, the newest that is supported; SGLANG=oldest takes the oldest
	SGLANG=$(SGLANG) scripts/e2e-sglang.sh

e2e-sglang-oldest: build ## the shortest of it and each transport of weights with the oldest
	SGLANG=oldest scripts/e2e-sglang.sh -run '^TestSGLang(Transports|Short)$$'

PAIR ?=
e2e-pairs: build ## pairs of engine and trainer by each transport that no other target runs; PAIR=sglang/verl is one of them
	scripts/e2e-pairs.sh $(PAIR)

e2e-learning: build ## SGLang with each trainer that is not recipe's learns addition
	scripts/e2e-pairs.sh learning

e2e-external: build ## each trainer with a server that recipe has not started
	scripts/e2e-pairs.sh external

cross: ## build for every supported platform into dist/
	@mkdir -p dist
	@for p in $(PLATFORMS); do \
	  echo "build $$p"; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(GOBUILD) -o dist/recipe-$${p%/*}-$${p#*/} ./cmd/recipe; \
	done

# nfpm's later versions need a module that not every proxy has.
NFPM := $(GO) run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.1

dist: cross ## make what users install into dist/release: archives, wheels, deb, rpm, image, checksums; PLATFORMS limits it (docs/install.md)
	rm -rf dist/release
	$(GO) run ./scripts/dist -version $(VERSION) -out dist/release -nfpm '$(NFPM)' $(foreach p,$(PLATFORMS),$(p)=dist/recipe-$(subst /,-,$(p)))
	@cd dist/release && ls -l

test-dist: build ## install the release of this platform where no Go and no compiler is, and train with it
	scripts/dist/test.sh

# linux/amd64 is what lint and the tests compile.
cross-check: ## see that packages and tests compile for every other platform, without building them
	$(SPARING) $(GO) run ./scripts/platforms $(filter-out $(shell $(GO) env GOOS)/$(shell $(GO) env GOARCH),$(PLATFORMS))

clean: ## remove what the build made
	rm -rf bin dist

.PHONY: conformance
conformance: ## run the trajectory API suite against ours and the original run-api (needs Python)
	scripts/conformance.sh

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZ_EXECS executions (10^6), on FUZZ_CORES cores (2); seeds alone are part of `make test`
	scripts/fuzz.sh

.PHONY: audit
audit: ## look for known vulnerabilities in Go modules and Python packages; exits with 2 where a database cannot be reached
	scripts/audit.sh

.PHONY: power-loss
power-loss: ## cut the power of a file system while packages and trajectories are written; needs root and loop devices
	RECIPE_POWER_LOSS=1 $(GO) test -count=1 -run AfterAPowerLoss -v ./cmd/recipe ./plugins/trajectories/store

# The short forms of these tests are part of `make test`. KILLS sets how often the stand-in plugins are struck; a real run takes
# longer to come back, so it is struck a quarter as often.
KILLS ?= 500
.PHONY: chaos
chaos: ## kill engines and plugins at random, hundreds of times, and count what is lost (half an hour)
	RECIPE_CHAOS=$(KILLS) $(GO) test -count 1 -v -timeout 60m -run 'TestEngineKilledAtEveryJournalWrite|TestRandomKills' ./engine/run
	RECIPE_CHAOS=$$(($(KILLS) / 4)) $(GO) test -count 1 -v -timeout 60m -run TestRealRunSurvivesRandomKills ./cmd/recipe
	$(GO) test -count 1 -v -timeout 60m -run TestNothingAcknowledgedIsLost ./plugins/trajectories/chaos -kills $(KILLS)
	$(GO) test -count 1 -v -timeout 60m -run TestSessionsAreTrainedAsSampled ./plugins/trajectories/chaos -groups $$(($(KILLS) / 5)) -seed 0

.PHONY: test-verl e2e-verl e2e-axolotl e2e-matrix e2e-slurm e2e-slurm-all e2e-kubernetes e2e-kubernetes-all e2e-nomad
test-verl: ## test trainer "verl" with real verl on the CPU, in an environment of its own; VERL=0.9.0 takes another version
	VERL=$(VERL) scripts/test-verl.sh

e2e-verl: build ## the end-to-end script with verl as the trainer
	scripts/venv.sh verl
	scripts/e2e.sh -run '^TestVerl'

e2e-axolotl: build ## the end-to-end script with Axolotl as the trainer
	scripts/venv.sh axolotl
	scripts/e2e.sh -run '^TestAxolotl'

e2e-slurm: build ## executor "slurm" on a cluster of three hosts, started here; skipped without root or the packages
	scripts/e2e-slurm.sh

e2e-slurm-all: build ## the same with what takes longest: addition with vLLM on three hosts, gangs, a network cut of 30 s, preemption
	RECIPE_SLURM_ALL=1 scripts/e2e-slurm.sh

e2e-kubernetes: build ## executor "kubernetes" on a cluster of two nodes, started here; its binaries: scripts/kubernetes.sh build
	scripts/e2e-kubernetes.sh

e2e-kubernetes-all: build ## the same and what takes minutes: vLLM and a trainer in pods that share no files
	RECIPE_KUBERNETES_ALL=1 scripts/e2e-kubernetes.sh

e2e-s3: build ## keep checkpoints in a real store with the S3 interface, started here; it is built first
	RECIPE_S3=$$(scripts/s3.sh build) go test -tags e2e -count 1 -timeout 10m -v -run '^TestS3' ./e2e

e2e-nomad: build ## the executor of plugins/nomad on a Nomad agent, started here; its binary: scripts/nomad.sh build
	scripts/e2e-nomad.sh

.PHONY: test-trackers
test-trackers: ## read what tracking blocks write with the trackers' own packages
	scripts/venv.sh trackers
	RECIPE_TRACKERS_PYTHON=$(CACHE)/venv-trackers/bin/python $(GO) test -count 1 -run 'Reads?It$$' ./engine/tracking

.PHONY: test-harness
test-harness: build ## evaluate with the real lm-eval and Inspect, on tasks of this machine
	scripts/venv.sh harness
	RECIPE_HARNESS_PYTHON=$(CACHE)/venv-harness/bin/python $(GO) test -count 1 -v -run '^TestRealHarnesses$$' ./cmd/recipe

.PHONY: e2e-otel
e2e-otel: ## send the traces of a run through a real OpenTelemetry collector, which is built first
	RECIPE_OTELCOL=$$(scripts/otelcol.sh build) $(GO) test -count 1 -v -run '^TestOneTraceThroughARealCollector$$' ./cmd/recipe

.PHONY: test-grafana
test-grafana: ## check docs/grafana with Grafana's types and Prometheus's parser (needs npm)
	scripts/grafana/check.sh

# One run with the record of samples and one without, PAIRS times by turns.
PAIRS ?= 6
.PHONY: bench-recording
bench-recording: ## measure what the record of samples costs, in a step and in whole runs (PAIRS of them)
	$(GO) test -run '^$$' -bench 'Recording' -benchtime 10x ./plugins/trajectories
	$(GO) test -run '^$$' -bench 'RecordedRun' -benchtime $(PAIRS)x -timeout 60m -v ./cmd/recipe

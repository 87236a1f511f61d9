# Everything that this repository can do by one word. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: build demo quick test check sim fuzz chaos soak bench-smoke generate lint fmt clean help

# Invariants panic in tests and are compiled away elsewhere.
TAGS ?= invariants
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)
TOOL := go tool -modfile=tools/go.mod

build: ## build ./bin/millrace
	go build -trimpath -pgo=cmd/millrace/hot.pgo -ldflags '-X main.version=$(VERSION)' -o bin/millrace ./cmd/millrace

demo: build ## build, then run real work through a server in a temporary directory
	./bin/millrace demo

quick: ## what to run before each commit, at most a minute: messages of commits, vet, repository rules, short tests
	@TAGS='$(TAGS)' scripts/quick.sh

test: ## the whole ordinary suite, at most 10 minutes on 2 cores: lint, unit tests, scripts, real processes
	@TAGS='$(TAGS)' scripts/test.sh

check: ## make test, then the race detector, planted faults, a wider lint and generated code that is up to date
	@TAGS='$(TAGS)' scripts/check.sh

sim: ## simulate a cluster: SEEDS=n, or SEED=0x... to repeat one
	@SEED='$(SEED)' SEEDS='$(SEEDS)' FIRST='$(FIRST)' TAGS='$(TAGS)' scripts/sim.sh

fuzz: ## fuzz every decoder for TIME=2m, or one: TARGET=FuzzPack; without either, list them
	@TIME='$(TIME)' TARGET='$(TARGET)' JOBS='$(JOBS)' TAGS='$(TAGS)' scripts/fuzz.sh

chaos: ## one row of faults on real processes, added to its campaign: ROW=R-01 N=250 [SEED=...] [MUTANT=...]
	@ROW='$(ROW)' N='$(N)' SEED='$(SEED)' MUTANT='$(MUTANT)' scripts/chaos.sh

soak: ## searches at half load for MINUTES=10, added to the campaign of R-23-search: memory and goroutines must stay as they are
	@ROW=R-23-search N='$(or $(MINUTES),10)' SEED='$(SEED)' scripts/chaos.sh

bench-smoke: build ## measure one row of every suite for a second and audit it, to see that the harness works
	./bin/millrace bench run --profile smoke

generate: ## write gen/ and the messages of the SDKs from proto/, and docs/reference from the code and the committed results
	scripts/generate.sh

lint: ## formatting, vet, staticcheck, and the repository's own rules
	@TAGS='$(TAGS)' scripts/lint.sh
	go test -count=1 ./internal/lint

fmt: ## format all Go code
	$(TOOL) gofumpt -w .

clean: ## remove what was built
	rm -rf bin bench-out

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

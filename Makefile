# Two commands: `make lab ARCH=...` and `make test`. Everything else is for
# people who work on this. Scripts call bin/lab: make turns any failure into 2.

ARCH     ?= $(shell dpkg --print-architecture)
SCENARIO ?= smoke
TIME     ?= exact
SEED     ?= 1
OUT      ?=
KERNEL   ?=
INVENTORY ?=
NAME     ?=
MIRROR   ?=
export MIRROR
# What would make programs for another machine, or other ones, of the same sources.
# Where Go's modules and caches are is the environment's to say.
unexport GOOS GOARCH GOAMD64 GOARM64 GORISCV64 GOFLAGS GOEXPERIMENT

# In make test, how long each fuzz target runs that reads what others have made,
# how long the rest, and how many at once; none goes on from what another run found.
FUZZING = -fuzztime 6s -fuzzothers 2s -fuzzfresh -jobs 2

# How many packages, and how many tests of each, run at once: one more than there are
# CPUs, for most wait for a guest now and then.
at_once = -p $$(($$(nproc) + 1)) -parallel $$(($$(nproc) + 1))

# What each of these needs of the host is asked for when it is missing.
setup_lab  = ARCH='$(ARCH)' ci/setup.sh
setup_all  = ARCH=all ci/setup.sh
setup_test = TESTS=1 $(setup_all)
# The Go to use: the host's, or one that set-up fetched.
with_go    = GO=$$(ci/setup.sh --go) && export GO

.PHONY: lab matrix test proof bench generate bin/lab clean

lab: ## run scenarios: ARCH SCENARIO TIME SEED OUT MIRROR KERNEL
	@$(setup_lab)
	@$(MAKE) --no-print-directory bin/lab
	@$(with_go) && bin/lab run --arch '$(ARCH)' --scenario '$(SCENARIO)' --time '$(TIME)' --seed '$(SEED)' $(if $(OUT),--out '$(OUT)') $(if $(KERNEL),--kernel '$(KERNEL)')

matrix: ## every combination of ARCH SCENARIO KERNEL SEED, which may be lists: TIME OUT MIRROR INVENTORY
	@$(setup_lab)
	@$(MAKE) --no-print-directory bin/lab
	@$(with_go) && bin/lab matrix --arch '$(ARCH)' --scenario '$(SCENARIO)' --time '$(TIME)' --seed '$(SEED)' $(if $(KERNEL),--kernel '$(KERNEL)') $(if $(INVENTORY),--inventory '$(INVENTORY)') $(if $(OUT),--out '$(OUT)')

test: ## everything that CI runs
	@$(setup_test)
	@$(MAKE) --no-print-directory bin/lab
	@$(with_go) && "$$GO" vet -trimpath -composites=false ./... && \
		"$$GO" run -trimpath ./ci/proof -name fuzz $(FUZZING) && \
		"$$GO" test -trimpath -json -vet=off -count=1 -timeout 70m $(at_once) ./... | "$$GO" run -trimpath ./ci/tally

proof: ## the long proofs, one line each: NAME SEED, and ARCH when it is given
	@$(setup_test)
	@$(MAKE) --no-print-directory bin/lab
	@$(with_go) && "$$GO" build -o bin/proof ./ci/proof && bin/proof -name '$(NAME)' -seed '$(SEED)' $(if $(filter-out file default undefined,$(origin ARCH)),-arch '$(ARCH)')

bench: ## the figures, printed; NAME is one or more of ci/bench.sh's legs
	@$(setup_all)
	@$(MAKE) --no-print-directory bin/lab
	@$(with_go) && ci/bench.sh $(NAME)

bin/lab:
	@$(with_go) && CGO_ENABLED=0 "$$GO" build -trimpath -buildvcs=false -o bin/lab ./cmd/lab

generate: ## generated files; needs Debian's protobuf-compiler
	@$(with_go) && plugin=$$("$$GO" tool -n protoc-gen-go) && \
		protoc --plugin=protoc-gen-go="$$plugin" --go_out=. --go_opt=module=kerninst agent/wire/wire.proto

clean:
	rm -rf bin out

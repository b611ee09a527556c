# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Each target installs what it needs; the first time that takes minutes, later a fraction of a second.

SHELL := /bin/bash
RUN := tests/tools/run.sh
LAB := $(RUN) --lab
KIND := $(RUN) --lab --kind
STAGES := $(RUN) --lab --kind --report --bare -P tests/tools/stages.py
# Tests on real parts, all of them, or some folders or files: make faults SUITES=tests/ceph
# Tests on nodes keep a processor busy and the others mostly wait, so they come first and run beside the others.
SUITES := tests/kubelets tests/kubelets_at_1_20 tests/faults tests/vm tests/adhoc tests/ceph tests/cluster tests/cluster_faults tests/eda tests/failover \
	tests/failover_faults tests/report tests/runner
# On the Ceph of these Debian releases: 14, 18 and 20. All other tests run on that of bookworm, 16. Only one: make test-matrix CEPHS=sid
CEPHS := bullseye trixie sid
CEPH_SUITES := tests/ceph tests/failover/test_fail_over.py::test_out_of_service_taint
# Of the tests that CI takes in turn: those of the number that the commit chooses, those of number K, or (ALL=1) all.
TURN = $(if $(ALL),all,$(if $(SHARE),$(SHARE),$(shell tests/tools/share.sh)))
REAL = $(RUN) --lab --report pytest -v --durations=10 -n "$$(tests/tools/workers.sh)" --dist worksteal \
	--junitxml=build/stages/$@.xml $(SUITES)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo docs test test-faults test-matrix test-cores prepare smoke kind faults lint format units mutants sanity importer lock sbom molecule bench clean

help: ## show this
	@sed -n -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## boot a node, make a residual disk, find it, clean it, show the proof, write the report
	@$(LAB) python -m lab.demo

docs: ## the documentation as a site, with pictures of the report, in build/docs
	@$(RUN) --report tests/tools/docs.sh

test: ## everything, with one scenario of each class on real parts
	@$(STAGES) test

test-faults: ## the other tests on real parts, in turn; ALL=1: all of them, SHARE=K: those of number K
	@$(STAGES) test-faults

test-matrix: ## the residual scenarios on Debian 11, 12 and 13; the tests on Ceph and a fail-over on Ceph 14, 18 and 20
	@for release in bullseye bookworm trixie; do LAB_RELEASES=$$release $(LAB) pytest -n 2 -v tests/matrix || exit; done
	@for release in $(CEPHS); do LAB_CEPH=$$release $(LAB) pytest -n 2 -v $(CEPH_SUITES) || exit; done

test-cores: ## what depends on ansible-core, with 2.18, 2.20 and 2.21; CORES="2.20 newest": with those
	@$(LAB) tests/tools/cores.sh $(CORES)

prepare: ## build what the tests on real parts need: Kubernetes, CSI-Addons, kind, the VM node
	@$(KIND) --bare -m lab prepare

smoke: ## one scenario of each class, on real parts
	@$(REAL) -m smoke

kind: ## the tests on a cluster made by kind: real kubelets, a real CSI driver, the real external-attacher and external-provisioner
	@$(KIND) python -m lab kind prepare
	@$(KIND) pytest -v --durations=10 --turn=$(TURN) --junitxml=build/stages/$@.xml tests/kind

faults: ## the other tests on real parts, in turn
	@$(REAL) -m 'not smoke' --turn=$(TURN)

lint: ## ruff, mypy, yamllint, shellcheck, licences, changelog, documentation, ansible-lint
	@$(RUN) tests/tools/lint.sh

format: ## let ruff format the Python files, and write into the modules what all of them say alike in RETURN
	@$(RUN) ruff format
	@$(RUN) python -P tests/tools/returns.py

units: ## unit tests: here, then by ansible-test with the oldest Python (a quarter of what asks a cluster), and with the oldest ansible-core (a quarter of the roles)
	@$(RUN) pytest -n 2 tests/unit
	@tests/tools/ansible_test.sh units $(TURN)

sanity: ## ansible-test sanity with both ansible-cores
	@tests/tools/ansible_test.sh sanity

mutants: ## drop refusals of the collection, one at a time: a unit test must turn red; ALL=1, SHARE=K as for test-faults
	@$(RUN) python -P tests/tools/mutants.py --share=$(TURN)

importer: ## build the collection and import it as Galaxy would
	@$(RUN) tests/tools/galaxy_import.sh

lock: ## write the versions and hashes of the Python packages of the execution and the decision environment
	@tests/tools/lock.sh

sbom: ## list what the collection and the execution environment consist of, as CycloneDX in build/sbom
	@$(RUN) tests/tools/sbom.sh

molecule: ## the roles, by molecule, on a real node: a quarter of them in turn; ALL=1, SHARE=K as for test-faults
	@$(LAB) tests/tools/molecule.sh $(TURN)

bench: ## what an audit costs: of a node with 2 and with 256 maps, of a cluster with 5,000 nodes, and of these as an inventory; how long a failover takes; residual paths cleaned by others and by us; fleets and reports
	@$(LAB) python tests/benchmarks/cluster.py
	@$(LAB) python tests/benchmarks/inventory.py
	@$(LAB) python tests/benchmarks/run.py
	@$(LAB) python -P tests/benchmarks/residual_compare.py
	@$(LAB) python -P tests/benchmarks/failover.py
	@$(RUN) python -P tests/benchmarks/fleet.py
	@$(RUN) --report python -P tests/benchmarks/report.py

clean: ## stop the nodes, the control planes and Ceph, and remove everything that was installed or built
	@tests/tools/clean.sh

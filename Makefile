# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Each target installs what it needs; the first time that takes minutes, later a fraction of a second.

SHELL := /bin/bash
RUN := tests/tools/run.sh
LAB := $(RUN) --lab
REPORT := $(RUN) --report

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo docs test test-faults test-matrix lint format units sanity importer reports integration molecule bench clean

help: ## show this
	@sed -n -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## boot a node, make a residual disk, find it, clean it, show the proof, write the report
	@$(LAB) python -m lab.demo

docs: ## the documentation as a site, with pictures of the report, in build/docs
	@$(REPORT) tests/tools/docs.sh

test: lint sanity units importer docs reports integration molecule ## everything, with one scenario of each class on a real node

# What tests/vm has run already. Names are prefixes here.
TESTED := iscsi_ready.py::test_four_ways residual_interrupted.py::test_killed_while_removing_a_dead_map[flush_map] \
	residual_refusals.py::test_one_portal_down residual_repair.py::test_hung_reader_on residual_reuse.py::test_unused_map \
	pod_mounts.py::test_wrong_source pod_mounts_readonly.py::test_error_below
# CI has 90 minutes, so what is marked as a variation of another test runs with ALL=1 only.
SELECTION := $(if $(ALL),,-m 'not variation')

test-faults: ## every kind of fault that `make test` leaves out, on real parts; with ALL=1 every variation, too
	@status=0; for suite in faults cluster_faults failover_faults; do \
		$(LAB) pytest -n 2 -v --durations=15 $(SELECTION) $(patsubst %,--deselect 'tests/faults/test_%',$(TESTED)) tests/$$suite || status=1; \
		done; exit $$status

test-matrix: ## the residual scenarios on Debian 11, 12 and 13
	@for release in bullseye bookworm trixie; do LAB_RELEASES=$$release $(LAB) pytest -n 2 -v tests/matrix || exit; done

lint: ## ruff, mypy, yamllint, shellcheck, licences, changelog, documentation, ansible-lint
	@$(RUN) tests/tools/lint.sh

format: ## let ruff format the Python files
	@$(RUN) ruff format

units: ## unit tests: here, then by ansible-test with the oldest Python, and with the oldest ansible-core
	@$(RUN) pytest -n 2 tests/unit
	@tests/tools/ansible_test.sh units

sanity: ## ansible-test sanity with both ansible-cores
	@tests/tools/ansible_test.sh sanity

importer: ## build the collection and import it as Galaxy would
	@$(RUN) tests/tools/galaxy_import.sh

reports: ## the report in a browser and in Prometheus, what AWX runs inside, ansible-rulebook, the callback
	@tests/lab/bootstrap.sh lowest
	@$(REPORT) --lab pytest -n 2 -v --durations=10 $(SELECTION) tests/report tests/runner tests/eda tests/adhoc

integration: ## one scenario of each class, on a real node, on real control planes and on a real Ceph
	@tests/lab/bootstrap.sh lowest
	@$(LAB) pytest -n 2 -v --durations=15 tests/vm
	@$(LAB) pytest -n 2 -v --durations=15 tests/cluster
	@$(LAB) pytest -n 2 -v --durations=15 tests/ceph
	@$(LAB) pytest -n 2 -v --durations=15 tests/failover

molecule: ## the roles, by molecule, on a real node
	@$(LAB) molecule test --all --report

bench: ## what an audit costs: of a node with 2 and with 256 maps, of a cluster with 5,000 nodes; how long a failover takes; fleets and reports
	@$(LAB) python tests/benchmarks/cluster.py
	@$(LAB) python tests/benchmarks/run.py
	@$(LAB) python -P tests/benchmarks/failover.py
	@$(RUN) python -P tests/benchmarks/fleet.py
	@$(REPORT) python -P tests/benchmarks/report.py

clean: ## stop the nodes, the control planes and Ceph, and remove everything that was installed or built
	@tests/tools/clean.sh

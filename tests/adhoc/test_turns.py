# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts have their turn after one on which a role has failed, whatever it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from lab.common import patient

COLLECTION = Path(__file__).resolve().parents[2]
STEP = {"action": "stop", "target": "x", "command": ["stop"], "outcome": "failed", "seconds": 0.1}
FINDING = {
    "control": "STOR-05",
    "severity": "major",
    "object": {"kind": "container", "namespace": "shop", "name": "web", "node": "n1"},
    "summary": "web has a dead mount",
    "evidence": {},
    "verdict": "refuse",
    "code": "repair_unproven",
    "reason": "it does not come back",
    "runbook": "",
    "repair": [STEP],
}
HEALTHY = {"changed": False, "msg": "nothing to do", "findings": [], "actions": []}
FAILED = {
    "changed": True,
    "failed": True,
    "msg": "it does not come back",
    "code": "repair_unproven",
    "findings": [FINDING],
    "actions": [STEP],
}
HALF_MADE = {**FAILED, "half_made": True}


class Run(NamedTuple):
    """What came of a run: which hosts a module was sent to, and what was printed."""

    asked: list[str]
    printed: str


class Ssh(str):
    """A script in place of ssh, so what a host does of itself. Its last argument is the command."""


# Its time is over at once: the signal is that of the controller's own timer, to its worker.
MUTE = "kill -ALRM $PPID; exec sleep 100000"
SILENT_TO = f'command="${{!#}}"\ncase $command in WHICH) {MUTE};; esac\nexec sh -c "$command"\n'


def run(
    programs: Path, folder: Path, playbook: str, answers: Mapping[str, Any], *options: str
) -> Run:
    """Run a playbook against hosts that answer so, in that order; it fails at its end.

    A host without an answer can be reached, and its connection is lost when the module is sent. An
    answer that is a text is a script that has the module as its argument.
    """
    hosts: dict[str, Any] = {"localhost": {"ansible_connection": "local"}}
    for host, answer in answers.items():
        python = folder / host
        if isinstance(answer, Ssh):
            hosts[host] = {
                "ansible_connection": "ssh",
                "ansible_ssh_executable": str(python),
                "ansible_ssh_transfer_method": "piped",
                "ansible_python_interpreter": sys.executable,
            }
            python.write_text(f"#!/bin/bash\n{answer}", encoding="utf-8")
            python.chmod(0o755)
            continue
        said = answer if isinstance(answer, str) else f"cat <<'END'\n{json.dumps(answer)}\nEND\n"
        python.write_text(f"#!/bin/sh\necho {host} >>{folder}/asked\n{said}", encoding="utf-8")
        python.chmod(0o755)
        hosts[host] = {"ansible_connection": "local", "ansible_python_interpreter": str(python)}
        if answer is None:
            # No folder can be made there, which for Ansible is a host that cannot be reached.
            hosts[host]["ansible_remote_tmp"] = "/proc/none"
    inventory = folder / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}, sort_keys=False), "utf-8")
    command = [str(programs / "ansible-playbook"), "-i", str(inventory), playbook, *options]
    command += ["-e", f"target={','.join(answers)}", "-e", "ansible_become=false"]
    environment = {**os.environ, "ANSIBLE_HOME": str(folder / "home")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patient(120), check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 2, printed
    return Run(list(dict.fromkeys((folder / "asked").read_text("utf-8").split())), printed)


@pytest.mark.parametrize(
    "playbook",
    [
        "clean_residual_paths",
        pytest.param("check_nfs", marks=pytest.mark.variation),
        pytest.param("load_iscsi_modules", marks=pytest.mark.variation),
        pytest.param("recover_fuse_mounts", marks=pytest.mark.variation),
        pytest.param("repair_pod_mounts", marks=pytest.mark.variation),
    ],
)
def test_a_failure_that_is_not_half_made_leaves_the_next_host_its_turn(
    tmp_path: Path, playbook: str
) -> None:
    """Whatever the host says was done, and that an option is wrong: it knows no other's."""
    answers = {"evil": {**FAILED, "code": "bad_option"}, "good": {**HEALTHY, "runtimes": []}}
    name = f"storage_ops.runbooks.{playbook}"
    options = ("-e", "fuse_recovery_read_cluster=false") if "fuse" in playbook else ()
    ended = run(Path(sys.executable).parent, tmp_path, name, answers, *options)
    assert sorted(ended.asked) == ["evil", "good"], ended.printed
    assert "1 not assessed: evil (it failed or was not reached, see above)" in ended.printed


def test_one_host_ends_no_turn_and_a_second_half_made_repair_does(
    programs: Path, tmp_path: Path
) -> None:
    answers = {"evil": HALF_MADE, "ill": HALF_MADE, "good": HEALTHY}
    ended = run(programs, tmp_path, "storage_ops.runbooks.clean_residual_paths", answers)
    assert ended.asked == ["evil", "ill"], ended.printed
    assert "a repair may be left half made on evil, ill" in ended.printed
    assert "3 not assessed: evil (" in ended.printed
    assert "good (it had no turn, see above)" in ended.printed, ended.printed


def test_a_wrong_option_of_one_host_is_all_that_its_batch_tells(
    programs: Path, tmp_path: Path
) -> None:
    """They end with it where ansible-core ends them, and nothing of their own has failed."""
    inventory = tmp_path / "host_vars"
    inventory.mkdir()
    (inventory / "ill.yml").write_text("residual_paths_max_repairs: many\n", encoding="utf-8")
    answers = {"good": HEALTHY, "ill": HEALTHY, "well": HEALTHY}
    (tmp_path / "asked").touch()
    name = "storage_ops.runbooks.clean_residual_paths"
    ended = run(programs, tmp_path, name, answers, "-e", "batch=3")
    assert "residual_paths_max_repairs must be a number" in ended.printed
    # ansible-core 2.16 lets the others of a batch go on where the play rescues them.
    assert ended.asked == [] or sorted(ended.asked) == ["good", "well"], ended.printed
    for host in ("good", "well"):
        told = f"{host} is not assessed, since an option is wrong" in ended.printed
        assert told != (host in ended.asked), ended.printed
    assert "ill (it failed or was not reached" in ended.printed
    assert "undefined" not in ended.printed, ended.printed


@pytest.mark.parametrize("batch", ["", "100%"])
def test_a_rehearsal_looks_at_all_hosts_together(
    programs: Path, tmp_path: Path, batch: str
) -> None:
    """What each of them watches for 25 seconds is one wait. None answers before all are asked."""
    others = f"for host in one two three; do grep -qx $host {tmp_path}/asked || exit 1; done"
    meets = f"tries=0; until ({others}); do\n"
    # It ends by itself where the others are never asked.
    meets += "tries=$((tries + 1)); [ $tries -lt 600 ] || exit 1; sleep 0.1; done\n"
    healthy = f"{meets}cat <<'END'\n{json.dumps(HEALTHY)}\nEND\n"
    failed = f"{meets}cat <<'END'\n{json.dumps(FAILED)}\nEND\n"
    answers = {"one": healthy, "two": failed, "three": healthy}
    options = ("--check", *(("-e", f"batch={batch}") if batch else ()))
    name = "storage_ops.runbooks.clean_residual_paths"
    ended = run(programs, tmp_path, name, answers, *options)
    assert sorted(ended.asked) == ["one", "three", "two"], ended.printed
    assert "1 not assessed: two (it failed or was not reached" in ended.printed, ended.printed


def test_a_host_that_is_lost_on_the_way_leaves_the_next_one_its_turn(
    programs: Path, tmp_path: Path
) -> None:
    """Else who is root on a node would end the run for all by cutting the connection."""
    answers = {"evil": None, "good": HEALTHY}
    ended = run(programs, tmp_path, "storage_ops.runbooks.clean_residual_paths", answers)
    assert ended.asked == ["good"], ended.printed
    assert "1 not assessed: evil (it failed or was not reached, see above)" in ended.printed
    assert "a repair may be left half made" in ended.printed


def test_a_host_that_never_answers_leaves_the_next_one_its_turn(
    programs: Path, tmp_path: Path
) -> None:
    """Else who is root on a node would end the run for all, without a word, by being silent."""
    # To the first command, to the module, and to the command that removes what Ansible left there.
    module, folder = "*python*AnsiballZ*", "*'rm -f'*"
    answers = {
        "mute": Ssh(MUTE),
        "stuck": Ssh(SILENT_TO.replace("WHICH", module)),
        "sticky": Ssh(SILENT_TO.replace("WHICH", f"{module}|{folder}")),
        "good": HEALTHY,
    }
    name = "storage_ops.runbooks.clean_residual_paths"
    ended = run(programs, tmp_path, name, answers, "--check", "-e", "batch=1")
    assert ended.asked == ["good"], ended.printed
    assert "3 not assessed: mute (it failed or was not reached, see above)" in ended.printed
    # Nothing changes in check mode, so nothing is half made.
    assert "a repair may be left half made" not in ended.printed


def test_a_host_whose_shell_fails_leaves_the_next_one_its_turn(
    programs: Path, tmp_path: Path
) -> None:
    """Else it would be a failure of the whole batch, which ends the run."""
    answers = {"evil": Ssh("exit 1"), "good": HEALTHY}
    ended = run(programs, tmp_path, "storage_ops.runbooks.clean_residual_paths", answers)
    assert ended.asked == ["good"], ended.printed
    assert "1 not assessed: evil (it failed or was not reached, see above)" in ended.printed


@pytest.mark.variation
def test_a_host_that_never_stops_answering_leaves_the_next_one_its_turn(
    programs: Path, tmp_path: Path
) -> None:
    """What Ansible collects of it is bounded for each host, so that the others have memory left."""
    counting = "import resource, subprocess, sys; subprocess.run(sys.argv[1:]); "
    counting += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    wrapped = tmp_path / "ansible-playbook"
    wrapped.write_text(
        f"#!/bin/sh\n{sys.executable} -c '{counting}' {programs}/ansible-playbook \"$@\" "
        f">{tmp_path}/printed\ncat {tmp_path}/printed\nexit 2\n",
        encoding="utf-8",
    )
    wrapped.chmod(0o755)
    answers = {"loud": Ssh("exec head -c 1500000000 /dev/zero"), "good": HEALTHY}
    ended = run(tmp_path, tmp_path, "storage_ops.runbooks.clean_residual_paths", answers)
    assert ended.asked == ["good"], ended.printed
    assert "1 not assessed: loud (it failed or was not reached, see above)" in ended.printed
    # In KiB, of the biggest process: what it had before, and the room that on_node allows.
    assert int((tmp_path / "printed").read_text("utf-8").split()[-1]) < 1024**2


@pytest.mark.variation
def test_a_silent_host_does_not_keep_the_names_of_others(tmp_path: Path) -> None:
    """They are read from all hosts at the same time."""
    answers = {"mute": Ssh(MUTE), "good": HEALTHY}
    name = "storage_ops.runbooks.load_iscsi_modules"
    ended = run(Path(sys.executable).parent, tmp_path, name, answers)
    assert ended.asked == ["good"], ended.printed
    assert "1 not assessed: mute (it failed or was not reached, see above)" in ended.printed


def test_a_runtime_that_does_not_come_back_is_half_made(tmp_path: Path) -> None:
    """The drop-in or the restart may do the same to the next ones."""
    runtime = {
        "runtime": "docker",
        "unit": "docker.service",
        "unit_limit": "1",
        "process_limit": "2",
        "pid": 1,
        "drop_in_needed": False,
        "restart_needed": True,
        "keeps_containers": True,
    }
    found = json.dumps({**HEALTHY, "runtimes": [runtime]})
    failed = json.dumps({"failed": True, "msg": "it does not start"})
    ill = f"case $* in *systemd*) echo '{failed}';; *) echo '{found}';; esac\n"
    options = ("-e", "nfs_check_restart_runtime=true")
    answers = {"ill": ill, "iller": ill, "good": {**HEALTHY, "runtimes": []}}
    name = "storage_ops.runbooks.check_nfs"
    ended = run(Path(sys.executable).parent, tmp_path, name, answers, *options)
    assert ended.asked == ["ill", "iller"], ended.printed
    assert "good (it had no turn, see above)" in ended.printed


def test_a_container_that_stays_away_is_left_and_the_next_host_has_its_turn(tmp_path: Path) -> None:
    """The module that restarts it is the role's second one, and finds nothing half made."""
    plays = [
        {
            "hosts": "evil,good",
            "serial": 1,
            "gather_facts": False,
            "vars": {
                "__fuse_recovery": {
                    "check": False,
                    "own": {
                        "method": "auto",
                        "liveness_timeout": 1,
                        "restart_timeout": 1,
                        "crictl": "crictl",
                        "restart_pods": False,
                    },
                    "options": {"kubelet_root": "/x", "max_repairs": 1, "accept_majority": False},
                },
                "__fuse_recovery_join": {
                    "containers": [
                        {"namespace": "shop", "claim": "c", "pod": "u", "mount_path": "/data"}
                    ]
                },
                "fuse_recovery_result": {"actions": []},
            },
            "tasks": [
                {
                    "block": [
                        {
                            "ansible.builtin.include_role": {
                                "name": "storage_ops.runbooks.fuse_recovery",
                                "tasks_from": "containers",
                            }
                        },
                        {
                            "storage_ops.runbooks.conclude": {
                                "findings": "{{ fuse_recovery_containers_result.findings }}"
                            },
                            "vars": {"__conclude_later": True},
                            "register": "__fuse_recovery_outcome",
                        },
                    ],
                    "rescue": [
                        {
                            "ansible.builtin.import_tasks": str(
                                COLLECTION / "playbooks/tasks/gave_up.yml"
                            )
                        }
                    ],
                }
            ],
        },
        {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [{"storage_ops.runbooks.conclude": {"hosts": ["evil", "good"]}}],
        },
    ]
    playbook = tmp_path / "play.yml"
    playbook.write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")
    answers = {"evil": {**FAILED, "undone": ["web"]}, "good": HEALTHY}
    ended = run(Path(sys.executable).parent, tmp_path, str(playbook), answers)
    assert ended.asked == ["evil", "good"], ended.printed
    assert "1 left: evil: container shop/web: it does not come back" in ended.printed
    assert "not assessed" not in ended.printed


def test_a_residual_disk_that_stays_is_left_and_the_next_host_has_its_turn(
    programs: Path, tmp_path: Path
) -> None:
    """Its repair failed, and left nothing half made."""
    answers = {"evil": {**FAILED, "undone": ["web"]}, "good": HEALTHY}
    ended = run(programs, tmp_path, "storage_ops.runbooks.clean_residual_paths", answers)
    assert ended.asked == ["evil", "good"], ended.printed
    assert "1 left: evil: container shop/web: it does not come back" in ended.printed
    assert " not assessed: " not in ended.printed


def test_what_a_node_does_not_see_is_left(programs: Path, tmp_path: Path) -> None:
    """Of a pod that hangs, as the cluster says, respond is not green by the node's word alone."""
    pod = {"kind": "pod", "namespace": "shop", "name": "web", "node": "evil"}
    finding = {**FINDING, "object": pod, "verdict": "report", "reason": "it hangs", "repair": []}
    stuck = json.dumps({**HEALTHY, "findings": [finding]})
    evil = f"case $* in *pod_volume_info*) echo '{stuck}';; *) echo '{json.dumps(HEALTHY)}';; esac"
    # The play on the localhost asks this one, too.
    options = ["-e", f"ansible_python_interpreter={tmp_path}/evil", "-e", "triage_namespace=shop"]
    options += ["-e", "respond_repair=STOR-05,STOR-06", "-e", "fuse_recovery_read_cluster=false"]
    ended = run(programs, tmp_path, "storage_ops.runbooks.respond", {"evil": evil}, *options)
    assert "1 left: pod shop/web: it hangs" in ended.printed, ended.printed

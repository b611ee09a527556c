# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What configure_awx makes: with awx.awx's own modules, against a stand-in that answers as a real
AWX was recorded to.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.common import patient
from support.awx_jobs import BY_NAME, DATA, META, ROOT, SLICING, TEMPLATES, load, survey
from support.awx_stand_in import ENCRYPTED, StandIn, serve
from support.node import COLLECTION, environment, of_ansible
from support.selection import HAS_LOWEST, lowest

from ansible_collections.storage_ops.runbooks.plugins.action.check_scope import Known

# With all that templates and shells have something to say about.
IMAGE = "registry.example.com/storage-ops:0.1.0"
VERSION = load(ROOT / "galaxy.yml")["version"]
SECRET = "apiVersion: v1\nusers: [{user: {token: 'c3ecre7-{{ 1 + 1 }}'}}]"
KEYRING = "[client.admin]\n\tkey = c3ecre7AQB=="


# Not runbooks: parts of others, and what configures AWX itself.
PARTS = {"check_limit", "check_target", "conclude", "configure_awx", "merge_compliance_reports"}


# The folder of collections in which that of AWX is.
ELSEWHERE = Path(importlib.import_module("ansible_collections.awx.awx").__path__[0]).parents[2]


def configure(
    url: str,
    *options: str,
    more: dict[str, str] | None = None,
    program: str = "ansible-playbook",
    **variables: Any,
) -> subprocess.CompletedProcess[str]:
    """Run the playbook, with more in its environment."""
    answers = {"configure_awx_image": IMAGE, "configure_awx_machine_credential": "ssh", **variables}
    settings = {**environment(), "CONTROLLER_HOST": url, "CONTROLLER_OAUTH_TOKEN": "c3ecre7-token"}
    # Without pipelining each of the many modules is a file that is written, made executable and
    # removed.
    settings |= {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_PIPELINING": "1", **(more or {})}
    command = [program, f"{COLLECTION}.configure_awx", "-i", "localhost,"]
    command += ["-e", json.dumps(answers), *options]
    answer = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=patient(300), env=settings
    )
    assert "c3ecre7" not in answer.stdout + answer.stderr
    return answer


def green(answer: subprocess.CompletedProcess[str]) -> int:
    """How many tasks have changed something, in a run in which nothing was red, or hidden."""
    said = answer.stdout + answer.stderr
    assert answer.returncode == 0 and "ignored=0" in said and "rescued=0" in said, said
    assert "duplicate mapping" not in said and "fatal:" not in said and "failed: [" not in said, (
        said
    )
    changed = re.search(r"changed=(\d+)", said)
    assert changed
    return int(changed[1])


def red(answer: subprocess.CompletedProcess[str]) -> str:
    """What a run has said that has failed, without line breaks."""
    assert answer.returncode != 0, answer.stdout
    return " ".join(answer.stdout.split())


def fresh() -> StandIn:
    """What every AWX has, and what an operator has made before."""
    awx = StandIn(f"playbooks/{path.name}" for path in (ROOT / "playbooks").glob("*.yml"))
    home = awx.add("organizations", {"name": "Default"})["id"]
    machine = awx.make("credential_types", {"name": "Machine", "kind": "ssh", "managed": True})
    awx.add("credentials", {"name": "ssh", "organization": home, "credential_type": machine["id"]})
    where = {"scm_type": "git", "scm_url": "https://git.example.com/inventories.git"}
    awx.add("projects", {"name": "inventories", "organization": home, **where})
    awx.add(
        "execution_environments",
        {"name": "AWX EE (latest)", "image": "quay.io/ansible/awx-ee:latest"},
    )
    awx.writes.clear()
    return awx


EXCEPTIONS = [
    {
        "select": "[?object.name == 'mpatha']",
        "owner": "storage",
        "reason": "being replaced",
        "expires": "2027-01-31",
    }
]
REPORT = {
    "compliance_ceph_host": "ceph-admin",
    "compliance_report_exceptions": EXCEPTIONS,
    "compliance_report_folder": "/not/this",
}
SOME = [BY_NAME[name] for name in ("triage", "respond", "compliance")]
NIGHTLY = "Storage: compliance every night"


def full(folder: Path) -> dict[str, Any]:
    """Variables of an operator who uses all that there is."""
    (folder / "kubeconfig").write_text(SECRET)
    return {
        "configure_awx_kubeconfig": f"{{{{ lookup('ansible.builtin.file', "
        f"'{folder}/kubeconfig') }}}}",
        "configure_awx_ceph_conf": "[global]",
        "configure_awx_ceph_keyring": KEYRING,
        "configure_awx_report_variables": REPORT,
        "configure_awx_inventory_project": "inventories",
        "configure_awx_schedule": "DTSTART;TZID=Europe/Berlin:20260101T010000 "
        "RRULE:FREQ=DAILY;INTERVAL=1",
        "__awx_templates": SOME,
    }


def nightly(awx: StandIn) -> list[str]:
    """What the schedules of that name start, and whether they are on."""
    by_number = {
        each["id"]: each["name"]
        for plural in ("job_templates", "workflow_job_templates")
        for each in awx.lists[plural].values()
    }
    found = [each for each in awx.lists["schedules"].values() if each["name"] == NIGHTLY]
    assert all(each["enabled"] for each in found)
    return [by_number[each["unified_job_template"]] for each in found]


def templates(awx: StandIn) -> None:
    """What the templates ask, take and refuse."""
    jobs = {found["name"]: found for found in awx.lists["job_templates"].values()}
    assert set(jobs) == {
        *("Storage: triage", "Storage: respond", "Storage: respond (check)", "Storage: compliance"),
        *("Storage: compliance slices", "Storage: merge compliance slices"),
    }
    twin = jobs["Storage: respond (check)"]
    assert (twin["job_type"], twin["playbook"]) == ("check", "playbooks/respond.yml")
    assert jobs["Storage: respond"]["job_type"] == "run"
    assert awx.surveys[twin["related"]["survey_spec"]]["spec"] == survey(BY_NAME["respond"])
    # Nobody needs AWX's rights, or the fleet's, to look at a cluster.
    credentials = awx.relations[f"{jobs['Storage: triage']['url']}credentials/"]
    assert [awx.lists["credentials"][each]["name"] for each in credentials] == ["Storage: cluster"]

    slices = jobs["Storage: compliance slices"]
    assert slices["job_slice_count"] == 4 and slices["forks"] == 50
    assert slices["related"]["survey_spec"] not in awx.surveys and slices["survey_enabled"] is False
    given = json.loads(slices["extra_vars"])
    assert (
        given["compliance_report_folder"]
        == "/var/lib/storage_compliance/slices/{{ awx_workflow_job_id }}/{{ awx_job_id }}"
    )
    assert given["compliance_read_cluster"] == "false" and given["compliance_report_formats"] == [
        "json"
    ]
    # What a scheduled run has to know is code. What is not asked cannot be outdone by the empty
    # answer of a run that nobody has started.
    whole = jobs["Storage: compliance"]
    for job, folder in (
        (whole, "/var/lib/storage_compliance"),
        (slices, given["compliance_report_folder"]),
    ):
        assert (
            json.loads(job["extra_vars"]).items()
            >= {**REPORT, "compliance_report_folder": folder}.items()
        )
    asked = {
        question["variable"]: question
        for question in awx.surveys[whole["related"]["survey_spec"]]["spec"]
    }
    assert set(asked) == {question["variable"] for question in survey(BY_NAME["compliance"])} - set(
        REPORT
    )
    assert not [name for name, question in asked.items() if question.get("default") == ""]
    # The environment by which our modules learn it.
    injectors = awx.named("credential_types", "Storage: Ceph client")["injectors"]
    assert set(injectors["env"]) == {"CEPH_CONF", "CEPH_KEYRING", "CEPH_USER"}
    # Nobody gives ssh's options, or anything else that the survey does not ask.
    assert not [name for name, job in jobs.items() if job["ask_variables_on_launch"]]


def launches(awx: StandIn) -> None:
    """Whoever asks for a check gets one, and whoever gives a limit is held to it."""
    for name, sent, wanted in (
        ("respond", {"job_type": "check"}, "check"),
        ("respond", {"job_type": "run"}, "run"),
        ("respond", {}, "run"),
        # The twin cannot be made to repair.
        ("respond (check)", {"job_type": "run"}, "check"),
        ("compliance", {"job_type": "check"}, "check"),
    ):
        template = awx.named("job_templates", f"Storage: {name}")
        status, job = awx.answer(
            "POST", template["related"]["launch"], {}, {"limit": "worker01", **sent}
        )
        assert (status, job["job_type"], job["limit"]) == (201, wanted, "worker01"), (name, sent)


def workflows(awx: StandIn) -> None:
    """Who follows whom, and what is whose."""
    jobs = {found["name"]: found for found in awx.lists["job_templates"].values()}
    nodes = {
        found["identifier"]: found for found in awx.lists["workflow_job_template_nodes"].values()
    }
    follows = {
        name: awx.relations.get(f"{node['url']}{how}_nodes/")
        for name, node in nodes.items()
        for how in ("success", "always")
    }
    assert awx.relations[f"{nodes['triage']['url']}success_nodes/"] == [nodes["rehearse"]["id"]]
    assert awx.relations[f"{nodes['rehearse']['url']}success_nodes/"] == [nodes["approve"]["id"]]
    assert awx.relations[f"{nodes['approve']['url']}success_nodes/"] == [nodes["repair"]["id"]]
    assert awx.relations[f"{nodes['slices']['url']}always_nodes/"] == [nodes["merge"]["id"]]
    assert not follows["repair"] and not follows["merge"]
    assert nodes["repair"]["unified_job_template"] == jobs["Storage: respond"]["id"]
    assert nodes["rehearse"]["unified_job_template"] == jobs["Storage: respond (check)"]["id"]
    assert "workflow_approval_templates" in nodes["approve"]["related"]["unified_job_template"]
    (approval,) = awx.lists["workflow_approval_templates"].values()
    assert approval["timeout"] == 3600
    # Each job ends at some time, so that those that wait for it have their turn.
    limits = {name: job["timeout"] for name, job in jobs.items() if name.startswith("Storage: ")}
    assert limits["Storage: compliance"] == limits["Storage: triage"] == 43200
    assert limits["Storage: respond"] == limits["Storage: respond (check)"] == 86400
    assert set(limits.values()) == {43200, 86400}

    # Secrets went where they belong, as they are, and nowhere else.
    assert sorted(awx.secrets) == sorted([SECRET, KEYRING])
    assert awx.named("credentials", "Storage: cluster")["inputs"] == {"kubeconfig": ENCRYPTED}
    injectors = awx.named("credential_types", "Storage: kubeconfig")["injectors"]
    assert injectors["file"] == {"template.kubeconfig": "{{ kubeconfig }}"}


def former() -> StandIn:
    """An AWX as earlier ones of 0.1.0 have left it.

    The objects lack what was added since, an operator has changed one, and the workflow has no more
    steps than before the approval, at which it stopped.
    """
    awx = fresh()
    home, login = awx.named("organizations", "Default")["id"], awx.named("credentials", "ssh")["id"]
    image = {"name": "Storage: execution environment", "image": IMAGE, "pull": "missing"}
    where = {"scm_type": "git", "scm_url": "https://github.com/storage-ops/runbooks"}
    for kind in load(DATA / "credential_types.yml")["__awx_credential_types"]:
        injectors = kind["injectors"]
        if kind["name"] == "Storage: Ceph client":
            injectors = {
                **injectors,
                "env": {"CEPH_ARGS": "--keyring {{ tower.filename.keyring }}"},
            }
        awx.add("credential_types", {**kind, "kind": "cloud", "injectors": injectors})
    basics = {
        "execution_environment": awx.add("execution_environments", image)["id"],
        "inventory": awx.add("inventories", {"name": "Storage nodes", "organization": home})["id"],
        "project": awx.add(
            "projects", {"name": "Storage: runbooks", "organization": home, **where}
        )["id"],
        **{
            "ask_variables_on_launch": True,
            "ask_verbosity_on_launch": True,
            "survey_enabled": True,
        },
    }
    folder = {"compliance_report_folder": "/srv/former", "compliance_report_fleet": "default"}
    numbers = {}
    for template, kind in (
        (each, how) for each in SOME for how in ["run", "check"][: 1 + each["twin"]]
    ):
        body = {
            "name": f"Storage: {template['name']}{' (check)' * (kind == 'check')}",
            "job_type": kind,
            **basics,
        }
        body["extra_vars"] = json.dumps(folder if template["name"] == "compliance" else {})
        made = awx.add(
            "job_templates", {**body, "playbook": f"playbooks/{template['playbook']}.yml"}
        )
        numbers[made["name"]] = made["id"]
        asked = [
            question
            for question in survey(template)
            if not question["variable"].endswith("_strict")
        ]
        asked = [
            {**({} if "choices" in question else {"default": ""}), **question} for question in asked
        ]
        assert (
            below(awx, made, "survey_spec", {"name": "", "description": "", "spec": asked}) == 200
        )
        assert (
            "machine" not in template["needs"]
            or below(awx, made, "credentials", {"id": login}) == 204
        )
    awx.named("job_templates", "Storage: respond").update(BY_HAND)
    flow = awx.add(
        "workflow_job_templates", {"name": "Storage: triage, approve, repair", "organization": home}
    )["id"]
    step = {"workflow_job_template": flow, "unified_job_template": numbers["Storage: respond"]}
    awx.add("workflow_job_template_nodes", {**step, "identifier": "repair"})
    node = awx.add(
        "workflow_job_template_nodes", {"workflow_job_template": flow, "identifier": "approve"}
    )
    approval = {"name": "Storage: repair what triage has found", "timeout": 86400}
    assert below(awx, node, "create_approval_template", approval) == 201
    rule = {"rrule": "DTSTART:20260101T023000Z RRULE:FREQ=DAILY;INTERVAL=1"}
    rule |= {
        "description": "Compliance of the storage of all nodes",
        "unified_job_template": numbers["Storage: compliance"],
    }
    awx.add("schedules", {"name": NIGHTLY, **rule})
    awx.writes.clear()
    return awx


BY_HAND = {"limit": "worker01", "job_tags": "never", "verbosity": 4, "become_enabled": True}


def below(awx: StandIn, made: dict[str, Any], what: str, body: dict[str, Any]) -> int:
    """The status of the answer to what is sent below an object."""
    return awx.answer("POST", made["related"][what], {}, body)[0]


def test_configured_as_code(tmp_path: Path) -> None:
    """A part of the templates, with all else that there is: from the version before, and from one
    slice to four and back.
    """
    awx, variables = former(), full(tmp_path)
    four = {**variables, "configure_awx_slices": "4"}
    assert nightly(awx) == ["Storage: compliance"]
    with serve(awx) as url:
        assert green(configure(url, **four)) > 0
        # What somebody has changed by hand does not stay.
        set_back = {"limit": "", "job_tags": "", "verbosity": 0, "become_enabled": False}
        assert awx.named("job_templates", "Storage: respond").items() >= set_back.items()
        assert nightly(awx) == ["Storage: compliance in slices"]
        # What does not read the cluster gets no way to it.
        source = awx.named("inventory_sources", "Storage: nodes")
        assert (source["credential"], source["execution_environment"]) == (None, None)
        templates(awx)
        workflows(awx)
        awx.writes.clear()
        # Only the sync, which finds nothing new.
        assert green(configure(url, **four)) == 0
        assert [re.sub(r"/\d+/", "/N/", each) for each in awx.writes] == [
            "POST /api/v2/projects/N/update/"
        ]
        awx.writes.clear()
        assert green(configure(url, "--check", **four)) == 0
        # One of somebody else, of the same name, stays.
        mine = {
            "name": "Storage: weekly",
            "rrule": "DTSTART:20260101T023000Z RRULE:FREQ=WEEKLY;INTERVAL=1",
        }
        flow = awx.named("workflow_job_templates", "Storage: compliance in slices")["id"]
        awx.add("schedules", {**mine, "unified_job_template": flow})
        # One of an earlier version is named.
        project = awx.named("projects", "Storage: runbooks")["id"]
        awx.add(
            "job_templates",
            {"name": "Storage: former", "project": project, "playbook": "playbooks/triage.yml"},
        )
        assert green(configure(url, "--check", **variables)) > 0 and awx.writes == []
        last = configure(url, **variables)
        assert green(last) > 0 and "Remove the unused ones: Storage: former" in last.stdout
        assert nightly(awx) == ["Storage: compliance"] and awx.named("schedules", "Storage: weekly")
        fewer = configure(url, "--check", **{**variables, "configure_awx_report_variables": {}})
        assert (
            "which this run would remove" in red(fewer) and "compliance_ceph_host" in fewer.stdout
        )
        fewer = configure(url, **variables, configure_awx_machine_credential="")
        assert "Storage: respond has ssh, which this run would remove" in red(fewer)
    launches(awx)


@pytest.mark.variation
def test_all_templates() -> None:
    """Every template, with nothing but what has to be given, in AWX's own execution environment;
    and a second time.
    """
    awx = fresh()
    alone = {"configure_awx_image": "", "configure_awx_machine_credential": ""}
    with serve(awx) as url:
        assert green(configure(url, **alone)) > 0
        assert green(configure(url, **alone)) == 0
    twins = sum(template["twin"] for template in TEMPLATES)
    jobs = awx.lists["job_templates"].values()
    assert len(jobs) == len(TEMPLATES) + len(SLICING) + twins
    stock = awx.named("execution_environments", "AWX EE (latest)")["id"]
    assert {job["execution_environment"] for job in jobs} == {stock}
    assert all(job["ask_job_type_on_launch"] == (job["job_type"] == "run") for job in jobs)
    assert nightly(awx) == ["Storage: compliance"]


def test_an_empty_awx_in_check_mode() -> None:
    """Check mode on an AWX that has nothing yet says what it would make, is not red, and makes
    nothing.
    """
    awx = fresh()
    with serve(awx) as url:
        answer = configure(url, "--check", __awx_templates=SOME)
        assert green(answer) > 0 and awx.writes == []
        for name in ("triage", "respond", "compliance", "approve", "merge", NIGHTLY):
            assert f'"{name}"' in answer.stdout.partition("Report what could not be compared")[2]
        # What it does not make is missed in check mode, too.
        for given, words in (
            ({"configure_awx_machine_credential": "root"}, "the credential root"),
            ({"configure_awx_inventory_project": "hosts"}, "the project hosts"),
            ({"configure_awx_organization": "Storage"}, "the organization Storage"),
            (
                {"configure_awx_image": "", "configure_awx_execution_environment": "x"},
                "the execution environment x",
            ),
            (
                {
                    "configure_awx_report_variables": "{{ lookup('ansible.builtin.file', "
                    "'none.yml') }}"
                },
                "none.yml",
            ),
            (
                {"configure_awx_report_variables": {"compliance_ceph_hots": "x"}},
                "did you mean compliance_ceph_host?",
            ),
            (
                {"configure_awx_slices": "many"},
                "configure_awx_slices must be a number from 1 to 999, not many",
            ),
        ):
            assert words in red(configure(url, "--check", **given)), given
    nowhere = {"CONTROLLER_HOST": "", "AAP_HOSTNAME": "https://aap.example.com"}
    assert "awx.awx reads its address from CONTROLLER_HOST" in red(configure("", more=nowhere))


def test_the_nodes_of_the_cluster_as_inventory() -> None:
    """A source that reads the cluster is given the credential and the environment for that."""
    awx, some = fresh(), {"__awx_templates": SOME, "configure_awx_kubeconfig": SECRET}
    some["configure_awx_inventory_project"] = "inventories"
    some["configure_awx_inventory_path"] = "fleet/nodes.storage_ops.yml"
    with serve(awx) as url:
        said = red(configure(url, **some, configure_awx_inventory_credential="none"))
        assert "AWX does not have the credential none." in said
        assert green(configure(url, **some)) > 0
        source = awx.named("inventory_sources", "Storage: nodes")
        image = awx.named("execution_environments", "Storage: execution environment")
        assert source["source_path"] == "fleet/nodes.storage_ops.yml"
        assert source["credential"] == awx.named("credentials", "Storage: cluster")["id"]
        assert source["execution_environment"] == image["id"]
        # A token of AWX's own type instead.
        kind = awx.make("credential_types", {"name": "Kubernetes", "kind": "kubernetes"})
        home = awx.named("organizations", "Default")["id"]
        token = {"name": "token", "organization": home, "credential_type": kind["id"]}
        mine = awx.add("credentials", token)["id"]
        some["configure_awx_inventory_credential"] = "token"
        assert green(configure(url, **some)) == 1
        assert awx.named("inventory_sources", "Storage: nodes")["credential"] == mine
        assert green(configure(url, "--check", **some)) == 0


@pytest.mark.variation
def test_lowest_ansible_core(tmp_path: Path) -> None:
    """It makes the same as any other one, which finds nothing to change."""
    awx, some = fresh(), {**full(tmp_path), "configure_awx_slices": 4}
    path = {"ANSIBLE_COLLECTIONS_PATH": f"{environment()['ANSIBLE_COLLECTIONS_PATH']}:{ELSEWHERE}"}
    with serve(awx) as url:
        assert green(configure(url, program=lowest("ansible-playbook"), more=path, **some)) > 0
        templates(awx)
        workflows(awx)
        assert nightly(awx) == ["Storage: compliance in slices"]
        assert green(configure(url, **some)) == 0


# The module for each variable of infra.aap_configuration, which does nothing else with an item of
# ours than to call that module (roles/controller_*/tasks/main.yml of its 3.1.0). The steps of a
# workflow are apart.
MODULES = {
    "controller_credential_types": "credential_type",
    "controller_credentials": "credential",
    "controller_execution_environments": "execution_environment",
    "controller_projects": "project",
    "controller_inventories": "inventory",
    "controller_inventory_sources": "inventory_source",
    "controller_templates": "job_template",
    "controller_workflows": "workflow_job_template",
    "controller_schedules": "schedule",
}
STEPS = "simplified_workflow_nodes"


def play_of(data: Path) -> list[dict[str, Any]]:
    """A play that has awx.awx make what is in the data, in its order."""
    found = load(data)
    assert [name for name in found if name in MODULES] == list(MODULES)
    tasks: list[dict[str, Any]] = []
    for variable, module in MODULES.items():
        for number, item in enumerate(found[variable]):
            where = f"{variable}[{number}]"
            # A project that is updated has changed.
            names = set(item) - {STEPS, "update_project"}
            given = {name: f"{{{{ {where}.{name} }}}}" for name in sorted(names)}
            tasks.append({f"awx.awx.{module}": given})
            of = {"workflow": f"{{{{ {where}.name }}}}"}
            of["organization"] = f"{{{{ {where}.organization }}}}"
            for step, links in ((n, links) for links in (False, True) for n in item.get(STEPS, [])):
                # An approval and links in one call: https://github.com/ansible/awx/issues/8777.
                names = {name for name in step if name.endswith("_nodes") == links}
                if not names:
                    continue
                at = f"{where}.{STEPS}[{item[STEPS].index(step)}]"
                given = {name: f"{{{{ {at}.{name} }}}}" for name in sorted({"identifier", *names})}
                tasks.append({"awx.awx.workflow_job_template_node": {**of, **given}})
    here = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    return [{"hosts": "localhost", "gather_facts": False, "vars": here, "tasks": tasks}]


@pytest.mark.variation
def test_data_for_another_collection(tmp_path: Path) -> None:
    """What is written is what the playbook makes, without secrets; AWX is not asked, and its
    collection is not needed.
    """
    data, some = tmp_path / "aap.yml", {**full(tmp_path), "configure_awx_slices": 4}
    written = {**some, "configure_awx_data_file": str(data)}
    alone = {"PYTHONPATH": ""}
    assert green(configure("", "--check", more=alone, **written)) == 1 and not data.exists()
    assert green(configure("", more=alone, **written)) == 1
    assert data.stat().st_mode & 0o777 == 0o600
    text = data.read_text()
    assert "c3ecre7" not in text and "kubeconfig: '{{ configure_awx_kubeconfig }}'" in text
    assert green(configure("", more=alone, **written)) == 0
    # Whatever ansible-core writes it.
    program = lowest("ansible-playbook") if HAS_LOWEST else "ansible-playbook"
    assert green(configure("", "--check", more=alone, program=program, **written)) == 0
    assert data.read_text() == text
    relative = red(configure("", **{**written, "configure_awx_data_file": "aap.yml"}))
    assert "configure_awx_data_file must be an absolute path, not aap.yml" in relative

    awx, play = fresh(), tmp_path / "play.yml"
    play.write_text(yaml.safe_dump(play_of(data)))
    with serve(awx) as url:
        assert green(configure(url, **some)) > 0
        secrets = {name: some[name] for name in ("configure_awx_kubeconfig",)}
        secrets["configure_awx_ceph_keyring"] = KEYRING
        settings = {**environment(), "CONTROLLER_HOST": url, "CONTROLLER_OAUTH_TOKEN": "x"}
        settings |= {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_PIPELINING": "1"}
        command = ["ansible-playbook", str(play), "-i", "localhost,", "-c", "local"]
        command += ["-e", f"@{data}", "-e", json.dumps(secrets)]
        assert green(of_ansible(command, settings)) == 0
        # What is changed by hand would have been found.
        awx.named("job_templates", "Storage: respond")["timeout"] = 1
        assert green(of_ansible(command, settings)) == 1


@pytest.mark.variation
def test_sync() -> None:
    """One that fails or does not start is told, with the project's name; the next run mends it, and
    gets what is new on the branch.
    """
    awx = fresh()
    some = {"__awx_templates": SOME, "configure_awx_sync_timeout": 1}
    with serve(awx) as url:
        for how in ("pending", "failed"):
            awx.syncs = how
            said = red(configure(url, **some))
            assert "AWX has not synced the project Storage: runbooks" in said and url in said
        assert not awx.lists["job_templates"]
        assert "is failed: it would be synced" in configure(url, "--check", **some).stdout
        awx.syncs = "successful"
        assert green(configure(url, **some)) > 0 and awx.lists["schedules"]
        awx.repository.append("playbooks/new.yml")
        assert green(configure(url, **some)) == 1
        project = awx.named("projects", "Storage: runbooks")
        assert "playbooks/new.yml" in awx.checkouts[project["id"]]
        # What is pushed to a branch is not run, as root on nodes, unless a user has chosen that.
        assert project["scm_branch"] == f"v{VERSION}"
        assert green(configure(url, **some, configure_awx_project_branch="main")) > 0
        assert awx.named("projects", "Storage: runbooks")["scm_branch"] == "main"


@pytest.mark.variation
def test_rights() -> None:
    """A superuser makes what only he can; whoever administers the organization does the rest."""
    awx, some = fresh(), {"__awx_templates": SOME}
    mine = {"execution_environments", "credential_types"}
    with serve(awx) as url:
        awx.forbidden = mine
        assert "let a superuser run this playbook once with --tags superuser" in red(
            configure(url, **some)
        )
        awx.forbidden = set()
        assert green(configure(url, "--tags", "superuser", **some)) == 2
        assert not awx.named("execution_environments", "Storage: execution environment")[
            "organization"
        ]
        assert not [
            each for each in awx.lists["projects"].values() if each["name"] == "Storage: runbooks"
        ]
        awx.forbidden = mine
        assert green(configure(url, **some)) > 0 and nightly(awx) == ["Storage: compliance"]


@pytest.mark.variation
def test_behind_the_gateway(tmp_path: Path) -> None:
    """The automation controller has its API elsewhere, and its collection another name."""
    awx = StandIn(fresh().repository, "/api/controller/")
    awx.add("organizations", {"name": "Default"})
    some = {"__awx_templates": SOME, "configure_awx_machine_credential": ""}
    with serve(awx) as url:
        said = red(configure(url, **some))
        assert "export CONTROLLER_OPTIONAL_API_URLPATTERN_PREFIX=/api/controller/" in said
        prefix = {"CONTROLLER_OPTIONAL_API_URLPATTERN_PREFIX": "/api/controller/"}
        assert green(configure(url, "--tags", "superuser", more=prefix, **some)) == 2
        # As https://github.com/ansible/awx/blob/devel/awx_collection/tools/template_galaxy.yml
        # makes it of the other one.
        source = Path(importlib.import_module("ansible_collections.awx.awx").__path__[0])
        home = tmp_path / "ansible_collections/ansible/controller"
        shutil.copytree(source, home, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        api = home / "plugins/module_utils/controller_api.py"
        api.write_text(
            api.read_text().replace('_COLLECTION_TYPE = "awx"', '_COLLECTION_TYPE = "controller"')
        )
        for path in home.rglob("*.py"):
            path.write_text(path.read_text().replace("awx.awx", "ansible.controller"))
        path = f"{tmp_path}:{environment()['ANSIBLE_COLLECTIONS_PATH']}"
        theirs = {"configure_awx_collection": "ansible.controller", **some}
        assert green(configure(url, more={"ANSIBLE_COLLECTIONS_PATH": path}, **theirs)) > 0
        assert nightly(awx) == ["Storage: compliance"]
        awx.writes.clear()
        assert green(configure(url, more={"ANSIBLE_COLLECTIONS_PATH": path}, **theirs)) == 0
        assert [re.sub(r"/\d+/", "/N/", each) for each in awx.writes] == [
            "POST /api/controller/v2/projects/N/update/"
        ]
    # Its own variables count, too: those of the address and of the certificate.
    pem = tmp_path / "server.pem"
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(pem), "-out", f"{pem}.crt"]
    subprocess.run(
        ["openssl", "req", "-x509", "-days", "2", *made, "-subj", "/CN=127.0.0.1"],
        check=True,
        capture_output=True,
    )
    pem.write_text(pem.read_text() + Path(f"{pem}.crt").read_text())
    with serve(awx, pem) as url:
        more = {"ANSIBLE_COLLECTIONS_PATH": path, "CONTROLLER_HOST": "", "AAP_HOSTNAME": url}
        more |= {"AAP_VALIDATE_CERTS": "false", "CONTROLLER_OPTIONAL_API_URLPATTERN_PREFIX": "/x/"}
        other = configure("", more=more, configure_awx_collection="ansible.controller", **some)
        assert f"There is no API of AWX at {url}/x/v2/ping/" in red(other)


@pytest.mark.smoke
def test_every_argument_is_one_of_the_module() -> None:
    """awx.awx documents each argument that the playbook gives, and each that is
    required is given.
    """
    play = yaml.safe_load((ROOT / "playbooks/configure_awx.yml").read_text())[-1]
    flat = [
        each
        for task in play["tasks"]
        for each in (*task.get("block", []), *task.get("rescue", []), task)
    ]
    seen = []
    for task in (each for each in flat if f"{COLLECTION}.awx_object" in each):
        made = task[f"{COLLECTION}.awx_object"]
        name, given = made["kind"], made["arguments"]
        module = importlib.import_module(f"ansible_collections.awx.awx.plugins.modules.{name}")
        options = yaml.safe_load(module.DOCUMENTATION)["options"]
        assert set(given) <= set(options), task["name"]
        assert {key for key, option in options.items() if option.get("required")} <= set(given), (
            task["name"]
        )
        for key, value in given.items():
            assert "{{" in str(value) or value in options[key].get("choices", [value]), (
                task["name"],
                key,
            )
        # What holds a secret says nothing, and what is a secret is not in the data.
        assert name != "credential" or (task["no_log"] and made["secrets"])
        seen.append(name)
    assert len(seen) == 13


# Surveys and playbooks


def text_of(playbook: str) -> str:
    """A playbook, and what its first play checks."""
    text = (ROOT / "playbooks" / f"{playbook}.yml").read_text()
    return text + (
        (ROOT / "playbooks/check_target.yml").read_text() if "check_target" in text else ""
    )


def roles_of(playbook: str) -> list[str]:
    """The roles that it runs by name, but not the one that only prints."""
    found = re.findall(rf"(?:role|name): {COLLECTION}\.(\w+)$", text_of(playbook), re.MULTILINE)
    return [
        role
        for role in dict.fromkeys(found)
        if (ROOT / "roles" / role).is_dir() and role != "show_findings"
    ]


def options_of(role: str) -> dict[str, Any]:
    found: dict[str, Any] = load(ROOT / "roles" / role / "meta/argument_specs.yml")[
        "argument_specs"
    ]["main"]["options"]
    return found


# Options of the roles that no survey asks for, since operators leave them as they are: time-outs,
# how often something is looked at, where things are on a host, and what one part of a playbook
# tells the other.
LEFT_OUT = re.compile(
    r"_(failover_ceph_host|timeout|deadline|kubelet_root|crictl|runtime_endpoint|run_id"
    r"|release_lease|prove|lease_seconds|ledger_namespace|leader_process"
    r"|restart_command|grace_seconds|(min_)?observations|(min_)?observation_seconds|pending_seconds"
    r"|slow_seconds|unstage_seconds"
    r"|ceph_(conf|keyring|user|cluster)|rados_namespaces|peer_(initiator_names|boot_ids)"
    r"|credential_keys|drivers|volumes|fence|wait_for"
    r"|hosts|result|others|inputs|partial|folder|keep|formats|prometheus_file|title|cluster|slice"
    r"|namespace|claims|nodes|node|attachments"
    r"|required_metadata|vendor|product|rescan_targets|strict"
    # A BMC belongs to the inventory, and its password to a credential.
    r"|bmcs|bmc_user|bmc_password|accept_unverified_bmc|power_seconds|users"
    r"|options|fleet|accept_short_observation)$"
)


def as_answer(default: Any) -> str:
    """A default as a survey shows it."""
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, list) else "" if default == {} else str(default)


@pytest.mark.smoke
def test_every_runbook_has_a_template() -> None:
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    assert {template["playbook"] for template in TEMPLATES} == playbooks - PARTS
    # What only reads has no twin.
    assert [template["name"] for template in TEMPLATES if not template["twin"]] == [
        "triage",
        "compliance",
    ]
    assert len({template["name"] for template in TEMPLATES + SLICING}) == len(TEMPLATES + SLICING)
    assert all(
        (ROOT / "playbooks" / f"{template['playbook']}.yml").exists() for template in SLICING
    )


@pytest.mark.smoke
@pytest.mark.parametrize("name", BY_NAME)
def test_survey_asks_what_the_playbook_reads(name: str) -> None:
    """No question is without effect, each default is that of the role, and no option that an
    operator sets is forgotten.
    """
    template = BY_NAME[name]
    # What respond repairs, it repairs with the defaults, so it does not ask.
    text, roles = (
        text_of(template["playbook"]),
        [] if name == "respond" else roles_of(template["playbook"]),
    )
    # Where pods are moved, the role that moves them is run by another one.
    known = {
        option: spec
        for role in [*roles, "workload_reattach"]
        for option, spec in options_of(role).items()
    }
    questions = {question["variable"]: question for question in survey(template)}
    assert len(questions) == len(template["survey"])
    for variable, question in questions.items():
        if variable.endswith("_strict"):
            # Whoever looks at a job's colour alone is told of what is left; at a shell the text is
            # read.
            assert question["default"] == "true", variable
        elif variable in known:
            assert question.get("default", "") == as_answer(known[variable].get("default")), (
                variable
            )
        else:
            assert re.search(rf"\b{variable}\b(?! *#)", re.sub(r"(?m)^#.*$", "", text)), (
                f"{variable} is read nowhere"
            )
        assert question["type"] in ("text", "textarea", "multiplechoice") and isinstance(
            question.get("default", ""), str
        )
        assert ("choices" in question) == (question["type"] == "multiplechoice")
        assert question.get("default", "") in [
            "",
            *question.get("choices", [question.get("default", "")]),
        ]
        assert isinstance(known.get(variable, {}).get("default"), bool) <= (
            question.get("choices") == ["false", "true"]
        ), variable
        assert not question["required"] or question["min"] == 1
    forgotten = {option for role in roles for option in options_of(role)} - set(questions)
    assert [option for option in sorted(forgotten) if not LEFT_OUT.search(option)] == []


# What the step before hands on.
ARTIFACTS = ("storage_outcome", "storage_compliance")


@pytest.mark.smoke
@pytest.mark.parametrize(
    "template", TEMPLATES + SLICING, ids=[each["name"] for each in TEMPLATES + SLICING]
)
def test_no_variable_of_a_template_ends_its_job(template: dict[str, Any]) -> None:
    """A run ends for a variable that does not exist: none of what the survey, the template, AWX and
    the step before give is one.
    """
    given = {question["variable"] for question in survey(template)} | {*META, *ARTIFACTS}
    if template["name"] == "respond":
        given.add("respond_rehearsed")
    if template["playbook"] in ("compliance", "merge_compliance_reports"):
        more = load(DATA / "templates.yml")["__awx_slice_vars"]
        given |= {*REPORT, "compliance_report_fleet", "compliance_report_prometheus_file", *more}
    tasks = re.findall(
        r"(?m)^( +)storage_ops\.runbooks\.check_scope:\n((?:\1 +.*\n)*)",
        text_of(template["playbook"]),
    )
    checks = [yaml.safe_load(textwrap.dedent(body)) or {} for _indent, body in tasks]
    assert checks, "nothing checks the scope"
    for check in checks:
        known = Known.read(ROOT / "roles", check.get("variables", []), check.get("prefixes", []))
        assert known.unknown(given, given) == {}


def test_targets_are_asked_for() -> None:
    """A playbook that repairs hosts has no default for them."""
    for template in TEMPLATES:
        if "import_playbook: check_target.yml" in text_of(template["playbook"]):
            assert next(
                question for question in survey(template) if question["variable"] == "target"
            )["required"], template["name"]


def test_limits() -> None:
    """Every template takes a limit.

    Where a play runs on the localhost only, one without it would make a job green that does
    nothing.
    """
    for template in [*TEMPLATES, *SLICING]:
        plays = yaml.safe_load((ROOT / "playbooks" / f"{template['playbook']}.yml").read_text())
        imported = [play.get("ansible.builtin.import_playbook") for play in plays]
        alone = any(play.get("hosts") == "localhost" for play in plays)
        assert alone == (imported[0] == "check_limit.yml"), template["name"]


def test_rulebooks_name_templates_and_their_questions() -> None:
    """What is started by an event is there, and asks for what the event says."""
    names = {f"Storage: {template['name']}": template for template in TEMPLATES}
    for path in sorted((ROOT / "extensions/eda/rulebooks").glob("*_awx.yml")):
        local = yaml.safe_load(path.with_name(path.name.replace("_awx", "")).read_text())[0]
        remote = yaml.safe_load(path.read_text())[0]
        assert remote["sources"] == local["sources"]
        for here, there in zip(local["rules"], remote["rules"], strict=True):
            job, play = there["action"]["run_job_template"], here["action"]["run_playbook"]
            assert (here["condition"], here["throttle"]) == (there["condition"], there["throttle"])
            assert (
                names[job["name"]]["playbook"] == play["name"].rpartition(".")[2]
                and job["include_events"] is False
            )
            answers = job.get("job_args", {}).get("extra_vars", {})
            assert answers == play.get("extra_vars", {})
            assert set(answers) <= {question["variable"] for question in survey(names[job["name"]])}


def test_credential_types() -> None:
    """Each secret is one, and is handed to jobs as a file of its own."""
    for kind in load(DATA / "credential_types.yml")["__awx_credential_types"]:
        fields = {field["id"]: field for field in kind["inputs"]["fields"]}
        assert set(kind["inputs"]["required"]) <= set(fields)
        used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(kind["injectors"])))
        assert used == set(fields)
        for name in (name for name, field in fields.items() if field.get("secret")):
            assert kind["injectors"]["file"] == {
                **kind["injectors"]["file"],
                f"template.{name}": f"{{{{ {name} }}}}",
            }
            assert f"{{{{ {name} }}}}" not in json.dumps(kind["injectors"]["env"])


def run(*command: str, cwd: Path) -> None:
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=patient(120),
        env=environment(),
        cwd=cwd,
    )


def context(folder: Path, name: str) -> str:
    """The container file that ansible-builder makes of a definition; its context is below folder.

    It gets packages by their hashes before all else, and needs a base image with a digest.
    """
    shutil.copy(ROOT / f"{name}.yml", folder)
    (folder / "requirements").mkdir()
    shutil.copy(ROOT / f"requirements/{name}.txt", folder / "requirements")
    locked = (ROOT / f"requirements/{name}.txt").read_text()
    run(
        "ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(folder), cwd=folder
    )
    create = ("ansible-builder", "create", "--file", f"{name}.yml", "--context")
    run(*create, str(folder / "context"), cwd=folder)
    # Its name depends on which container engine is there.
    made = next((folder / "context").glob("*file")).read_text()
    assert "ansible-galaxy collection install" in made
    # Nothing but packages by their hashes, before the first one that looks for Ansible.
    (given,) = re.findall(r'^ARG EE_BASE_IMAGE="(.*)"$', made, re.MULTILINE)
    assert ".invalid/" in given
    base = made.partition("FROM base AS galaxy")[0]
    assert (
        f"--require-hashes --requirement /tmp/{name}.txt" in base
        and "ANSIBLE_INSTALL_REFS" not in made
    )
    assert (folder / f"context/_build/{name}.txt").read_text() == locked
    (guard,) = re.findall(r"^RUN (case .*esac)$", base, re.MULTILINE)
    for image, expected in (
        (given, 1),
        ("base:42", 1),
        ("base@sha256:12", 1),
        (f"base@sha256:{'a' * 64}", 0),
    ):
        said = subprocess.run(
            ["sh", "-c", guard],
            env={"EE_BASE_IMAGE": image},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == expected and ("has no digest" in said.stderr) == bool(expected), (
            image,
            said,
        )
    assert (
        "ARG EE_BASE_IMAGE"
        in base.partition("FROM $EE_BASE_IMAGE AS base")[2].partition("RUN case")[0]
    )
    return made


def test_decision_environment(tmp_path: Path) -> None:
    """ansible-builder accepts the definition, and a build ends where ansible-rulebook would not
    find the library of the event source.
    """
    made = context(tmp_path, "decision-environment")
    final = made.partition("FROM base AS final")[2]
    # It starts as the base image does.
    assert "ENTRYPOINT" not in made and "CMD [" not in made
    assert 'ARG PYCMD="/usr/bin/python3.11"' in made
    (check,) = re.findall(r"^RUN (ansible-rulebook --version.*)$", final, re.MULTILINE)
    for module, status in (("kubernetes", 0), ("no_such_module", 1)):
        command = ["sh", "-c", check.replace("import kubernetes", f"import {module}")]
        said = subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False
        )
        assert said.returncode == status, said


def test_execution_environment(tmp_path: Path) -> None:
    """ansible-builder accepts the definition, and the image gets the collection of this checkout,
    which says what else it needs.
    """
    context(tmp_path, "execution-environment")
    # As the image does, but without what the collection depends on.
    install = ("ansible-galaxy", "collection", "install", "--force", "--no-deps", "--offline")
    own, needed_too = load(tmp_path / "context/_build/requirements.yml")["collections"]
    assert set(needed_too) == {"name", "version"}
    run(
        *install,
        f"./{own['name']}",
        "-p",
        str(tmp_path / "installed"),
        cwd=tmp_path / "context/_build",
    )
    assert (
        tmp_path
        / "installed/ansible_collections"
        / COLLECTION.replace(".", "/")
        / "playbooks/compliance.yml"
    ).exists()
    # As AWX does it when it syncs the project, but from this repository.
    (named,) = load(ROOT / "collections/requirements.yml")["collections"]
    assert named == {
        "name": f"{load(ROOT / 'galaxy.yml')['repository']}.git",
        "type": "git",
        "version": f"v{VERSION}",
    }
    here = {**named, "name": f"git+file://{ROOT.resolve()}", "version": "HEAD"}
    (tmp_path / "requirements.yml").write_text(yaml.safe_dump({"collections": [here]}))
    run(*install, "-r", "requirements.yml", "-p", str(tmp_path / "synced"), cwd=tmp_path)
    assert (
        tmp_path / "synced/ansible_collections" / COLLECTION.replace(".", "/") / "roles"
    ).is_dir()
    needed = (ROOT / "meta/ee-requirements.txt").read_text()
    assert "kubernetes" in needed and "jmespath" in needed

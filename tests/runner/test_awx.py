# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What configure_awx makes: with awx.awx's own modules, but against a stand-in for AWX's API. A real AWX cannot be had here."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from awx_stand_in import ENCRYPTED, StandIn, serve
from lab.common import patient
from node import COLLECTION, environment

ROOT = Path(__file__).parents[2]
DATA = ROOT / "playbooks" / "files" / "awx"
# With all that templates and shells have something to say about.
SECRET = "apiVersion: v1\nusers: [{user: {token: 'c3ecre7-{{ 1 + 1 }}'}}]"
KEYRING = "[client.admin]\n\tkey = c3ecre7AQB=="


class Loader(yaml.SafeLoader):
    """Knows Ansible's !unsafe."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def load(path: Path) -> Any:
    return yaml.load(path.read_text(), Loader)


TEMPLATES: list[dict[str, Any]] = load(DATA / "templates.yml")["__awx_templates"]
SLICING: list[dict[str, Any]] = load(DATA / "templates.yml")["__awx_slicing"]
BY_NAME = {template["name"]: template for template in TEMPLATES}
# Not runbooks: parts of others, and what configures AWX itself.
PARTS = {"check_limit", "check_target", "conclude", "configure_awx", "merge_compliance_reports"}


def survey(template: dict[str, Any]) -> list[dict[str, Any]]:
    """The questions, as the playbook hands them to AWX."""
    return [{name: value for part in question for name, value in part.items()} for question in template["survey"]]


def configure(url: str, *options: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run the playbook."""
    answers = {"configure_awx_image": "registry.example.com/storage-ops:0.1.0", "configure_awx_machine_credential": "ssh", **variables}
    settings = {**environment(), "CONTROLLER_HOST": url, "CONTROLLER_OAUTH_TOKEN": "c3ecre7-token", "ANSIBLE_STDOUT_CALLBACK": "default"}
    command = ["ansible-playbook", f"{COLLECTION}.configure_awx", "-i", "localhost,", "-e", json.dumps(answers), *options]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=patient(300), env=settings)
    assert "c3ecre7" not in answer.stdout + answer.stderr
    return answer


def fresh() -> StandIn:
    """What every AWX has, and what an operator has made before."""
    awx = StandIn()
    awx.add("organizations", {"name": "Default"})
    awx.add("credential_types", {"name": "Machine", "inputs": {"fields": []}})
    awx.add("credentials", {"name": "ssh", "credential_type": 2, "inputs": {}})
    awx.add("projects", {"name": "inventories", "organization": 1})
    return awx


EXCEPTIONS = [{"select": "[?object.name == 'mpatha']", "owner": "storage", "reason": "being replaced", "expires": "2027-01-31"}]
REPORT = {"compliance_ceph_host": "ceph-admin", "compliance_report_exceptions": EXCEPTIONS, "compliance_report_folder": "/not/this"}


def scenario(folder: Path, **variables: Any) -> StandIn:
    """For real, and in check mode again."""
    awx = fresh()
    (folder / "kubeconfig").write_text(SECRET)
    variables |= {"configure_awx_kubeconfig": f"{{{{ lookup('ansible.builtin.file', '{folder}/kubeconfig') }}}}"}
    variables |= {"configure_awx_ceph_conf": "[global]", "configure_awx_ceph_keyring": KEYRING}
    variables |= {"configure_awx_report_variables": REPORT, "configure_awx_slices": "4", "configure_awx_inventory_project": "inventories"}
    with serve(awx) as url:
        first = configure(url, **variables, configure_awx_schedule="DTSTART;TZID=Europe/Berlin:20260101T010000 RRULE:FREQ=DAILY;INTERVAL=1")
        assert first.returncode == 0 and "failed=0" in first.stdout, first.stdout + first.stderr
        assert "duplicate mapping" not in first.stderr
        awx.writes.clear()
        again = configure(
            url, "--check", **variables, configure_awx_schedule=awx.named("schedules", "Storage: compliance every night")["rrule"]
        )
        assert again.returncode == 0 and "changed=0 " in again.stdout and "ignored=0" in again.stdout, again.stdout + again.stderr
        assert awx.writes == []
    return awx


def test_configured_as_code(tmp_path: Path) -> None:
    """A part of the templates is made as it should be, and a second run finds nothing to do."""
    some = [BY_NAME[name] for name in ("triage", "respond", "compliance")]
    awx = scenario(tmp_path, __awx_templates=some)
    jobs = {found["name"]: found for found in awx.lists["job_templates"].values()}
    assert set(jobs) == {
        *("Storage: triage", "Storage: respond", "Storage: respond (check)", "Storage: compliance"),
        *("Storage: compliance slices", "Storage: merge compliance slices"),
    }
    twin = jobs["Storage: respond (check)"]
    assert (twin["job_type"], jobs["Storage: respond"]["job_type"], twin["playbook"]) == (
        *("check", "run"),
        "playbooks/respond.yml",
    )
    assert awx.surveys[twin["related"]["survey_spec"]]["spec"] == survey(BY_NAME["respond"])
    # Nobody needs AWX's rights, or the fleet's, to look at a cluster.
    assert [awx.lists["credentials"][each]["name"] for each in awx.relations[f"{jobs['Storage: triage']['url']}credentials/"]] == [
        "Storage: cluster"
    ]

    slices = jobs["Storage: compliance slices"]
    assert slices["job_slice_count"] == 4 and slices["forks"] == 50
    given = json.loads(slices["extra_vars"])
    assert given["compliance_report_folder"] == "/var/lib/storage_compliance/slices/{{ awx_workflow_job_id }}/{{ awx_job_id }}"
    assert given["compliance_cluster"] == "false" and given["compliance_report_formats"] == ["json"]
    # What a scheduled run has to know is code. What is not asked cannot be outdone by the empty answer of a run that nobody has started.
    whole = jobs["Storage: compliance"]
    for job, folder in ((whole, "/var/lib/storage_compliance"), (slices, given["compliance_report_folder"])):
        assert json.loads(job["extra_vars"]).items() >= {**REPORT, "compliance_report_folder": folder}.items()
    asked = {question["variable"]: question for question in awx.surveys[whole["related"]["survey_spec"]]["spec"]}
    assert set(asked) == {question["variable"] for question in survey(BY_NAME["compliance"])} - set(REPORT)
    assert not [name for name, question in asked.items() if question.get("default") == ""]
    # Nobody gives ssh's options, or anything else that the survey does not ask.
    assert not [name for name, job in jobs.items() if job["ask_variables_on_launch"]]

    nodes = {found["identifier"]: found for found in awx.lists["workflow_job_template_nodes"].values()}
    follows = {name: awx.relations.get(f"{node['url']}{how}_nodes/") for name, node in nodes.items() for how in ("success", "always")}
    assert awx.relations[f"{nodes['triage']['url']}success_nodes/"] == [nodes["rehearse"]["id"]]
    assert awx.relations[f"{nodes['rehearse']['url']}success_nodes/"] == [nodes["approve"]["id"]]
    assert awx.relations[f"{nodes['approve']['url']}success_nodes/"] == [nodes["repair"]["id"]]
    assert awx.relations[f"{nodes['slices']['url']}always_nodes/"] == [nodes["merge"]["id"]]
    assert not follows["repair"] and not follows["merge"]
    assert nodes["repair"]["unified_job_template"] == jobs["Storage: respond"]["id"]
    assert nodes["rehearse"]["unified_job_template"] == jobs["Storage: respond (check)"]["id"]
    assert "workflow_approval_templates" in nodes["approve"]["related"]["unified_job_template"]
    nightly = awx.named("schedules", "Storage: compliance every night")
    assert nightly["unified_job_template"] == awx.named("workflow_job_templates", "Storage: compliance in slices")["id"]

    # Secrets went where they belong, as they are, and nowhere else.
    assert sorted(awx.secrets) == sorted([SECRET, KEYRING])
    assert awx.named("credentials", "Storage: cluster")["inputs"] == {"kubeconfig": ENCRYPTED}
    injectors = awx.named("credential_types", "Storage: kubeconfig")["injectors"]
    assert injectors["file"] == {"template.kubeconfig": "{{ kubeconfig }}"}


def test_all_templates(tmp_path: Path) -> None:
    """The same with every template."""
    awx = scenario(tmp_path)
    twins = sum(template["twin"] for template in TEMPLATES)
    assert len(awx.lists["job_templates"]) == len(TEMPLATES) + len(SLICING) + twins


def test_an_empty_awx_in_check_mode() -> None:
    """Check mode on an AWX that has nothing yet says what it would make, and makes nothing."""
    awx = fresh()
    with serve(awx) as url:
        answer = configure(url, "--check", __awx_templates=[BY_NAME["triage"], BY_NAME["respond"]])
        assert answer.returncode == 0 and awx.writes == [], answer.stdout + answer.stderr
        refused = configure(url, configure_awx_image="")
    assert refused.returncode != 0 and "configure_awx_image is required" in refused.stdout and awx.writes == []
    nowhere = configure("")
    assert nowhere.returncode != 0 and "which AWX it is, as CONTROLLER_HOST" in nowhere.stdout


@pytest.mark.smoke
def test_every_argument_is_one_of_the_module() -> None:
    """awx.awx documents each argument that the playbook gives, and each that is required is given."""
    tasks = yaml.safe_load((ROOT / "playbooks/configure_awx.yml").read_text())[-1]["tasks"]
    seen = 0
    for task in tasks:
        for action in (name for name in task if name.startswith("awx.awx.")):
            module = importlib.import_module(f"ansible_collections.awx.awx.plugins.modules.{action.rpartition('.')[2]}")
            options = yaml.safe_load(module.DOCUMENTATION)["options"]
            assert set(task[action]) <= set(options), task["name"]
            assert {name for name, option in options.items() if option.get("required")} <= set(task[action]), task["name"]
            for name, value in task[action].items():
                assert "{{" in str(value) or value in options[name].get("choices", [value]), (task["name"], name)
            # What holds a secret says nothing.
            assert ("credential" not in action.split(".")[2].split("_")[:1] or action.endswith("_type")) or task["no_log"]
            seen += 1
    assert seen == 12


# Surveys and playbooks


def text_of(playbook: str) -> str:
    """A playbook, and what its first play checks."""
    text = (ROOT / "playbooks" / f"{playbook}.yml").read_text()
    return text + ((ROOT / "playbooks/check_target.yml").read_text() if "check_target" in text else "")


def roles_of(playbook: str) -> list[str]:
    """The roles that it runs by name, but not the one that only prints."""
    found = re.findall(rf"(?:role|name): {COLLECTION}\.(\w+)$", text_of(playbook), re.MULTILINE)
    return [role for role in dict.fromkeys(found) if (ROOT / "roles" / role).is_dir() and role != "show_findings"]


def options_of(role: str) -> dict[str, Any]:
    found: dict[str, Any] = load(ROOT / "roles" / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return found


# Options of the roles that no survey asks for, since operators leave them as they are: time-outs, how often something is looked at, where
# things are on a host, and what one part of a playbook tells the other.
LEFT_OUT = re.compile(
    r"_(failover_ceph_host|timeout|deadline|kubelet_root|crictl|runtime_endpoint|run_id|release_lease|lease_seconds|ledger_namespace|leader_process"
    r"|restart_command|grace_seconds|(min_)?observations|(min_)?observation_seconds|pending_seconds|slow_seconds|unstage_seconds"
    r"|ceph_(conf|keyring|user|cluster)|rados_namespaces|peer_initiator_names|credential_keys|drivers|volumes|fence|wait_for"
    r"|hosts|result|others|inputs|partial|folder|keep|formats|prometheus_file|title|cluster|slice|namespace|claims|nodes|node|attachments"
    r"|required_metadata|vendor|product|rescan_targets|strict)$"
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
    assert [template["name"] for template in TEMPLATES if not template["twin"]] == ["triage", "compliance"]
    assert len({template["name"] for template in TEMPLATES + SLICING}) == len(TEMPLATES + SLICING)
    assert all((ROOT / "playbooks" / f"{template['playbook']}.yml").exists() for template in SLICING)


@pytest.mark.smoke
@pytest.mark.parametrize("name", BY_NAME)
def test_survey_asks_what_the_playbook_reads(name: str) -> None:
    """No question is without effect, each default is that of the role, and no option that an operator sets is forgotten."""
    template = BY_NAME[name]
    # What respond repairs, it repairs with the defaults, so it does not ask.
    text, roles = text_of(template["playbook"]), [] if name == "respond" else roles_of(template["playbook"])
    # Where pods are moved, the role that moves them is run by another one.
    known = {option: spec for role in [*roles, "workload_redrive"] for option, spec in options_of(role).items()}
    questions = {question["variable"]: question for question in survey(template)}
    assert len(questions) == len(template["survey"])
    for variable, question in questions.items():
        if variable.endswith("_strict"):
            # Whoever looks at a job's colour alone is told of what is left; at a shell the text is read.
            assert question["default"] == "true", variable
        elif variable in known:
            assert question.get("default", "") == as_answer(known[variable].get("default")), variable
        else:
            assert re.search(rf"\b{variable}\b(?! *#)", re.sub(r"(?m)^#.*$", "", text)), f"{variable} is read nowhere"
        assert question["type"] in ("text", "textarea", "multiplechoice") and isinstance(question.get("default", ""), str)
        assert ("choices" in question) == (question["type"] == "multiplechoice")
        assert question.get("default", "") in ["", *question.get("choices", [question.get("default", "")])]
        assert isinstance(known.get(variable, {}).get("default"), bool) <= (question.get("choices") == ["false", "true"]), variable
        assert not question["required"] or question["min"] == 1
    forgotten = {option for role in roles for option in options_of(role)} - set(questions)
    assert [option for option in sorted(forgotten) if not LEFT_OUT.search(option)] == []


def test_targets_are_asked_for() -> None:
    """A playbook that repairs hosts has no default for them."""
    for template in TEMPLATES:
        if "import_playbook: check_target.yml" in text_of(template["playbook"]):
            assert next(question for question in survey(template) if question["variable"] == "target")["required"], template["name"]


def test_limits() -> None:
    """Where a play runs on the localhost only, a limit would make a job green that does nothing."""
    for template in [*TEMPLATES, *SLICING]:
        plays = yaml.safe_load((ROOT / "playbooks" / f"{template['playbook']}.yml").read_text())
        assert template["limit"] <= all(play.get("hosts") != "localhost" for play in plays), template["name"]


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
            assert names[job["name"]]["playbook"] == play["name"].rpartition(".")[2] and job["include_events"] is False
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
            assert kind["injectors"]["file"] == {**kind["injectors"]["file"], f"template.{name}": f"{{{{ {name} }}}}"}
            assert f"{{{{ {name} }}}}" not in json.dumps(kind["injectors"]["env"])


def test_execution_environment(tmp_path: Path) -> None:
    """ansible-builder accepts the definition, and the image gets the collection of this checkout, which says what else it needs."""

    def run(*command: str, cwd: Path = tmp_path) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=patient(120), env=environment(), cwd=cwd)

    shutil.copy(ROOT / "execution-environment.yml", tmp_path)
    run("ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(tmp_path))
    run("ansible-builder", "create", "--context", str(tmp_path / "context"))
    # Its name depends on which container engine is there.
    made = next((tmp_path / "context").glob("*file")).read_text()
    assert "ansible-galaxy collection install" in made
    # As the image does, but without what the collection depends on.
    install = ("ansible-galaxy", "collection", "install", "--force", "--no-deps", "--offline", "-r", "requirements.yml")
    run(*install, "-p", str(tmp_path / "installed"), cwd=tmp_path / "context/_build")
    assert (tmp_path / "installed/ansible_collections" / COLLECTION.replace(".", "/") / "playbooks/compliance.yml").exists()
    needed = (ROOT / "meta/ee-requirements.txt").read_text()
    assert "kubernetes" in needed and "jmespath" in needed

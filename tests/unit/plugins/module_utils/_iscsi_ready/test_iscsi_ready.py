# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""iSCSI readiness: what is read from a node's files, and what is decided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    ActionFailed,
    Finding,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._iscsi_ready import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._iscsi_ready import runbook
from ansible_collections.storage_ops.runbooks.plugins.module_utils._iscsi_ready.plan import (
    IscsiOptions,
    IscsiState,
    Module,
    Use,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._iscsi_ready.runbook import (
    IscsiReady,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

KERNEL = "6.1.0-13-amd64"
IQN = "iqn.1993-08.org.debian:01:abcdef"
READY = Module("iscsi_tcp", True, False, (KERNEL,), "", "/etc/modules-load.d/a.conf", ())
UNITS = (
    "Id=iscsid.service\nLoadState=loaded\nActiveState={0}\n\nId=iscsid.socket\nLoadState={1}\n"
    "ActiveState=active\n"
)


class Node(Host):
    """A node made of files, whose commands are answered from a table and remembered."""

    def __init__(
        self, root: Path, files: dict[str, str], units: str = UNITS.format("active", "not-found")
    ) -> None:
        super().__init__(Deadline(60), 10, str(root))
        self.kernel, self.name, self.units, self.commands, self.root = KERNEL, "n1", units, [], root
        # What modprobe --show-depends says, by its flags; None if it fails.
        self.steps: dict[str, str | None] = {}
        for name, text in files.items():
            self.put(name, text)

    def put(self, name: str, text: str = "") -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def require_root(self) -> None:
        """Files of a folder need no root."""

    def run(self, argv: Any, timeout: float | None = None) -> CommandResult:
        self.commands.append(list(argv))
        if argv[:2] == ["modprobe", "--show-depends"]:
            steps = self.steps.get(
                " ".join(argv[2:-1]), self.steps.get("", "insmod /lib/modules/x.ko\n")
            )
            return CommandResult(tuple(argv), 0 if steps is not None else 1, steps or "", "", 0.1)
        if argv[0] == "modprobe":
            for name in ("iscsi_tcp", "libiscsi_tcp", "libiscsi", "scsi_transport_iscsi"):
                self.put(f"sys/module/{name}/refcnt")
        if argv[:2] == ["systemctl", "start"]:
            self.units = UNITS.format("active", "not-found")
        return CommandResult(
            tuple(argv), 0, self.units if argv[:2] == ["systemctl", "show"] else "", "", 0.1
        )


FILES = {
    f"lib/modules/{KERNEL}/modules.dep": "kernel/drivers/scsi/iscsi_tcp.ko.xz: "
    "kernel/drivers/scsi/libiscsi_tcp.ko.xz\n",
    f"lib/modules/{KERNEL}/modules.builtin": "kernel/fs/ext4/ext4.ko\n",
    "etc/iscsi/initiatorname.iscsi": f"## a comment\nInitiatorName={IQN}\n",
}


def node(root: Path, **changes: Any) -> Node:
    return Node(root, {**FILES, **changes.pop("files", {})}, **changes)


def test_module_that_is_only_installed(tmp_path: Path) -> None:
    module = runbook.read_module(node(tmp_path), "iscsi_tcp")
    assert module == Module(
        "iscsi_tcp",
        False,
        False,
        (KERNEL,),
        "",
        "",
        ("libiscsi_tcp", "libiscsi", "scsi_transport_iscsi"),
    )


@pytest.mark.parametrize(
    ("files", "attribute", "expected"),
    [
        (
            {f"lib/modules/{KERNEL}/modules.builtin": "kernel/drivers/scsi/iscsi_tcp.ko\n"},
            "built_in",
            True,
        ),
        (
            {f"lib/modules/{KERNEL}/modules.dep": "kernel/drivers/scsi/iscsi-tcp.ko: \n"},
            "installed_for",
            (KERNEL,),
        ),
        (
            {
                f"lib/modules/{KERNEL}/modules.dep": "kernel/my_iscsi_tcp.ko:\n"
                "kernel/iscsi_tcp2.ko:\n"
            },
            "installed_for",
            (),
        ),
        (
            {
                f"lib/modules/{KERNEL}/modules.dep": "",
                "lib/modules/6.9/modules.dep": "a/iscsi_tcp.ko:\n",
            },
            "installed_for",
            ("6.9",),
        ),
        # Only what modprobe says counts.
        ({"etc/modprobe.d/x.conf": "blacklist iscsi_tcp\n"}, "blacklisted", ""),
        (
            {"proc/cmdline": "quiet module_blacklist=a,iscsi-tcp ro"},
            "blocked",
            "the kernel was booted with module_blacklist=a,iscsi-tcp: "
            "remove that argument, and reboot",
        ),
        (
            {"proc/cmdline": "quiet module_blacklist=iscsi_tcp2 modprobe.blacklist=iscsi_tcp"},
            "blocked",
            "",
        ),
        ({"etc/modules": "loop\niscsi_tcp\n"}, "persisted", "/etc/modules"),
        (
            {"usr/lib/modules-load.d/i.conf": "iscsi_tcp\n"},
            "persisted",
            "/usr/lib/modules-load.d/i.conf",
        ),
        ({"etc/modules-load.d/i.conf": "# iscsi_tcp\n"}, "persisted", ""),
    ],
)
def test_what_is_read_of_a_module(
    tmp_path: Path, files: dict[str, str], attribute: str, expected: Any
) -> None:
    assert (
        getattr(runbook.read_module(node(tmp_path, files=files), "iscsi_tcp"), attribute)
        == expected
    )


LOADS = "insmod /lib/modules/libiscsi.ko\ninsmod /lib/modules/iscsi_tcp.ko\n"
FAILS = "insmod /lib/modules/libiscsi.ko\ninstall /usr/bin/false # no\n"
BELOW = "install /bin/false\ninsmod /lib/modules/iscsi_tcp.ko\n"
HERE = "modprobe's configuration: "


@pytest.mark.parametrize(
    ("files", "steps", "blacklisted", "blocked"),
    [
        ({}, {"": LOADS}, "", ""),
        ({}, {"": None}, "", ""),
        ({}, {"--use-blacklist": "", "": LOADS}, f"{HERE}blacklist iscsi_tcp", ""),
        (
            {"etc/modprobe.d/x.conf": "# blacklist iscsi_tcp\nblacklist \\\n  iscsi-tcp\n"},
            {"--use-blacklist": "", "": LOADS},
            "/etc/modprobe.d/x.conf: blacklist   iscsi-tcp",
            "",
        ),
        (
            {"usr/local/lib/modprobe.d/x.conf": "install iscsi_tcp /usr/bin/false # no\n"},
            {"": FAILS, "--ignore-install": LOADS},
            "/usr/local/lib/modprobe.d/x.conf: install iscsi_tcp /usr/bin/false # no",
            "",
        ),
        (
            {"etc/modprobe.d/x.conf": "", "lib/modprobe.d/x.conf": "install iscsi_tcp x\n"},
            {"": FAILS, "--ignore-install": LOADS},
            f"{HERE}install iscsi_tcp /usr/bin/false # no",
            "",
        ),
        (
            {},
            {"": BELOW},
            "",
            "modprobe runs '/bin/false' in place of a dependency: remove that install line",
        ),
        (
            {},
            {"": "install /bin/false\ninstall sh -c 'exit 1'\n", "--ignore-install": BELOW},
            f"{HERE}install iscsi_tcp sh -c 'exit 1'",
            "modprobe runs '/bin/false' in place of a dependency: remove that install line",
        ),
        ({}, {"": "install /sbin/modprobe -i iscsi_tcp && echo done\n"}, "", ""),
        (
            {},
            {"": "install echo modprobed\n", "--ignore-install": LOADS},
            f"{HERE}install iscsi_tcp echo modprobed",
            "",
        ),
        (
            {},
            {"": "install /bin/false # not by modprobe\n", "--ignore-install": LOADS},
            f"{HERE}install iscsi_tcp /bin/false # not by modprobe",
            "",
        ),
        (
            {},
            {"": "install 'modprobe\n", "--ignore-install": LOADS},
            f"{HERE}install iscsi_tcp 'modprobe",
            "",
        ),
    ],
)
def test_what_modprobe_would_do(
    tmp_path: Path,
    files: dict[str, str],
    steps: dict[str, str | None],
    blacklisted: str,
    blocked: str,
) -> None:
    host = node(tmp_path, files=files)
    host.steps = steps
    module = runbook.read_module(host, "iscsi_tcp")
    assert (module.blacklisted, module.blocked) == (blacklisted, blocked)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("InitiatorName=a\n", ("a",)),
        (" InitiatorName = a \n#InitiatorName=b\n", ("a",)),
        ("GenerateName=yes\n", ()),
        ("InitiatorName=a\nInitiatorName=b", ("a", "b")),
    ],
)
def test_initiator_names(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    assert (
        IscsiReady(node(tmp_path, files={"etc/iscsi/initiatorname.iscsi": text}), IscsiOptions())
        .gather()
        .initiator_names
        == expected
    )


def make_state(module: Module = READY, **changes: Any) -> IscsiState:
    return replace(
        IscsiState("n1", KERNEL, (module,), {"iscsid.service": "active"}, (IQN,)), **changes
    )


def found(state: IscsiState, **options: Any) -> list[Finding]:
    return pure.plan(state, IscsiOptions(**options)).findings


def test_ready_node() -> None:
    assert found(make_state()) == []
    assert (
        found(
            make_state(replace(READY, loaded=False, built_in=True, installed_for=(), persisted=""))
        )
        == []
    )
    assert found(make_state(iscsid={"iscsid.service": "inactive", "iscsid.socket": "active"})) == []


GONE = replace(READY, loaded=False, persisted="", missing_dependencies=("libiscsi",))


@pytest.mark.parametrize(
    ("module", "options", "verbs", "reason"),
    [
        (GONE, {}, ["load_module", "persist_module"], "installed for the running kernel"),
        (GONE, {"persist": False}, ["load_module"], "installed"),
        (replace(READY, persisted=""), {}, ["persist_module"], "reboot"),
        (replace(READY, missing_dependencies=("libiscsi",)), {}, ["load_module"], "installed"),
        (
            replace(GONE, installed_for=("6.9",)),
            {},
            [],
            f"not installed for the running kernel {KERNEL}, only for 6.9: reboot into that kernel",
        ),
        (replace(GONE, installed_for=()), {}, [], f"kernel {KERNEL}, install the running"),
        (
            replace(GONE, blacklisted="/etc/modprobe.d/x.conf: blacklist iscsi_tcp"),
            {},
            [],
            "load_blacklisted",
        ),
        (
            replace(GONE, blacklisted="x"),
            {"load_blacklisted": True},
            ["load_module", "persist_module"],
            "installed",
        ),
        (
            replace(GONE, blocked="the kernel was booted so"),
            {"load_blacklisted": True},
            [],
            "cannot be loaded: the kernel was booted so",
        ),
        (replace(READY, persisted="", blocked="x"), {}, ["persist_module"], "reboot"),
    ],
)
def test_modules(module: Module, options: dict[str, Any], verbs: list[str], reason: str) -> None:
    (finding,) = found(make_state(module), **options)
    assert [action.verb for action in finding.repair] == verbs
    assert finding.verdict == ("repair" if verbs else "refuse")
    assert reason in finding.reason


@pytest.mark.parametrize(
    ("changes", "options", "verdict", "text"),
    [
        ({"iscsid": {"iscsid.service": "inactive"}}, {}, "refuse", "start_iscsid"),
        (
            {"iscsid": {"iscsid.service": "failed"}},
            {"start_iscsid": True},
            "repair",
            "iscsid is not active",
        ),
        ({"iscsid": {}}, {"start_iscsid": True}, "refuse", "install open-iscsi"),
        (
            {"iscsid": {"iscsid.service": "masked", "iscsid.socket": "active"}},
            {"start_iscsid": True},
            "refuse",
            "systemctl unmask iscsid.service",
        ),
        ({"initiator_names": None}, {}, "refuse", "is missing"),
        ({"initiator_names": ()}, {}, "refuse", "no InitiatorName"),
        ({"initiator_names": (IQN, IQN)}, {}, "refuse", "2 initiator names"),
        ({"initiator_names": ("worker",)}, {}, "refuse", "not of the form"),
        (
            {},
            {"peer_initiator_names": {"n2": IQN, "n3": "iqn.2020-01.x:y"}},
            "refuse",
            f"{IQN} is also that of n2",
        ),
    ],
)
def test_iscsid_and_initiator_name(
    changes: dict[str, Any], options: dict[str, Any], verdict: str, text: str
) -> None:
    (finding,) = found(make_state(**changes), **options)
    assert finding.verdict == verdict
    assert text in f"{finding.summary} {finding.reason}"


OURS, ANOTHER = "1e5a7f10-0000-4000-8000-000000000001", "1e5a7f10-0000-4000-8000-000000000002"


@pytest.mark.parametrize(
    ("boot_ids", "severity", "same_as"),
    [
        # A clone that kept its host name, and what is perhaps the node itself.
        ({"n1": ANOTHER}, "critical", ["n1"]),
        ({}, "major", ["n1"]),
        ({"n1": ""}, "major", ["n1"]),
        ({"n2": OURS}, "major", ["n1"]),
    ],
)
def test_a_peer_of_the_same_name(
    boot_ids: dict[str, str],
    severity: str,
    same_as: list[str],
) -> None:
    state = make_state(boot_id=OURS)
    (finding,) = found(state, peer_initiator_names={"n1": IQN}, peer_boot_ids=boot_ids)
    assert (finding.severity, finding.verdict) == (severity, "refuse")
    assert finding.code == "initiator_name_shared"
    assert finding.evidence["same_as"] == same_as
    assert ("or a clone that kept its name" in finding.reason) is (severity == "major")


def test_the_node_itself_is_no_duplicate() -> None:
    """Under whatever name; a clone beside it is."""
    peers = {"n1": IQN, "also-n1": IQN, "clone": IQN}
    boot_ids = {"n1": OURS, "also-n1": OURS, "clone": ANOTHER}
    own = {name: peers[name] for name in ("n1", "also-n1")}
    assert found(make_state(boot_id=OURS), peer_initiator_names=own, peer_boot_ids=boot_ids) == []
    (finding,) = found(make_state(boot_id=OURS), peer_initiator_names=peers, peer_boot_ids=boot_ids)
    assert (finding.severity, finding.evidence["same_as"]) == ("critical", ["clone"])


def test_without_a_boot_id_of_its_own_nothing_is_the_node() -> None:
    (finding,) = found(make_state(), peer_initiator_names={"n2": IQN}, peer_boot_ids={"n2": ""})
    assert (finding.severity, finding.evidence["same_as"]) == ("critical", ["n2"])


def test_the_boot_id_is_read(tmp_path: Path) -> None:
    host = node(tmp_path, files={"proc/sys/kernel/random/boot_id": f"{OURS}\n"})
    assert IscsiReady(host, IscsiOptions()).gather().boot_id == OURS


AUDIT = {"if_used": True}
NOTHING = replace(GONE, installed_for=())
USED = Use(sessions=("session1",))
TRIDENT, NFS = "csi.trident.netapp.io", "nfs.csi.k8s.io"


def audited(state: IscsiState, **options: Any) -> list[str]:
    return [finding.name for finding in found(state, **AUDIT, **options)]


def bare(**use: tuple[str, ...]) -> IscsiState:
    """A node where nothing of iSCSI is installed."""
    return make_state(NOTHING, iscsid={}, initiator_names=None, use=Use(**use))


@pytest.mark.parametrize("drivers", [(), (NFS,), ("rbd.csi.ceph.com", "cephfs.csi.ceph.com")])
def test_a_node_that_does_not_use_iscsi(drivers: tuple[str, ...]) -> None:
    """Not even where a package came with the distribution, and is half set up."""
    for state in (bare(drivers=drivers), make_state(GONE, use=Use(drivers=drivers))):
        assert audited(state) == []
        assert list(pure.not_applicable(state, IscsiOptions(if_used=True))) == ["STOR-04"]
    # A repair prepares it all the same.
    assert [finding.name for finding in found(bare(drivers=drivers))] == [
        *("iscsi_tcp", "iscsid", "none"),
    ]


@pytest.mark.parametrize(
    ("state", "options"),
    [
        (bare(sessions=("session1",)), {}),
        (bare(targets=("iqn.2020-01.x:y",)), {}),
        (bare(drivers=("iscsi.csi.k8s.io",)), {}),
        (bare(drivers=("org.democratic-csi.iscsi",)), {}),
        (bare(drivers=("driver.longhorn.io",)), {}),
        (bare(staged=("driver.longhorn.io",)), {}),
        (bare(drivers=(NFS,), staged=(NFS, TRIDENT)), {"uses_iscsi": {TRIDENT: True}}),
        (bare(volumes=("plugins/kubernetes.io/iscsi/iface-default/x",)), {}),
        (bare(drivers=(TRIDENT,)), {"uses_iscsi": {TRIDENT: True}}),
        (bare(drivers=("own.example.com",)), {"uses_iscsi": {"own.example.com": True}}),
        (bare(), {"peer_initiator_names": {"n2": "iqn.2020-01.x:y"}}),
        (replace(bare(), modules=(replace(NOTHING, persisted="/etc/modules"),)), {}),
    ],
)
def test_a_node_that_uses_iscsi_has_to_be_ready(state: IscsiState, options: dict[str, Any]) -> None:
    assert audited(state, **options) == ["iscsi_tcp", "iscsid", "none"]
    assert pure.not_applicable(state, IscsiOptions(if_used=True, **options)) == {}


def test_what_a_package_loads_at_boot_is_no_sign() -> None:
    loaded = replace(READY, persisted="/usr/lib/modules-load.d/open-iscsi.conf")
    state = make_state(loaded, initiator_names=())
    assert audited(state) == [] and pure.not_applicable(state, IscsiOptions(if_used=True))


def test_a_driver_with_several_protocols() -> None:
    """Where the node is ready nothing hangs on it; else it is not assessed, unless the user says
    it.
    """
    state = bare(drivers=(NFS, TRIDENT))
    with pytest.raises(StorageOpsError, match=f"since {TRIDENT} can also") as raised:
        audited(state)
    assert raised.value.code == "iscsi_use_unknown"
    assert pure.not_applicable(state, IscsiOptions(if_used=True)) == {}
    assert audited(state, uses_iscsi={TRIDENT: False}) == []
    with pytest.raises(StorageOpsError, match=f"since {TRIDENT} can also"):
        audited(bare(drivers=(TRIDENT,), staged=(TRIDENT,)))
    assert pure.not_applicable(bare(staged=(TRIDENT,)), IscsiOptions(if_used=True)) == {}
    assert pure.not_applicable(bare(staged=(NFS,)), IscsiOptions(if_used=True))
    assert audited(make_state(use=Use(drivers=(TRIDENT,)))) == []
    # Another sign decides.
    assert audited(bare(drivers=(TRIDENT,), targets=("iqn.2020-01.x:y",)))


def test_systemd_that_does_not_answer(tmp_path: Path) -> None:
    """That iscsid is not installed does not follow; without iSCSI it does not matter."""
    state = make_state(iscsid={}, iscsid_problem="systemctl: no bus", use=USED)
    with pytest.raises(StorageOpsError, match="no bus") as raised:
        audited(state)
    assert raised.value.code == "evidence_unreadable"
    assert audited(replace(state, modules=(NOTHING,), use=Use())) == []
    (finding,) = found(state)
    assert (finding.code, finding.verdict) == ("evidence_unreadable", "refuse")

    class Silent(Node):
        def run(self, argv: Any, timeout: float | None = None) -> CommandResult:
            return CommandResult(tuple(argv), 1, "", "no bus", 0.1)

    assert "no bus" in IscsiReady(Silent(tmp_path, FILES), IscsiOptions()).gather().iscsid_problem


def test_what_shows_that_iscsi_is_used(tmp_path: Path) -> None:
    registry = "var/lib/kubelet/plugins_registry"
    files = {
        "sys/class/iscsi_session/session3/state": "LOGGED_IN",
        "etc/iscsi/nodes/iqn.2020-01.x:y/192.0.2.1,3260,1/default": "",
        "var/lib/iscsi/nodes/iqn.2020-01.x:z/192.0.2.1,3260,1/default": "",
        f"{registry}/{NFS}-reg.sock": "",
        f"{registry}/own.example.com/csi.sock": "",
    }
    options = IscsiOptions(if_used=True, kubelet_root="/var/lib/kubelet")
    host = node(tmp_path, files=files)
    assert IscsiReady(host, options).gather().use == Use(
        ("session3",), ("iqn.2020-01.x:y", "iqn.2020-01.x:z"), (NFS, "own.example.com")
    )
    assert IscsiReady(host, IscsiOptions()).gather().use == Use()


def test_volumes_show_that_iscsi_is_used_although_it_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a session, and with the driver's pod gone, the node looked as if it did not use
    iSCSI, since it could not.
    """
    root = "var/lib/kubelet"
    host = node(tmp_path, files={"sys/class/net/lo": ""})
    options = IscsiOptions(if_used=True, kubelet_root="/var/lib/kubelet")
    csi, own = f"{root}/plugins/kubernetes.io/csi", f"{root}/plugins/kubernetes.io/iscsi"
    # What stays of a driver whose volumes have gone; a file; a pod without such a volume.
    for folder in (
        f"{csi}/gone.iscsi.example.com",
        f"{own}/iface-default",
        f"{root}/pods/u1/volumes/kubernetes.io~iscsi",
        f"{root}/pods/u2/volumes/kubernetes.io~csi/pv1",
    ):
        (tmp_path / folder).mkdir(parents=True)
    host.put(f"{csi}/iscsi.file")
    (tmp_path / own / "link").symlink_to(tmp_path / root)
    audit = IscsiReady(host, options)
    assert audit.gather().use == Use()
    (tmp_path / csi / "driver.longhorn.io/0a/globalmount").mkdir(parents=True)
    assert audit.gather().use == Use(staged=("driver.longhorn.io",))
    names = []
    for name in (f"{own}/iface-default/x", f"{root}/pods/u1/volumes/kubernetes.io~iscsi/pv2"):
        (tmp_path / name).mkdir()
        names.append(name[len(root) + 1 :])
        assert audit.gather().use.volumes == tuple(names)
    assert audit.not_applicable(audit.gather()) == {}
    # Not more than say the same.
    monkeypatch.setattr(runbook, "_MOST_FOLDERS", 1)
    assert audit.gather().use.volumes == tuple(names[:1])


def test_volumes_that_cannot_be_listed_are_not_assessed(tmp_path: Path) -> None:
    class Hung(Node):
        def bounded(self, function: Any, timeout: float | None = None) -> Reply:
            reply = super().bounded(function, timeout)
            return reply if "root" in function.__qualname__ else Reply(problem="no answer")

    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    options = IscsiOptions(if_used=True, kubelet_root="/var/lib/kubelet")
    host = Hung(tmp_path, {**FILES, "sys/class/net/lo": ""})
    with pytest.raises(StorageOpsError, match="volumes below .* no answer") as raised:
        IscsiReady(host, options).gather()
    assert raised.value.code == "evidence_unreadable"


def test_a_node_without_kubelet_or_iscsi(tmp_path: Path) -> None:
    host = node(tmp_path, files={"sys/class/net/lo": ""})
    audit = IscsiReady(host, IscsiOptions(if_used=True, kubelet_root="/var/lib/kubelet"))
    assert list(audit.not_applicable(audit.gather())) == ["STOR-04"]
    repair = IscsiReady(host, IscsiOptions())
    assert repair.not_applicable(repair.gather()) == {}


@pytest.mark.parametrize(
    "files",
    [
        # No sysfs, as in a container.
        {},
        # What is no folder cannot be listed, as one that gives an I/O error.
        {"sys/class/iscsi_session": ""},
        {"sys/class/net/lo": "", "etc/iscsi/nodes": ""},
        {"sys/class/net/lo": "", "var/lib/kubelet/plugins_registry": ""},
    ],
)
def test_signs_that_cannot_be_read_are_not_assessed(tmp_path: Path, files: dict[str, str]) -> None:
    options = IscsiOptions(if_used=True, kubelet_root="/var/lib/kubelet")
    with pytest.raises(StorageOpsError) as raised:
        IscsiReady(node(tmp_path, files=files), options).gather()
    assert raised.value.code in ("evidence_unreadable", "privileges_missing")


def test_options_of_an_audit() -> None:
    params: dict[str, Any] = {
        "peer_initiator_names": {},
        "peer_boot_ids": {},
        "uses_iscsi": {TRIDENT: True},
        "kubelet_root": "/k",
    }
    assert runbook.audit_options(params) == IscsiOptions(
        if_used=True, uses_iscsi={TRIDENT: True}, kubelet_root="/k"
    )
    with pytest.raises(StorageOpsError, match=f"no true or false for {TRIDENT}"):
        runbook.audit_options({**params, "uses_iscsi": {TRIDENT: "false"}})


def test_repair_from_nothing_to_ready(tmp_path: Path) -> None:
    host = node(tmp_path, units=UNITS.format("inactive", "not-found"))
    runbook = IscsiReady(host, IscsiOptions(start_iscsid=True))
    plan = runbook.plan(runbook.gather())
    assert [action.verb for action in plan.actions] == [
        "load_module",
        "persist_module",
        "start_service",
    ]
    for finding in plan.findings:
        for action in finding.repair:
            runbook.apply(action)
        assert runbook.verify(finding)
    assert ["modprobe", "iscsi_tcp"] in host.commands
    assert (
        (tmp_path / "etc/modules-load.d/storage_ops-iscsi_tcp.conf")
        .read_text()
        .endswith("\niscsi_tcp\n")
    )
    assert runbook.plan(runbook.gather()).findings == []


def test_a_name_with_a_dash_is_the_same_module(tmp_path: Path) -> None:
    host = node(tmp_path)
    host.put("sys/module/ib_iser/refcnt")
    host.put("etc/modules-load.d/x.conf", "\nib-iser\n")
    (module,) = IscsiReady(host, IscsiOptions(modules=("ib-iser",))).gather().modules
    assert (module.name, module.ready, module.persisted) == (
        "ib_iser",
        True,
        "/etc/modules-load.d/x.conf",
    )


@pytest.mark.parametrize("modules", [("",), (), ("../x",), ("isc\u00e4",)])
def test_odd_module_names(tmp_path: Path, modules: tuple[str, ...]) -> None:
    with pytest.raises(StorageOpsError, match="is not the name of a kernel module"):
        IscsiReady(node(tmp_path), IscsiOptions(modules=modules)).gather()


def test_an_install_line_is_passed_over_when_that_is_accepted() -> None:
    (finding,) = found(
        make_state(replace(GONE, blacklisted="x: install iscsi_tcp /bin/false")),
        load_blacklisted=True,
    )
    assert finding.repair[0].command == ["modprobe", "--ignore-install", "iscsi_tcp"]


@pytest.mark.parametrize(("state", "said"), [("inactive", "masked"), ("active", "active")])
def test_a_masked_unit_is_not_missing(tmp_path: Path, state: str, said: str) -> None:
    units = f"Id=iscsid.service\nLoadState=masked\nActiveState={state}\n"
    assert IscsiReady(node(tmp_path, units=units), IscsiOptions()).gather().iscsid == {
        "iscsid.service": said
    }


def test_a_failed_service_is_not_saved_by_its_socket() -> None:
    (finding,) = found(make_state(iscsid={"iscsid.service": "failed", "iscsid.socket": "active"}))
    assert finding.name == "iscsid"


def test_modprobe_that_lies(tmp_path: Path) -> None:
    class Lying(Node):
        def run(self, argv: Any, timeout: float | None = None) -> CommandResult:
            return CommandResult(tuple(argv), 0, "", "", 0.1)

    with pytest.raises(ActionFailed, match="the kernel lacks"):
        IscsiReady(Lying(tmp_path, FILES), IscsiOptions()).apply(
            Action("load_module", "iscsi_tcp", ["modprobe", "iscsi_tcp"])
        )

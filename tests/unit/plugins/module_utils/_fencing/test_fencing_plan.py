# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is fenced, who is not, and what proves it: plain records in, a decision out."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from ipaddress import IPv4Network, ip_network
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences import (
    network_fence as network_fence_module,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ceph_reading import (
    Reading,
    parse_reading,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    MOST_NAMES,
    UNKNOWN_MACHINE,
    Entry,
    Ledger,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    MESSAGES,
    NetworkFence,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.power import parse_power
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.record import (
    Record,
    Records,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    NodeState,
    attached_volume,
    pick_host_record,
    without_attachment,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing import (
    lost,
    whole_node,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.options import (
    Decision,
    FenceOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.proven import proven_of
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import ServerVersion
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import Attachment
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    MACHINE,
    blocked,
    image,
    looks,
    watcher,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
RBD = "rbd.csi.ceph.com"
A, B = "10.0.0.5", "10.0.0.6"
# On Ceph's network, which Kubernetes knows nothing of.
STORAGE = "192.168.7.5"
FAR = "2027-01-01T12:00:00Z"


def node(
    name: str = "a",
    ready: str = "Unknown",
    seconds: float = 300,
    addresses: Sequence[str] = (A,),
    **spec: Any,
) -> dict[str, Any]:
    since = f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": since}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"taints": [taint] if ready == "Unknown" else [], **spec},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}],
            "addresses": [{"type": "InternalIP", "address": address} for address in addresses],
            "nodeInfo": {"bootID": "boot-1", "systemUUID": f"machine-{name}"},
        },
    }


def volume(
    name: str = "v",
    driver: str = RBD,
    cluster_id: str = "c1",
    storage_class: str = "",
    elsewhere: str = "",
    **attributes: str,
) -> Any:
    """A volume that is attached to node a, and perhaps to another."""
    item = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "csi": {
                "driver": driver,
                "volumeHandle": name,
                "volumeAttributes": {"clusterID": cluster_id, **attributes},
            },
            "claimRef": {"namespace": "shop", "name": name},
            "storageClassName": storage_class,
        },
    }
    other = [attachment(name, driver, elsewhere)] if elsewhere else []
    return attached_volume(attachment(name, driver, "a"), item, other)


def moved(name: str = "v", elsewhere: str = "b", cluster_id: str = "c1") -> Any:
    """One that was detached from node a by force."""
    found = volume(name, elsewhere=elsewhere, cluster_id=cluster_id)
    return found._replace(attachment=found.attachment._replace(name="", uid="", attached=False))


def many(found: Any) -> Any:
    """The same for several nodes."""
    return found._replace(volume=found.volume._replace(access_modes=("ReadWriteMany",)))


def attachment(name: str, driver: str, on: str) -> Attachment:
    return Attachment(
        f"va-{name}-{on}",
        f"uid-va-{name}-{on}",
        driver,
        on,
        name,
        True,
        (),
        None,
        None,
        NOW,
        None,
        (),
    )


def state(host: dict[str, Any] | None = None, attached: Any = None, **fields: Any) -> NodeState:
    host = host or node()
    if fields.get("ledger"):
        host["metadata"]["annotations"] = {ANNOTATION: fields["ledger"].text}
    attached = (volume(),) if attached is None else tuple(attached)
    others = (pick_host_record(node("b", "True", addresses=(B,))),)
    base = NodeState(
        NOW,
        ServerVersion(1, 31, 4, "v1.31.4"),
        pick_host_record(host),
        host,
        attached,
        others,
        None,
        None,
    )
    return base._replace(**fields)


def seen_beside(name: str = "x", on: str = "b", address: str = B) -> tuple[dict[str, Any], Any]:
    """An image that another node alone has, which it has open; and its attachment, by volume."""
    at = attachment(name, RBD, on)._replace(created=NOW - timedelta(days=1))
    return image(name, watchers=[watcher(address, 77, nonce=77)]), {name: at}


def lock(address: str = A, number: int = 1, nonce: int = 11) -> dict[str, Any]:
    return {"locker": f"client.{number}", "address": address, "entry": f"{address}:0/{nonce}"}


def reading(*images: dict[str, Any], blocklist: Sequence[Any] = (), **fields: Any) -> Reading:
    data = {
        "fsid": "f1",
        "read_at": f"{NOW:%Y-%m-%dT%H:%M:%SZ}",
        "observations": 3,
        "seconds": 61.0,
        "families": ["IPv4"],
        "blocklist": list(blocklist),
        "images": list(images),
    }
    return parse_reading({**data, **fields})


HELD = reading(image(watchers=[watcher()]))
OPTIONS = FenceOptions("a", "run-1", "host", reading=HELD)
# Of a cluster whose nodes are all lost.
ALL_LOST = replace(OPTIONS, accept_majority=True)


def options(*images: dict[str, Any], **fields: Any) -> FenceOptions:
    return replace(OPTIONS, **({"reading": reading(*images)} if images else {}), **fields)


def network_fence(
    name: str = "storage-ops-a",
    cidrs: Sequence[str] = (f"{A}/32",),
    fenced: bool = False,
    **fields: Any,
) -> NetworkFence:
    asked = "Fenced" if fenced else "Unfenced"
    made = NetworkFence(
        name,
        f"uid-{name}",
        RBD,
        "c1",
        tuple(cidrs),
        asked,
        "Succeeded",
        MESSAGES[asked],
        NOW,
        None,
        "",
        "driver",
    )
    return made._replace(**fields)


def intended(found: NodeState | None = None, given: FenceOptions = OPTIONS) -> Ledger:
    """The ledger of a fence that is not refused."""
    decision = pure.intend(found or state(), given)
    assert not decision.plan.refusals, decision.plan.refusals[0].reason
    assert decision.ledger
    return decision.ledger


def refused(decision: Decision, *reasons: str) -> None:
    (finding,) = decision.plan.findings
    assert finding.verdict == "refuse" and finding.repair == [] and finding.named, finding.reason
    for reason in reasons:
        assert reason in finding.reason, finding.reason


def verbs(decision: Decision) -> list[str]:
    return [action.verb for action in decision.plan.actions]


# who is fenced


def test_the_address_of_who_holds_the_image() -> None:
    decision = pure.intend(state(), OPTIONS)
    assert verbs(decision) == ["write_fence_ledger", "cordon_node"]
    ledger = decision.ledger
    assert ledger and (ledger.method, ledger.phase, ledger.addresses, ledger.source) == (
        "ceph",
        "intended",
        (A,),
        {A: "watcher"},
    )
    assert ledger.entries == (Entry(A, "address", True, FAR),)
    assert (ledger.volumes, ledger.cluster_id, ledger.fsid, ledger.boot_id) == (
        ("v",),
        "c1",
        "f1",
        "boot-1",
    )
    assert (ledger.machine, ledger.namespace) == ("machine-a", "storage-ops")
    assert ledger.cordoned and not ledger.tainted and not ledger.unverified
    (finding,) = decision.plan.findings
    assert (finding.control, finding.kind, finding.name) == ("STOR-16", "Node", "a")


def test_ledgers_that_may_not_be_read_are_told() -> None:
    """What another node's fence shares goes with the one that is released first."""
    (finding,) = pure.intend(state(unread="some were not read"), OPTIONS).plan.findings
    assert finding.verdict == "repair" and finding.reason.endswith("; some were not read")


def test_what_ceph_saw_counts_and_not_what_kubernetes_calls_the_node() -> None:
    """If who has the lock has the image open too, and nothing else is seen anywhere.

    How many images somebody holds says nothing.
    """
    found = state(attached=[volume(), volume("w")])
    both = image(watchers=[watcher(STORAGE)], locks=[lock(STORAGE)])
    unknown = "at an address that no source lists as this node's"
    for others in (
        image("w", watchers=[watcher(STORAGE)]),
        image("w", watchers=[watcher(STORAGE), watcher(POD, 2, seen=1)]),
    ):
        given = options(both, others, other_addresses=(POD,))
        assert intended(found, given).addresses == (STORAGE, A)
    assert intended(given=options(both)).addresses == (STORAGE, A)
    for others in (
        image("w", watchers=[watcher()]),
        image("w", watchers=[watcher("192.168.7.6", 2)]),
        image("w", watchers=[watcher(), watcher(STORAGE)]),
        image("w", locks=[lock()]),
        image("w", notes=[("a", A)]),
    ):
        refused(
            pure.intend(found, options(both, others)),
            unknown,
            f"{STORAGE}:0/11 (client.1) holds p/v; {STORAGE}:0/11 (client.1) has a lock",
        )
    # What hangs is seen nowhere, while rbd-mirror holds all of them.
    held = options(image(watchers=[watcher(STORAGE)]), image("w", watchers=[watcher(STORAGE)]))
    refused(pure.intend(found, held), unknown)
    refused(
        pure.intend(
            found, options(image(locks=[lock(STORAGE)]), image("w", locks=[lock(STORAGE)]))
        ),
        unknown,
    )
    apart = image(watchers=[watcher(STORAGE)], locks=[lock(STORAGE, 2, nonce=12)])
    refused(pure.intend(found, options(apart, image("w"))), unknown)
    refused(
        pure.intend(
            state(attached=[volume(), volume("w", elsewhere="b")]), options(both, image("w"))
        ),
        unknown,
    )
    refused(
        pure.intend(
            state(attached=[volume()], used=(moved("w", elsewhere=""),)), options(both, image("w"))
        ),
        unknown,
    )
    for known in (
        options(image(watchers=[watcher(STORAGE)]), image("w", notes=[("a", STORAGE)])),
        replace(held, fence_addresses=(STORAGE,)),
    ):
        assert intended(found, known).addresses == (STORAGE, A)


POD = "10.244.3.17"


def test_a_provisioner_at_work_on_an_image_is_not_the_lost_node() -> None:
    """It opens the image by librbd and takes its lock, at the address of its pod, while the node
    hangs. The kernel's client of a node has a cookie of its own range.
    """
    unknown = "at an address that no source lists as this node's"
    at_work = image("w", watchers=[watcher(POD, 9, kernel=False)], locks=[lock(POD, 9)])
    neighbour = image("nb", watchers=[watcher("192.168.7.6", 2)])
    found = state(attached=[volume(), volume("w")])
    for images in ([image(), at_work], [image(), at_work, neighbour]):
        refused(pure.intend(found, options(*images)), unknown)
    alone = state(attached=[volume("w")])
    refused(pure.intend(alone, options(at_work)), unknown)
    # Nor beside the kernel's at the same address: it may be NAT's.
    krbd = image(watchers=[watcher(POD)], locks=[lock(POD)])
    assert intended(given=options(krbd)).addresses == (POD, A)
    refused(pure.intend(found, options(krbd, at_work)), unknown)
    # At an address that is known, librbd counts as ever.
    own = image("w", watchers=[watcher(A, 9, kernel=False)])
    assert intended(alone, options(own)).source == {A: "watcher"}
    # A node opens these by librbd, too: rbd-nbd is one of its clients.
    for told in ({"mounter": "rbd-nbd"}, {"tryOtherMounters": "true"}):
        nbd = volume("w", **told)
        assert intended(state(attached=[nbd]), options(at_work)).addresses == (POD, A)
        # What hangs is then no more than at the known addresses, and Ceph has shown another.
        refused(
            pure.intend(state(attached=[volume(), nbd]), options(image(), at_work)),
            "nothing shows from where v is held",
            f"{POD} is where Ceph shows it",
        )
    for told in ({"mounter": "rbd"}, {"tryOtherMounters": "false"}):
        refused(
            pure.intend(state(attached=[volume("w", **told)]), options(at_work)),
            unknown,
        )


@pytest.mark.parametrize(
    ("cookie", "kernel"),
    [
        ("18446462598732840960", True),
        ("18446744073709551615", True),
        ("18446462598732840959", False),
        ("93919075689600", False),
        # No number of 64 bits.
        ("18446744073709551616", False),
        ("9" * 5000, False),
        ("-1", False),
        ("", False),
        ("²", False),
    ],
)
def test_the_cookies_of_the_kernels_client(cookie: str, kernel: bool) -> None:
    (seen,) = reading(image(watchers=[{**watcher(), "cookie": cookie}])).images[0].watchers
    assert seen.is_kernel == kernel


def test_where_ceph_shows_the_node_and_its_status_does_not_nothing_silent_is_covered() -> None:
    """A hung client may have the volume open at an address that neither the status nor the operator
    names.
    """
    two = state(attached=[volume(), volume("w")])
    agreed = image(watchers=[watcher(STORAGE)], locks=[lock(STORAGE)])
    why = "nothing shows from where w is held"
    refused(pure.intend(two, options(agreed, image("w"))), why, f"{STORAGE} is where Ceph shows it")
    # Nor in a later run, whose ledger has the address.
    ledger = intended(given=options(agreed))
    for phase in ("intended", "fenced"):
        later = two._replace(ledger=ledger._replace(phase=phase))
        refused(pure.intend(later, options(image(), image("w"))), why)
    # With the address in the status, in a note or of the user's, the node is known.
    assert intended(
        state(node(addresses=(A, STORAGE)), two.attached), options(agreed, image("w"))
    ).addresses == (STORAGE, A)
    noted = {**agreed, "client_addresses": [{"node": "a", "address": STORAGE}]}
    for given in (
        options(noted, image("w")),
        options(agreed, image("w"), fence_addresses=(STORAGE,)),
    ):
        assert intended(two, given).volumes == ("v", "w")


def test_a_node_whose_readiness_is_not_understood_is_not_lost() -> None:
    for ready in ("unknown", "Maybe"):
        refused(pure.intend(state(node(ready=ready)), OPTIONS), f"node a says Ready={ready}, ")


def test_a_lock_that_names_the_node_counts_beside_a_watcher() -> None:
    """The mirror is the only watcher of both, and both locks name the node."""
    seen = [image(name, watchers=[watcher(STORAGE, 9)], locks=[lock()]) for name in ("v", "w")]
    found = state(attached=[volume(), volume("w")])
    refused(
        pure.intend(found, options(*seen)),
        "at an address that no source lists as this node's",
        f"{A}:0/11 (client.1) has a lock on p/v",
    )
    told = [
        image(name, watchers=[watcher(STORAGE, 9, mirror=True)], locks=[lock()])
        for name in ("v", "w")
    ]
    for given in (options(*told), options(*seen, other_addresses=(STORAGE,))):
        decision = pure.intend(found, given)
        assert decision.ledger and decision.ledger.source == {A: "lock"}
        watched = decision.plan.findings[0].evidence["watchers"]
        assert isinstance(watched, list) and ("rbd-mirror" in watched[0]) != (
            "other_addresses" in watched[0]
        )


def test_who_is_no_node_is_neither_evidence_nor_in_the_way() -> None:
    for other in (watcher(STORAGE, 9, mirror=True), watcher(A, 9, nonce=12, mirror=True)):
        assert intended(given=options(image(watchers=[watcher(), other]))).source == {A: "watcher"}
        refused(
            pure.intend(state(), options(image(watchers=[other]))),
            "it is unknown from which address node a reaches Ceph",
        )
        comes = {**other, "seen": 1, "persistent": False}
        for seen in (other, comes):
            assert (
                intended(
                    given=options(image(watchers=[seen]), method="none", node_confirmed_off=True)
                ).method
                == "none"
            )
        # At the node's address it comes and goes as it likes.
        assert intended(given=options(image(watchers=[watcher(), comes]))).addresses == (A,)
    backup = options(image(watchers=[watcher(), watcher(STORAGE, 2)]), other_addresses=(STORAGE,))
    assert intended(given=backup).source == {A: "watcher"}
    locked = options(
        image(watchers=[watcher()], locks=[lock(STORAGE, 2)]), other_addresses=(STORAGE,)
    )
    assert intended(given=locked).source == {A: "watcher"}
    for given in (
        replace(backup, other_addresses=(A,)),
        replace(backup, fence_addresses=(STORAGE,)),
    ):
        refused(pure.intend(state(), given), "which is an address of node a")
    # Neither of them ends with the fence.
    for other, more in ((watcher(STORAGE, 9, mirror=True), ()), (watcher(STORAGE, 9), (STORAGE,))):
        read = reading(image(watchers=[other]), blocklist=[blocked(A)], observations=2, seconds=3)
        assert verbs(confirm(intended(), replace(proof(), reading=read, other_addresses=more))) == [
            "record_fence"
        ]
    ending = proof(image(watchers=[watcher(A, 9, mirror=True)]), blocklist=[blocked(A)])
    refused(confirm(intended(), ending), "still holds p/v")


SECOND = "10.0.0.7"


def test_every_address_of_the_node_is_fenced() -> None:
    """A client that hangs is seen nowhere; so what Kubernetes and ceph-csi call the node is fenced
    with what Ceph saw.
    """
    host = node(addresses=(A, SECOND))
    seen = options(image(watchers=[watcher()]), image("w", notes=[("a", "10.0.0.8"), ("b", B)]))
    ledger = intended(state(host, [volume(), volume("w")]), seen)
    assert ledger.source == {A: "watcher", "10.0.0.8": "metadata", SECOND: "status"}
    assert [entry.entry for entry in ledger.entries] == [A, "10.0.0.8", SECOND]
    # Once for all.
    again = state(
        node(addresses=(A, SECOND), unschedulable=True), [volume(), volume("w")], ledger=ledger
    )
    assert pure.intend(again, seen) == Decision(pure.Plan([]), ledger)
    # What another node has too is not.
    twin = (pick_host_record(node("b", "True", addresses=(B, SECOND))),)
    spared = pure.intend(state(host, others=twin), OPTIONS)
    assert spared.ledger and spared.ledger.addresses == (A,)
    assert spared.plan.findings[0].evidence["not_fenced"] == {
        SECOND: "belongs to node b (Ready) too"
    }
    visited = options(image(watchers=[watcher(), watcher(SECOND, 2, seen=1, nonce=12)]))
    refused(pure.intend(state(host), visited), "comes and goes on p/v")


def test_what_nobody_sees_needs_the_fence_of_the_whole_node() -> None:
    host, twin = (
        node(addresses=(A, SECOND)),
        (pick_host_record(node("b", "True", addresses=(B, SECOND))),),
    )
    two = [volume(), volume("w")]
    part = state(host, two, others=twin)
    silent, why = image("w"), "nothing shows from where w is held"
    given = options(image(watchers=[watcher()]), silent)
    assert intended(state(host, two), given).volumes == ("v", "w")
    refused(pure.intend(part, given), why, f"{SECOND} belongs to node b (Ready) too")
    refused(
        pure.intend(
            part,
            options(
                image(watchers=[watcher()]), image("w", watchers=[watcher(STORAGE, 9, mirror=True)])
            ),
        ),
        why,
    )
    for shown in (
        image("w", watchers=[watcher()]),
        image("w", locks=[lock()]),
        image("w", notes=[("a", A)]),
    ):
        assert intended(part, options(image(watchers=[watcher()]), shown)).addresses == (A,)
    apart = part._replace(attached=(volume(), volume("w", cluster_id="c2")))
    assert intended(apart, replace(given, cluster_id="c1")).volumes == ("v",)
    off = options(image(), silent, method="none", node_confirmed_off=True)
    for found in (part, state(node(addresses=()), two)):
        assert intended(found, replace(off, fence_addresses=(A,))).method == "none"
    fence = replace(given, protected=(ip_network(f"{SECOND}/32"),))
    refused(pure.intend(state(host, two), fence), why, f"{SECOND} is one of protected_addresses")
    refused(
        pure.intend(state(node(addresses=()), two), replace(given, fence_addresses=(A,))),
        why,
        "its Node object has no addresses",
    )
    # A note of an address that is not fenced shows nothing, whoever else has the image by right.
    shared = volume("w", elsewhere="b")
    shared = shared._replace(volume=shared.volume._replace(access_modes=("ReadWriteMany",)))
    elsewhere = image("w", watchers=[watcher(B, 2)], notes=[("a", SECOND)])
    seen, single = seen_beside()
    refused(
        pure.intend(
            part._replace(attached=(volume(), shared), single=single),
            options(image(watchers=[watcher()]), elsewhere, seen),
        ),
        why,
    )
    # What was fenced before is not asked again.
    before = intended(part, options(image(watchers=[watcher()]), image("w", locks=[lock()])))
    assert intended(part._replace(ledger=before), options(image(), silent)) == before
    # With its Node object gone nobody knows that the second address was left out.
    first = intended(apart, replace(given, cluster_id="c1"))
    gone = {"host": None, "item": None, "ledger": first}
    refused(pure.intend(part._replace(**gone), given), why, "its Node object has no addresses")
    assert intended(apart._replace(**gone), replace(given, cluster_id="c1")) == first


def test_what_was_fenced_before_the_node_booted_is_judged_anew() -> None:
    """It may be open at another address since; left out by a filter, it must not ride on the
    others' fence.
    """
    host, twin = (
        node(addresses=(A, SECOND)),
        (pick_host_record(node("b", "True", addresses=(B, SECOND))),),
    )
    given = options(image(watchers=[watcher()]), image("w"), cluster_id="c1")
    apart = (volume(), volume("w", cluster_id="c2"))
    for changed in ({"boot_id": "boot-0"}, {"phase": "releasing"}):
        before = intended()._replace(volumes=("v", "w", "x"), phase="detached")._replace(**changed)
        again = state(host, apart, others=twin, ledger=before)
        # What has left the node is no business of this fence.
        assert intended(again, given).volumes == ("v", "x")
        refused(
            pure.intend(again._replace(attached=(volume(), volume("w"))), given),
            "nothing shows from where w is held",
        )
        used = again._replace(attached=(volume(),), used=(moved("w", cluster_id="c2"),))
        assert intended(used, given).volumes == ("v", "x")
    now = again._replace(ledger=intended()._replace(volumes=("v", "w")))
    assert intended(now, given).volumes == ("v", "w")


def test_what_a_method_cannot_fence_is_no_fence_of_the_whole_node() -> None:
    host = node(addresses=(A, SECOND))
    two = [volume(), volume("w")]
    given = options(image(watchers=[watcher()]), image("w"))
    why = "nothing shows from where w is held"
    first = network_fence("hand", addresses_from="")
    refused(
        pure.intend(state(host, two, fences=(first,)), given),
        why,
        f"{SECOND} is covered by no NetworkFence",
    )
    both = network_fence("hand", (f"{A}/32", f"{SECOND}/32"), addresses_from="")
    assert set(intended(state(host, two, fences=(both,)), given).addresses) == {A, SECOND}
    # The user has said by which addresses the node reaches Ceph; the driver's word is none.
    sure = network_fence(addresses_from="option")
    assert intended(state(host, two, fences=(sure,)), given).addresses == (A,)
    refused(pure.intend(state(host, two, fences=(network_fence(),)), given), why)
    twin = (pick_host_record(node("b", "True", addresses=(B, SECOND))),)
    theirs = (
        sure,
        network_fence("a", (f"{SECOND}/32",), driver="other", addresses_from="option"),
    )
    refused(
        pure.intend(state(host, two, fences=theirs, others=twin), given),
        why,
        f"{SECOND} belongs to node b",
    )
    # An entry for what a NetworkFence covers would be undone by its controller.
    beside = network_fence("beside", (f"{SECOND}/32",), addresses_from="")
    refused(
        pure.intend(state(host, two, fences=(beside,)), given),
        why,
        "NetworkFence beside, whose controller undoes",
    )
    assert intended(state(host, fences=(beside,)), OPTIONS).addresses == (A,)


def test_an_attachment_that_is_older_than_its_node() -> None:
    """Another machine had the name then, and may have the image open at an address that nobody
    knows.
    """
    host = node()
    host["metadata"]["creationTimestamp"] = f"{NOW + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    two = [volume(), volume("w")]
    refused(
        pure.intend(state(host, two), options(image(watchers=[watcher()]), image("w"))),
        "w was attached before this Node object was made",
    )
    off = options(image(), image("w"), method="none", node_confirmed_off=True)
    refused(
        pure.intend(state(host, two), off), "v, w was attached before this Node object was made"
    )
    assert intended(
        state(host, two), options(image(watchers=[watcher()]), image("w", locks=[lock()]))
    ).addresses == (A,)
    host["metadata"]["creationTimestamp"] = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    assert intended(state(host, two), options(image(watchers=[watcher()]), image("w"))).volumes == (
        "v",
        "w",
    )


@pytest.mark.parametrize(
    "shown",
    [
        {"watchers": [watcher(STORAGE)], "locks": [lock(STORAGE)]},
        {"locks": [lock(STORAGE)], "notes": [("a", STORAGE)]},
        {"notes": [("a", STORAGE)]},
    ],
    ids=["watcher", "lock", "note"],
)
def test_whose_machine_was_fenced_if_the_attachment_is_older_than_the_node(
    shown: dict[str, Any],
) -> None:
    """A machine hangs, its Node object is deleted, and another one registers under the name. The
    reboot of that one must not release the fence of the first.
    """
    host = node()
    given = options(image(**shown))
    assert intended(state(host), given).machine == "machine-a"
    host["metadata"]["creationTimestamp"] = f"{NOW + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    ledger = intended(state(host), given)
    assert (ledger.addresses, ledger.machine) == ((STORAGE, A), UNKNOWN_MACHINE)
    # What the Node itself lists is its machine's address.
    assert intended(state(host), OPTIONS).machine == "machine-a"
    # A further run forgets it not, whatever it knows of the machine.
    known = ledger._replace(phase="fenced")
    assert intended(state(host, ledger=known), given).machine == UNKNOWN_MACHINE
    # What was fenced by name and machine before stays so, but for a volume that is new to it.
    before = known._replace(machine="machine-a")
    assert intended(state(host, ledger=before), given).machine == "machine-a"
    more = options(image(**shown), image("w", notes=[("a", STORAGE)]))
    added = state(host, [volume(), volume("w")], ledger=before)
    assert intended(added, more).machine == UNKNOWN_MACHINE


def test_what_is_on_the_blocklist_says_nothing_of_where_the_node_reaches_ceph() -> None:
    """An entry may be left from an incident months ago, or be about Kubernetes' network alone."""
    soon = "2026-01-01T13:00:00Z"
    unknown = "it is unknown from which address node a reaches Ceph"

    def given(*entries: dict[str, Any], **fields: Any) -> FenceOptions:
        return options(reading=reading(image(), blocklist=list(entries)), **fields)

    for left in (
        blocked(A),
        blocked(A, until=soon),
        blocked("10.0.0.0/24", "range"),
        blocked(f"{A}:0/11", "client"),
        blocked(STORAGE),
    ):
        refused(pure.intend(state(), given(left)), unknown)
    # With the user's word it is prolonged, and noted as it was.
    told = given(blocked(A, until=soon), fence_addresses=(A,))
    ledger = intended(given=told)
    assert ledger.source == {A: "fence_addresses"}
    assert ledger.entries == (Entry(A, "address", True, FAR, soon),)
    again = state(node(unschedulable=True), ledger=ledger)
    assert intended(again, given(blocked(A))) == ledger


def test_a_cordon_of_somebody_else_is_not_ours() -> None:
    decision = pure.intend(state(node(unschedulable=True)), OPTIONS)
    assert verbs(decision) == ["write_fence_ledger"]
    assert decision.ledger and not decision.ledger.cordoned


def test_who_comes_and_goes_on_what_the_node_alone_has_may_be_the_node() -> None:
    """No other node can have it, whatever is known of the address."""
    seen, single = seen_beside()
    given = options(image(watchers=[watcher(), watcher(B, 2, seen=1, nonce=12)]), seen)
    found = state(single=single)
    refused(pure.intend(found, given), "10.0.0.6:0/12 (client.2) comes and goes on p/v, which no")
    assert intended(found, replace(given, other_addresses=(B,))).addresses == (A,)
    fence = network_fence("storage-ops-b", (f"{B}/32",), addresses_from="option")
    assert intended(found._replace(fences=(fence,)), given).addresses == (A,)


def test_who_comes_and_goes_where_nobody_knows_may_be_the_lost_node() -> None:
    """With a bad connection, and a new cookie each time; as long as no other node can try to stage
    the volume.
    """
    why = "192.168.7.5:0/12 (client.2) comes and goes on p/v, which no other node has"
    strange = watcher(STORAGE, 2, seen=1, nonce=12)
    given = options(image(watchers=[strange]), fence_addresses=(A,))
    refused(pure.intend(state(), given), why)
    refused(pure.intend(state(), options(image(watchers=[watcher(), strange]))), why)
    refused(pure.intend(state(attached=[], used=(moved(elsewhere=""),)), given), why)
    # One of its own that is spared is not fenced either.
    own = replace(options(image(watchers=[watcher(), strange])), protected=(ip_network(STORAGE),))
    refused(pure.intend(state(node(addresses=(A, STORAGE))), own), why)
    shared = volume()
    shared = shared._replace(volume=shared.volume._replace(access_modes=("ReadWriteMany",)))
    for found in (
        state(attached=[], used=(moved(),)),
        state(attached=[volume(elsewhere="b")]),
        state(attached=[shared]),
    ):
        assert intended(found, given).addresses == (A,)
    for known in (
        replace(given, other_addresses=(STORAGE,)),
        options(image(watchers=[{**strange, "mirror": True}], notes=[("a", A)])),
    ):
        assert intended(given=known).addresses == (A,)
    # Each node's key can write a note.
    noted = options(image(watchers=[strange], notes=[("b", STORAGE), ("a", A)]))
    refused(pure.intend(state(), noted), why)
    # What is fenced already may be on its way out.
    ledger = intended()
    leaving = reading(image(watchers=[watcher(A, 2, seen=1, nonce=12)]), blocklist=[blocked(A)])
    again = state(node(unschedulable=True), ledger=ledger)
    assert intended(again, replace(OPTIONS, reading=leaving)) == ledger
    # Another watch of one that stays.
    stays = watcher(STORAGE, 2, nonce=12)
    assert (
        STORAGE
        in intended(
            given=options(image(watchers=[stays, strange]), fence_addresses=(A, STORAGE))
        ).addresses
    )


@pytest.mark.parametrize(
    ("given", "source"),
    [
        (image(locks=[lock()]), "lock"),
        (image(notes=[("a", A)]), "metadata"),
    ],
)
def test_other_sources_where_nobody_holds_the_image(given: dict[str, Any], source: str) -> None:
    ledger = intended(given=options(given))
    assert (ledger.addresses, ledger.source) == ((A,), {A: source})


def test_addresses_that_the_user_knows() -> None:
    ledger = intended(given=options(image(), fence_addresses=(STORAGE,)))
    assert ledger.source == {STORAGE: "fence_addresses", A: "status"}
    both = intended(given=options(image(watchers=[watcher()]), fence_addresses=(STORAGE,)))
    assert set(both.addresses) == {A, STORAGE}


@pytest.mark.parametrize(
    ("until", "ours"),
    # What has less than half a year left is renewed to a whole one.
    [
        ("2026-01-01T13:00:00Z", True),
        ("2026-07-01T00:00:00Z", True),
        ("2026-07-10T00:00:00Z", False),
        ("2031-01-01T00:00:00Z", False),
    ],
)
def test_an_entry_that_was_there_before_is_ours_if_it_is_renewed(until: str, ours: bool) -> None:
    given = options(
        reading=reading(image(watchers=[watcher()]), blocklist=[blocked(A, until=until)])
    )
    ledger = intended(given=given)
    assert ledger.entries == (
        Entry(A, "address", ours, FAR if ours else until, until if ours else ""),
    )
    assert intended(state(node(unschedulable=True), ledger=ledger), given) == ledger


def test_what_had_no_room_to_be_read_is_left_out_and_named() -> None:
    """One tenant's claims, which a pod has attached to the lost node, keep no other's from it."""
    found = state(attached=[volume(), volume("w", cluster_id="c2")])
    given = options(image(watchers=[watcher()]))
    decision = pure.intend(found, given)
    reported(decision, "not in what was read of Ceph", code="ceph_not_read")
    assert decision.ledger and decision.ledger.cluster_id == "c1"
    # It is told in each run, and what the fence has must be read.
    again = state(node(unschedulable=True), found.attached, ledger=decision.ledger)
    assert [one.name for one in pure.intend(again, given).plan.findings] == ["w"]
    both = decision.ledger._replace(volumes=("v", "w"))
    for told in (given, replace(given, volumes=frozenset({"v"}))):
        stands = state(None, found.attached, ledger=both)
        refused(pure.intend(stands, told), "volume w is not in what")
    # Where nothing was read, nothing is known.
    refused(pure.intend(found, options(image("x"))), "volume v is not in what was read of Ceph")


def test_what_comes_after_the_run_has_begun_is_left_out_and_named() -> None:
    """It would be fenced, and not proven: its image is not read. By power, the node would be off
    by then, and nothing of it would move.
    """
    found = silent(RBD, "csi.example.com", RBD)
    begun = replace(by_power("on"), volumes=frozenset({"v0", "v1"}))
    decision = pure.intend(found, begun)
    ledger = decision.ledger
    assert ledger and ledger.volumes == ("v0", "v1")
    _fence, left = decision.plan.findings
    assert (left.name, left.severity, left.code) == ("v2", "major", "volume_not_fenced")
    assert left.verdict == "report" and "none of the volumes that this run has begun" in left.reason
    # A node that is off is tainted whatever is left out.
    assert left.summary.endswith("an out-of-service taint would detach it with the others")
    after = found._replace(ledger=ledger, now=NOW + timedelta(seconds=85))
    read = reading(image("v0"), observations=2, seconds=35.0, read_at="2026-01-01T12:01:20Z")
    off = replace(by_power("off", "off", reading=read), volumes=begun.volumes)
    assert "record_fence" in verbs(pure.confirm(after, off))
    # What the fence has stays in it.
    known = replace(begun, volumes=frozenset({"v0"}))
    assert pure.intend(after, known).ledger == ledger
    # It is the same with any method, and says what there is where nothing else is left.
    two = state(attached=[volume(), volume("w")])
    both = options(image(watchers=[watcher()]), image("w"), volumes=frozenset({"v"}))
    reported(pure.intend(two, both), "begun with", code="volume_not_fenced")
    none = replace(both, volumes=frozenset())
    refused(pure.intend(two, none), "no RBD volume", "Left out: v: it is none of the volumes")


def test_what_the_ledger_has_no_room_for_is_left_out_and_named() -> None:
    """One tenant's thousands of claims take no room from others, nor does what one run after the
    other has fenced: with it, what a later run reads of the node had become too long for any, so
    that nothing was failed over, nor released.
    """
    evil = [f"pvc-{number:08x}-1111-2222-3333-444444444444" for number in range(4000)]
    shop = ["pvc-shop-1", "pvc-shop-2"]
    volumes = [volume(name) for name in evil]
    for number, found in enumerate(volumes):
        volumes[number] = found._replace(volume=found.volume._replace(claim_namespace="evil"))
    found = silent()._replace(attached=(*volumes, *map(volume, shop)))
    decision = pure.intend(found, by_power("on"))
    ledger = decision.ledger
    assert ledger and set(shop) < set(ledger.volumes)
    size = sum(len(name) + 4 for name in ledger.volumes)
    assert MOST_NAMES - 50 < size <= MOST_NAMES
    fence, *left = decision.plan.findings
    assert len(left) == 20 and len(fence.evidence["left_out"]) == 4002 - len(ledger.volumes)
    assert {(one.code, one.severity) for one in left} == {("volume_not_fenced", "major")}
    assert all("the ledger has no room" in one.reason for one in left)
    # Those that have left stay part of the fence until its release.
    gone = tuple(one for one in found.attached if one.name not in ledger.volumes)
    later = silent(ledger=ledger._replace(revision=1))._replace(attached=gone)
    decision = pure.intend(later, by_power("on"))
    assert decision.ledger and decision.ledger.volumes == ledger.volumes
    # What the fence has is no question of room, however much an older version has noted.
    more = ledger._replace(volumes=tuple(sorted(evil)), revision=1)
    later = silent(ledger=more)._replace(attached=found.attached)
    decision = pure.intend(later, by_power("on"))
    assert decision.ledger and decision.ledger.volumes == more.volumes
    assert [one.name for one in decision.plan.findings[1:]] == shop


def test_the_volumes_of_one_ceph_cluster() -> None:
    found = state(attached=[volume(), volume("w", cluster_id="c2")])
    given = options(image(watchers=[watcher()]), image("w", watchers=[watcher()]), cluster_id="c2")
    assert intended(found, given).volumes == ("w",)
    assert intended(found, replace(given, cluster_id="c1")).volumes == ("v",)
    refused(pure.intend(found, replace(given, cluster_id="c3")), "no RBD volume of cluster_id c3")


FSID, COPY = "7d7a3a52-8fdc-4f9e-9d3b-0a7f6d0c2f11", "0f0e1d2c-3b4a-4958-8776-655443322110"


def test_a_ceph_that_is_not_the_one_that_the_volumes_name() -> None:
    """A backup site has images of the same names, which no client has open there."""
    found = state(attached=[volume(cluster_id=FSID)])

    def read(fsid: str, *more: dict[str, Any], **fields: Any) -> FenceOptions:
        return options(reading=reading(image(), *more, fsid=fsid), fence_addresses=(A,), **fields)

    decision = pure.intend(found, read(COPY))
    refused(decision, f"Ceph cluster {COPY}, and volumes name clusterID {FSID}")
    assert decision.plan.findings[0].code == "ceph_reading_unfit"
    two = state(attached=[volume(), volume("w", cluster_id=FSID.upper())])
    refused(pure.intend(two, read(COPY, image("w"))), f"clusterID {FSID.upper()}")
    # The very one, another spelling of it, and a name that is no fsid.
    for name, fsid in ((FSID, FSID), (FSID.upper(), FSID), ("rook-ceph", COPY), (FSID[1:], COPY)):
        intended(state(attached=[volume(cluster_id=name)]), read(fsid))
    # ceph-csi maps clusterIDs after a fail-over between two Cephs; and the user knows that.
    ledger = intended(found, read(COPY, cluster_id=FSID))
    refused(pure.intend(found, read(COPY, cluster_id="c1")), "no RBD volume of cluster_id c1")
    # Its fence goes on, and what is new to it is judged.
    cordoned = node(unschedulable=True)
    assert intended(state(cordoned, found.attached, ledger=ledger), read(COPY)) == ledger
    more = (*found.attached, volume("w", cluster_id=FSID))
    refused(
        pure.intend(state(cordoned, more, ledger=ledger), read(COPY, image("w"))),
        f"clusterID {FSID}",
    )


# what was detached by force


def test_what_is_detached_by_force_is_fenced_like_what_is_attached() -> None:
    seen, single = seen_beside()
    found = state(attached=[], used=(moved(),), single=single)
    visits = watcher(B, 2, seen=2, nonce=12)
    both = image(watchers=[watcher(), visits])
    decision = pure.intend(found, options(both, seen))
    assert decision.ledger and (decision.ledger.addresses, decision.ledger.volumes) == (
        (A,),
        ("v",),
    )
    assert decision.plan.findings[0].evidence["volumes"] == ["v (shop/v), not attached any more"]
    assert "has 1 RBD volumes" in decision.plan.findings[0].summary
    # Nothing but its own status says that node b is at the other address.
    refused(pure.intend(found._replace(single={}), options(both)), f"whose address {A} is")
    refused(pure.intend(found, options(image("other"))), "volume v is not in what was read of Ceph")
    refused(
        pure.intend(found, options(image(watchers=[watcher(STORAGE)]))),
        "it is unknown whose address 192.168.7.5 is",
    )
    refused(
        pure.intend(state(attached=[]), OPTIONS),
        "no RBD volume is attached to node a, or used there without",
    )
    # Two that went to a node that is lost by now too are no evidence of whose address that is.
    gone = state(attached=[], used=(moved(elsewhere=""), moved("w", elsewhere="")))
    held = options(image(watchers=[watcher(STORAGE)]), image("w", watchers=[watcher(STORAGE)]))
    refused(pure.intend(gone, held), "at an address that no source lists as this node's")


@pytest.mark.parametrize(("theirs", "notes"), [(B, []), ("192.168.7.6", [("b", "192.168.7.6")])])
@pytest.mark.parametrize("how", ["watchers", "locks"])
def test_who_has_taken_over_what_was_detached_by_force_is_not_in_the_way(
    theirs: str, notes: Any, how: str
) -> None:
    holder = watcher(theirs, 2, nonce=12) if how == "watchers" else lock(theirs, 2, nonce=12)
    taken = image("w", notes=notes, **{how: [holder]})
    seen, single = seen_beside(address=theirs)
    found = state(attached=[volume()], used=(moved("w"),), single=single)
    given = options(image(watchers=[watcher()]), taken, seen)
    ledger = intended(found, given)
    assert (ledger.addresses, ledger.volumes) == ((A,), ("v", "w"))
    # What that node says of itself is no proof, and then only what is known of the rest is fenced.
    claimed, held = found._replace(single={}), options(image(watchers=[watcher()]), taken)
    why = f"whose address {theirs} is (that it is node b"
    refused(pure.intend(claimed, held), why)
    decision = pure.intend(claimed, replace(held, fence_addresses=(A,)))
    (_fence, left) = decision.plan.findings
    assert decision.ledger and decision.ledger.volumes == ("v",)
    assert (left.name, left.code) == ("w", "client_unknown") and why in left.reason
    # The old client may be there too.
    both = image("w", watchers=[watcher(theirs, 2, nonce=12), watcher()], notes=notes)
    alone = state(attached=[], used=(moved("w"),), single=single)
    assert intended(alone, options(both, seen, fence_addresses=(A,))).addresses == (A,)
    refused(
        pure.intend(alone, options(taken, seen)),
        "it is unknown from which address node a reaches Ceph",
    )
    # Whoever had taken it over may be fenced by now, and his lock be left.
    last = state(attached=[volume()], used=(moved("w", elsewhere=""),))
    given = options(image(watchers=[watcher()]), taken)
    refused(pure.intend(last, given), f"{theirs} belongs to node b")
    after = other_ledger(addresses=(theirs,), entries=(), volumes=("w",), phase="detached")
    refused(pure.intend(last._replace(ledgers=(after,)), given), f"{theirs} belongs to node b")
    last = last._replace(records=recorded(record("b", theirs)).records)
    assert intended(last._replace(ledgers=(after,)), given).addresses == (A,)
    # In a release that node's entries may be gone already, and its client writes again.
    back = after._replace(phase="releasing")
    refused(pure.intend(last._replace(ledgers=(back,)), given), f"{theirs} belongs to node b")
    # Attached to both nodes it has not been taken over; and a third node has no business there.
    for strange in (volume("w", elsewhere="b"), moved("w", elsewhere="c")):
        refused(
            pure.intend(
                state(attached=[volume(), strange]), options(image(watchers=[watcher()]), taken)
            ),
            f"{theirs} belongs to node b",
        )


def test_what_only_its_kubelet_says_is_used_there_gives_it_no_address() -> None:
    """Root on node a claims b's address on Ceph's network, which no Node object has, and that it
    uses b's volumes; then it closes what it has open and falls silent.
    """
    x = image("x", watchers=[watcher(THEIRS, 2, nonce=12)])
    for attached in ([], [volume()]):
        claimed = state(CLAIMS, attached=attached, used=(moved("x"),))
        why = f"it is unknown whose address {THEIRS} is. If it is a's"
        refused(pure.intend(claimed, options(image(), x)), why)
        locked = image("x", locks=[lock(THEIRS, 2, nonce=12)])
        refused(pure.intend(claimed, options(image(), locked)), why)
    # While it has its own images open, the address is left out of its fence.
    decision = pure.intend(claimed, options(image(watchers=[watcher()]), x))
    refused(decision, why)
    closed = image("x", watchers=[watcher(THEIRS, 2, seen=1, nonce=12)])
    refused(
        pure.intend(claimed, options(image(watchers=[watcher()]), closed)),
        f"{THEIRS} belongs to {THEIRS}:0/12 (client.2), which has p/x open",
    )
    # What it has open at the address of an image that is attached to it alone is its own.
    own = options(image(watchers=[watcher()]), image("x", watchers=[watcher()]))
    assert intended(state(attached=[volume()], used=(moved("x"),)), own).addresses == (A,)
    refused(
        pure.intend(
            state(attached=[], used=(moved("x"),)), options(image("x", watchers=[watcher()]))
        ),
        f"it is unknown whose address {A} is",
    )


@pytest.mark.parametrize("modes", [["ReadWriteMany"], []])
def test_its_kubelet_gives_it_no_address_on_what_is_attached_to_another_node_too(
    modes: list[str],
) -> None:
    """Root on node a claims b's address on Ceph's network. Both have w, which a has closed (L7)."""
    shared = volume("w", elsewhere="b")
    shared = shared._replace(volume=shared.volume._replace(access_modes=tuple(modes)))
    why = f"it is unknown whose address {THEIRS} is. If it is a's"
    for how in ({"watchers": [watcher(THEIRS, 2, nonce=12)]}, {"locks": [lock(THEIRS, 2)]}):
        held = image("w", **how)
        refused(pure.intend(state(CLAIMS, attached=[shared]), options(held)), why)
        # While it has others open, the address is left out of its fence.
        beside = state(CLAIMS, attached=[shared, volume()])
        refused(pure.intend(beside, options(held, image(watchers=[watcher()]))), why)
    # Its own address counts where it has open what is attached to it alone, and where b is seen.
    both = state(attached=[shared, volume()])
    mine = image("w", watchers=[watcher()])
    assert intended(both, options(mine, image(watchers=[watcher()]))).addresses == (A,)
    there, single = seen_beside()
    alone, given = state(attached=[shared]), options(mine, there)
    assert intended(alone._replace(single=single), given).addresses == (A,)
    refused(pure.intend(alone, given), f"it is unknown whose address {A} is")


def test_a_note_of_the_node_is_no_evidence_at_an_address_where_another_image_is_open() -> None:
    """The address was given to another host since. Ceph shows it there, with an image that only
    node c has, and no client of node a.
    """
    other = image("x", watchers=[watcher(STORAGE, 7)])
    two = state(attached=[volume(), volume("w")])
    held, noted = image(watchers=[watcher()]), image("w", notes=[("a", STORAGE)])
    why = f"address {STORAGE} (metadata) belongs to {STORAGE}:0/11 (client.7), which has p/x open"
    refused(pure.intend(two, options(held, noted, other)), why)
    # Without the other one it is all there is, as where a client of node a is there, too.
    assert set(intended(two, options(held, noted)).addresses) == {A, STORAGE}
    there = image("w", watchers=[watcher(STORAGE)], notes=[("a", STORAGE)])
    assert intended(state(attached=[volume("w")]), options(there, other)).addresses[0] == STORAGE
    # The user knows better, and so does the fence that stands.
    given = options(held, noted, other, fence_addresses=(STORAGE,))
    ledger = intended(two, given)
    assert set(ledger.addresses) == {A, STORAGE}
    again = state(node(unschedulable=True), two.attached, ledger=ledger)
    stands = reading(held, noted, other, blocklist=[blocked(A), blocked(STORAGE)])
    assert intended(again, replace(OPTIONS, reading=stands)) == ledger


class Counted(tuple[Any, ...]):
    """How often it was looked through."""

    times = 0

    def __iter__(self) -> Any:
        type(self).times += 1
        return super().__iter__()


def test_a_proof_does_not_ask_again_for_each_watcher_whose_the_addresses_are() -> None:
    """Each of thousands of nodes has its NetworkFence, and one of a tenant's volumes open."""

    def asked(nodes: int, watchers: int) -> int:
        shared = many(volume())
        there = [pick_host_record(node(f"n{number}", "True")) for number in range(nodes)]
        fences = Counted(network_fence(f"storage-ops-n{number}") for number in range(nodes))
        seen = [watcher(f"10.9.0.{number + 1}", number + 9) for number in range(watchers)]
        found = state(
            node(unschedulable=True), [shared], fences=fences, others=there, ledger=intended()
        )
        Counted.times = 0
        pure.confirm(found, proof(image(watchers=seen)))
        return Counted.times

    assert asked(40, 1) == asked(40, 30) == asked(3, 1) > 0


@pytest.mark.parametrize(
    ("modes", "by_right"), [(["ReadWriteMany"], True), (["ReadWriteOnce"], False), ([], False)]
)
def test_who_has_a_shared_volume_too_is_not_in_the_way(modes: list[str], by_right: bool) -> None:
    """Kubernetes attaches it to several nodes at once, so the new one holds it already, and in
    every later run.
    """
    shared = volume("w", elsewhere="b")
    shared = shared._replace(volume=shared.volume._replace(access_modes=tuple(modes)))
    seen, single = seen_beside()
    found = state(attached=[volume(), shared], single=single)
    both = image("w", watchers=[watcher(), watcher(B, 2, nonce=12)], locks=[lock(B, 2, nonce=12)])
    given = options(image(watchers=[watcher()]), both, seen)
    if not by_right:
        refused(pure.intend(found, given), f"{B} belongs to node b")
        return
    ledger = intended(found, given)
    assert (ledger.source, ledger.volumes) == ({A: "watcher"}, ("v", "w"))
    left = image("w", watchers=[watcher(B, 2, nonce=12)])
    now = state(node(unschedulable=True), [volume(), shared], single=single)
    after = proof(image(), left, seen, blocklist=[blocked(A)])
    assert verbs(confirm(ledger, after, now)) == ["record_fence"]
    known = proof(image(), left, blocklist=[blocked(A)])
    refused(confirm(ledger, known, now), f"{B}:0/12 (client.2) holds p/w of volume w, and it is")
    assert verbs(confirm(ledger, replace(known, other_addresses=(B,)), now)) == ["record_fence"]
    # A third node has no business there.
    refused(
        pure.intend(
            found,
            options(image(watchers=[watcher()]), image("w", watchers=[watcher("10.0.0.9", 3)])),
        ),
        "attached to b too",
    )


def test_another_node_may_open_what_was_detached_by_force_as_soon_as_it_is_fenced() -> None:
    before = image(watchers=[watcher()])
    # Nothing shows from where b reaches Ceph, so it takes the user's word for the address.
    unseen = pure.intend(state(attached=[], used=(moved(),)), options(before))
    refused(unseen, f"it is unknown whose address {A} is. If it is a's,")
    ledger = intended(state(attached=[], used=(moved(),)), options(before, fence_addresses=(A,)))
    opened = reading(image(watchers=[watcher("192.168.7.6", 2)]), blocklist=[blocked(A)])
    cordoned = node(unschedulable=True)
    decision = pure.confirm(
        state(cordoned, attached=[], used=(moved(),), ledger=ledger),
        replace(OPTIONS, reading=opened),
    )
    assert verbs(decision) == ["record_fence"]
    refused(
        pure.confirm(state(cordoned, ledger=ledger), replace(OPTIONS, reading=opened)),
        "it is unknown whose it is",
    )
    still = reading(before, blocklist=[blocked(A)])
    for given, reason in (
        (still, "still holds"),
        (reading(blocklist=[blocked(A)]), "volume v is not in what was read"),
    ):
        refused(
            pure.confirm(
                state(cordoned, attached=[], used=(moved(),), ledger=ledger),
                replace(OPTIONS, reading=given),
            ),
            reason,
        )


# who is not lost


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (node(ready="True"), "is Ready"),
        (node(ready="False"), "its kubelet is reporting (Ready=False)"),
        (node(seconds=10), "Unknown for 10 s only"),
    ],
)
def test_a_node_that_is_not_lost(host: dict[str, Any], reason: str) -> None:
    decision = pure.intend(state(host), OPTIONS)
    refused(decision, reason)
    assert decision.plan.findings[0].code == "node_not_lost"
    ledger = intended()
    refused(
        pure.confirm(state(host, ledger=ledger), OPTIONS),
        reason,
        "It has a fence (phase intended), which stays",
        "release_fenced_node",
    )


def test_a_kubelet_does_not_keep_its_node_from_being_lost() -> None:
    """By a time that is still to come, which it wrote before it went silent."""
    host = node(seconds=-86400 * 365)
    (taint,) = node(seconds=300)["spec"]["taints"]
    lying = {**host, "spec": {"taints": [taint]}}
    assert pure.intend(state(lying), OPTIONS).ledger == intended()
    fence, *_left = pure.intend(state(lying), OPTIONS).plan.findings
    assert fence.evidence["unknown_seconds"] == 300
    (young,) = node(seconds=10)["spec"]["taints"]
    refused(pure.intend(state({**host, "spec": {"taints": [young]}}), OPTIONS), "for 10 s only")
    refused(pure.intend(state({**host, "spec": {}}), OPTIONS), "for 0 s only")


def test_no_condition_at_all_is_no_proof() -> None:
    host = node()
    host["status"]["conditions"] = []
    refused(pure.intend(state(host), OPTIONS), "Unknown for 0 s only")


def test_no_such_node() -> None:
    refused(
        pure.intend(state(host=None)._replace(host=None, item=None), OPTIONS), "there is no node a"
    )


def test_another_run() -> None:
    refused(pure.intend(state(), OPTIONS, "another run works"), "another run works")


# what Ceph shows


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (replace(OPTIONS, reading=None), "nothing was read of Ceph"),
        (
            replace(OPTIONS, reading=reading(image(watchers=[watcher()]), observations=2)),
            "looked at 2 times in 61 s",
        ),
        (
            replace(OPTIONS, reading=reading(image(watchers=[watcher()]), seconds=9.5)),
            "in 9.5 s, and 3 times in 60 s",
        ),
        (
            replace(OPTIONS, reading=reading(image(watchers=[watcher()]), fsid="")),
            "which cluster it is (fsid)",
        ),
        (
            replace(
                OPTIONS,
                reading=reading(image(watchers=[watcher()]), read_at="2026-01-01T11:30:00Z"),
            ),
            "read it again",
        ),
        (options(image("other", watchers=[watcher()])), "volume v is not in what was read of Ceph"),
        (options(image(problem="No such file")), "p/v of volume v could not be read: No such file"),
    ],
)
def test_ceph_must_have_been_read_well(given: FenceOptions, reason: str) -> None:
    refused(pure.intend(state(), given), reason)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            options(image(watchers=[watcher(B)])),
            "holds p/v of v, and its address 10.0.0.6 belongs to node b (Ready)",
        ),
        (options(image(watchers=[watcher(), watcher(B, 2)])), "belongs to node b (Ready)"),
        (
            options(image(locks=[lock(B)])),
            "has a lock on p/v of v, and its address 10.0.0.6 belongs to node b",
        ),
        (
            options(image(watchers=[watcher(STORAGE)], notes=[("b", STORAGE)])),
            "belongs to node b (noted by ceph-csi on p/v)",
        ),
        (
            options(image(watchers=[watcher(STORAGE)], notes=[("gone", STORAGE)])),
            "at an address that no source lists as this node's",
        ),
        (
            options(fence_addresses=(B,)),
            "address 10.0.0.6 (fence_addresses) belongs to node b (Ready) too",
        ),
        (
            options(protected=(ip_network("10.0.0.0/29"),)),
            "10.0.0.5 (watcher) is one of protected_addresses",
        ),
        (options(image()), "it is unknown from which address node a reaches Ceph"),
        (options(image(watchers=[watcher(A, seen=2)])), "it is unknown from which address"),
        # Somebody at an address of nobody, beside the node or where ceph-csi noted another for it:
        # a backup host, perhaps.
        (
            options(image(watchers=[watcher(), watcher(STORAGE, 2)])),
            "at an address that no source lists as this node's",
        ),
        (
            options(image(watchers=[watcher(STORAGE)], notes=[("a", A)])),
            "at an address that no source lists as this node's",
        ),
        (
            options(image(watchers=[watcher(STORAGE)]), fence_addresses=(A,)),
            "at an address that no source lists as this node's",
        ),
        # Nodes behind one address.
        (
            options(image(watchers=[watcher(), watcher(A, 2, seen=1, nonce=12)])),
            "node_confirmed_off",
        ),
    ],
)
def test_whoever_cannot_be_told_from_others(given: FenceOptions, reason: str) -> None:
    refused(pure.intend(state(), given), reason)


def test_notes_outlive_nodes_and_their_addresses() -> None:
    """What ceph-csi noted of another node, the kubelet of this one does not take away; ceph-csi or
    the user does.
    """
    assert intended(given=options(image(watchers=[watcher()], notes=[("gone", A)]))).addresses == (
        A,
    )
    noted = options(image(watchers=[watcher()], notes=[("b", A)]))
    refused(pure.intend(state(), noted), f"{A} belongs to node b (noted by ceph-csi on p/v)")
    both = options(image(watchers=[watcher()], notes=[("b", A), ("a", A)]))
    for given in (both, replace(noted, fence_addresses=(A,))):
        assert intended(given=given).addresses == (A,)


THEIRS = "192.168.7.6"
# The kubelet of node a says that it has the address by which node b reaches Ceph.
CLAIMS = node(addresses=(A, THEIRS))


@pytest.mark.parametrize(
    ("images", "whose"),
    [
        (
            [image(watchers=[watcher()]), image("x", notes=[("b", THEIRS)])],
            "node b (noted by ceph-csi on p/x)",
        ),
        (
            [
                image(watchers=[watcher()]),
                image("x", watchers=[watcher(THEIRS, 2, seen=1, nonce=12)]),
            ],
            f"{THEIRS}:0/12 (client.2), which has p/x open, an image that is not attached to "
            "node a",
        ),
    ],
)
def test_a_kubelet_has_no_other_node_fenced_by_an_address_it_claims(
    images: list[Any], whose: str
) -> None:
    given = options(*images)
    decision = pure.intend(state(CLAIMS), given)
    assert decision.ledger and decision.ledger.addresses == (A,)
    evidence = decision.plan.findings[0].evidence
    assert evidence["not_fenced"] == {THEIRS: f"belongs to {whose} too"}
    # What is held nowhere needs the fence of the whole node.
    refused(
        pure.intend(state(CLAIMS, [volume(), volume("w")]), options(*images, image("w"))),
        f"{THEIRS} belongs to {whose} too",
    )
    # Not even if it holds an image of the node.
    there = options(image(watchers=[watcher(THEIRS, 2, nonce=12)]), *images[1:])
    refused(pure.intend(state(CLAIMS), there), f"its address {THEIRS} belongs to {whose}")
    # Nor by a NetworkFence made of what the kubelet says.
    for source in ("node", "driver", ""):
        made = network_fence(cidrs=(f"{A}/32", f"{THEIRS}/32"), addresses_from=source)
        refused(pure.intend(state(CLAIMS, fences=(made,)), given), f"covers {whose} too")


LIE = network_fence(cidrs=(f"{THEIRS}/32",))
SHARED = volume("w", elsewhere="b")


@pytest.mark.parametrize(
    ("found", "images", "reason"),
    [
        # What node b has open there, and what ceph-csi noted of it, is b's.
        (
            state(CLAIMS, fences=(LIE,)),
            [image(), image("x", notes=[("b", THEIRS)])],
            "it is unknown from which address node a reaches Ceph",
        ),
        (
            state(CLAIMS, fences=(LIE,)),
            [
                image(watchers=[watcher(THEIRS, 2, nonce=12)]),
                image("x", watchers=[watcher(THEIRS, 2, nonce=12)]),
            ],
            f"its address {THEIRS} belongs to {THEIRS}:0/12 (client.2), which has p/x open",
        ),
        # What the kubelet says is used here, and what both nodes have, node b has open.
        (
            state(fences=(LIE,), attached=[], used=(moved("x"),)),
            [image("x", watchers=[watcher(THEIRS, 2, nonce=12)])],
            f"it is unknown whose address {THEIRS} is. If it is a's",
        ),
        (
            state(fences=(LIE,), attached=[SHARED]),
            [image("w", watchers=[watcher(THEIRS, 2, nonce=12)])],
            f"it is unknown whose address {THEIRS} is. If it is a's",
        ),
        # A host for backups has an image of node a open, beside the node.
        (
            state(fences=(LIE,)),
            [image(watchers=[watcher(), watcher(THEIRS, 2, nonce=12)])],
            f"only node a itself (its kubelet, or the driver on it) says that {A}, {THEIRS}",
        ),
        # Ceph shows it at another address than it says.
        (
            state(fences=(LIE,)),
            [image(watchers=[watcher(STORAGE)])],
            f"no source lists as this node's (known: {A}, {THEIRS})",
        ),
        # Nothing shows anyone there.
        (
            state(fences=(LIE,)),
            [image()],
            f"The driver on the node has reported {THEIRS}, which is the node's own word",
        ),
    ],
)
def test_a_nodes_driver_has_no_other_host_fenced(
    found: NodeState, images: list[Any], reason: str
) -> None:
    """Root on a node chooses what its driver reports, which its NetworkFence was made of."""
    for method in ("auto", "network_fence"):
        refused(pure.intend(found, options(*images, method=method)), reason)


def test_a_nodes_driver_has_no_other_host_fenced_beside_its_own() -> None:
    """What is seen of the node is at its own address, and its NetworkFence covers another too."""
    others = (f"{THEIRS}/32", "192.168.7.0/29", "fd00::9/128")
    for cidrs in (*((f"{A}/32", other) for other in others), ("10.0.0.4/31",)):
        beside = pure.intend(state(fences=(network_fence(cidrs=cidrs),)), OPTIONS)
        refused(
            beside,
            f"NetworkFence storage-ops-a covers {cidrs[-1]} too, which only the node itself says",
            "delete it while it is Unfenced",
        )
    both = state(fences=(network_fence(cidrs=(f"{A}/32", f"{THEIRS}/32")),))
    # Nor a range for the sake of its first address.
    wide = network_fence(cidrs=(f"{A}/32", "10.0.0.8/30"))
    first = replace(OPTIONS, fence_addresses=("10.0.0.8",))
    refused(pure.intend(state(fences=(wide,)), first), "storage-ops-a covers 10.0.0.8/30 too")
    # One that is in force is gone on with.
    done = network_fence(cidrs=(f"{A}/32", f"{THEIRS}/32"), fenced=True)
    assert intended(state(fences=(done,))).addresses == (A,)
    # The user confirms it, now or with the NetworkFence.
    told = replace(OPTIONS, fence_addresses=(THEIRS,))
    assert set(intended(both, told).addresses) == {A, THEIRS}
    kept = state(
        fences=(network_fence(cidrs=(f"{A}/32", f"{THEIRS}/32"), addresses_from="option"),)
    )
    assert intended(kept).source == {A: "watcher", THEIRS: "network_fence"}
    # By other means nothing but what Ceph shows is fenced.
    assert intended(state(fences=(LIE,))).addresses == (A,)
    refused(
        pure.intend(
            state(attached=[volume(), volume("w")], fences=(LIE,)),
            options(image(watchers=[watcher()]), image("w"), method="network_fence"),
        ),
        "no NetworkFence of clusterID c1 covers 10.0.0.5",
    )


def test_a_nodes_driver_is_right_where_ceph_shows_the_same() -> None:
    """Kubernetes knows nothing of Ceph's network, and all that the node has is held from there."""
    reported = state(fences=(network_fence(cidrs=(f"{STORAGE}/32",)),))
    held = image(watchers=[watcher(STORAGE)])
    ledger = intended(reported, options(held))
    assert (ledger.method, ledger.source) == ("network_fence", {STORAGE: "watcher"})
    refused(pure.intend(state(fences=()), options(held)), "no source lists as this node's")
    # What hangs is held from nowhere else.
    two = reported._replace(attached=(volume(), volume("w")))
    refused(pure.intend(two, options(held, image("w"))), f"{A} is covered by no NetworkFence")
    sure = network_fence(cidrs=(f"{STORAGE}/32",), addresses_from="option")
    told = two._replace(fences=(sure,))
    assert intended(told, options(held, image("w"))).addresses == (STORAGE,)
    # Nor where the node's status is all that speaks for what its driver says.
    both = network_fence(cidrs=(f"{STORAGE}/32", f"{SECOND}/32"))
    host = node(addresses=(A, SECOND))
    refused(
        pure.intend(state(host, two.attached, fences=(both,)), options(held, image("w"))),
        "nothing shows from where w is held",
        f"{A} is covered by no NetworkFence",
    )
    # After a loss of power the lock is left, or what ceph-csi has noted.
    for left in (image(locks=[lock(STORAGE)]), image(notes=[("a", STORAGE)])):
        assert intended(reported, options(left)).addresses == (STORAGE,)
    # The user's word about a host that is none outweighs what the node says.
    told = options(image(watchers=[watcher()]), other_addresses=(STORAGE,))
    assert intended(reported, told).addresses == (A,)
    off = options(
        image(watchers=[watcher(STORAGE, seen=1)]), method="none", node_confirmed_off=True
    )
    refused(pure.intend(reported, off), "is said to be off")


def test_what_a_driver_is_said_to_report_keeps_its_node_from_no_fence() -> None:
    """Any node can write it for any other, by a CSIAddonsNode with the nodeID of that one."""
    # Ceph and the status agree, or all that Ceph shows does.
    assert intended(state(fences=(LIE,))).addresses == (A,)
    agreed = options(image(watchers=[watcher(STORAGE)], locks=[lock(STORAGE)]))
    without = intended(state(), agreed)
    assert STORAGE in without.addresses
    assert intended(state(fences=(LIE,)), agreed).addresses == without.addresses


def test_what_a_driver_reports_and_is_not_fenced_leaves_the_node_not_whole() -> None:
    """A client may hang there, without any trace, and write once another node has the volume."""
    two = [volume(), volume("w")]
    silent = options(image(watchers=[watcher()]), image("w"))
    assert intended(state(attached=two), silent).addresses == (A,)
    for method in ("auto", "ceph"):
        refused(
            pure.intend(state(attached=two, fences=(LIE,)), replace(silent, method=method)),
            "nothing shows from where w is held",
            f"{THEIRS} is what the driver on the node reports, and nothing confirms that",
        )
    # The user knows whose it is.
    given = replace(silent, other_addresses=(THEIRS,))
    assert intended(state(attached=two, fences=(LIE,)), given).addresses == (A,)
    given = replace(silent, fence_addresses=(THEIRS,))
    both = LIE._replace(cidrs=(f"{A}/32", f"{THEIRS}/32"))
    assert set(intended(state(attached=two, fences=(both,)), given).addresses) == {A, THEIRS}
    # What InternalIP says is in the status as well, and another Ceph's is no matter of this one.
    for other in (LIE._replace(addresses_from="node"), LIE._replace(driver="x", cluster_id="y")):
        assert intended(state(attached=two, fences=(other,)), silent).addresses == (A,)


class Uncompared(IPv4Network):
    """A range that may not be asked whether it contains an address."""

    def __contains__(self, other: object) -> bool:
        raise AssertionError(f"{other} is compared with {self}")


def test_single_addresses_are_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands in a NetworkFence each would be compared with each address of a node."""
    monkeypatch.setattr(network_fence_module, "networks", lambda _cidrs: (Uncompared(f"{A}/32"),))
    is_covered = network_fence_module.coverage(network_fence("storage-ops-b", (f"{A}/32",)))
    assert is_covered(A) and not is_covered(STORAGE)


@pytest.mark.parametrize("ours", [True, False])
def test_the_ranges_of_a_fence_are_not_read_again_for_each_address(
    monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    """A kubelet names as many addresses as it likes, and its NetworkFence may have as many."""
    read: list[tuple[str, ...]] = []
    networks = network_fence_module.networks

    def count(cidrs: tuple[str, ...]) -> Any:
        read.append(cidrs)
        return networks(cidrs)

    monkeypatch.setattr(network_fence_module, "networks", count)

    def times(number: int) -> int:
        """How often the ranges of a NetworkFence are read for a node of so many addresses."""
        many = [A, *(f"100.64.{it // 250}.{it % 250}" for it in range(number))]
        fences = (network_fence(cidrs=many, addresses_from="option"),) if ours else (LIE,)
        host = node(addresses=many)
        read.clear()
        decision = pure.intend(state(host, fences=fences), OPTIONS)
        assert decision.ledger and len(decision.ledger.addresses) == len(many)
        known = decision.ledger
        confirmed = pure.confirm(state(host, fences=fences, ledger=known), OPTIONS)
        assert len(confirmed.plan.findings) == 1
        return len(read)

    assert times(4) == times(40)


def test_many_addresses_of_another_nodes_word_are_told_by_a_few() -> None:
    many = [f"100.64.{number // 250}.{number % 250}/32" for number in range(8000)]
    lie = network_fence("storage-ops-b", (f"{A}/32", *many))
    refused(
        pure.intend(state(fences=(lie,)), replace(OPTIONS, fence_addresses=(A,))),
        f"NetworkFence storage-ops-b ({A}/32, 100.64.0.0/32, 100.64.0.1/32, 100.64.0.2/32, "
        "100.64.0.3/32 (+7996 more)) covers node b (by NetworkFence storage-ops-b) too",
        "(+7995 more) too, which only the node itself says",
    )


@pytest.mark.parametrize("source", ["driver", "node"])
def test_a_nodes_own_word_keeps_no_other_node_from_being_fenced(source: str) -> None:
    """Its driver, or once its kubelet, has claimed the address of node a."""
    for cidr in (f"{A}/32", "10.0.0.4/31"):
        lie = network_fence("storage-ops-b", (cidr,), addresses_from=source)
        for given in (OPTIONS, replace(OPTIONS, method="ceph")):
            refused(
                pure.intend(state(fences=(network_fence(), lie)), given),
                "belongs to node b (by NetworkFence storage-ops-b)",
                "Only node b itself says so: if the address is not its own, name it in "
                "fence_addresses",
            )
    lie = network_fence("storage-ops-b", (f"{A}/32",), addresses_from=source)
    told = state(fences=(network_fence(), lie))
    ledger = intended(told, replace(OPTIONS, fence_addresses=(A,)))
    # Unfenced, the other one would take the fence away.
    assert [made.name for made in ledger.network_fences] == ["storage-ops-a", "storage-ops-b"]
    kept = state(fences=(network_fence(addresses_from="option"), lie))
    assert intended(kept).addresses == (A,)
    # Together with an address of node b it would hit that one.
    wide = network_fence("storage-ops-b", (f"{A}/32", f"{B}/32"), addresses_from=source)
    refused(
        pure.intend(state(fences=(wide,)), replace(OPTIONS, fence_addresses=(A,))),
        f"NetworkFence storage-ops-b ({A}/32, {B}/32) covers node b (Ready) too",
        "delete it while it is Unfenced",
    )
    # Of node b the user has said it too.
    sure = network_fence("storage-ops-b", (f"{A}/32",), addresses_from="option")
    refused(
        pure.intend(state(fences=(sure,)), replace(OPTIONS, fence_addresses=(A,))),
        "belongs to node b (by NetworkFence storage-ops-b)",
    )


def test_a_client_of_anothers_image_that_may_be_the_nodes() -> None:
    """rbd-mirror may run on the node; what it was detached from by force, it may have open still;
    and the user knows what else opens images.
    """
    mirror = image("x", watchers=[watcher(A, 2, nonce=12, mirror=True)])
    assert intended(given=options(image(watchers=[watcher()]), mirror)).addresses == (A,)
    left = image("w", watchers=[watcher()])
    other = volume("w", cluster_id="c2")
    for found in (
        state(used=(moved("w", cluster_id="c2"),)),
        state(attached=[volume(), other]),
    ):
        only_v = options(image(watchers=[watcher()]), left, cluster_id="c1")
        assert intended(found, only_v).addresses == (A,)
    ledger = intended()._replace(volumes=("v", "w"))
    fenced = options(image(watchers=[watcher(A, 3, nonce=13)]), left)
    assert intended(state(ledger=ledger), fenced).volumes == ("v", "w")
    # What ceph-csi or the user says of the address counts more than that.
    noted = image(watchers=[watcher()], notes=[("a", A)])
    theirs = image("x", watchers=[watcher()])
    assert intended(given=options(noted, theirs)).addresses == (A,)
    strange = options(image(watchers=[watcher()]), image("x", watchers=[watcher()]))
    refused(
        pure.intend(state(), strange), "which has p/x open, an image that is not attached to node a"
    )
    assert intended(given=replace(strange, fence_addresses=(A,))).addresses == (A,)
    backup = image("x", watchers=[watcher(STORAGE, 2, nonce=12)])
    given = options(image(watchers=[watcher()]), backup, other_addresses=(STORAGE,))
    assert intended(given=given).addresses == (A,)


def test_an_old_note_on_anothers_image_gives_the_node_no_address() -> None:
    """Node a had x long ago, and the address that node c has now; c has written no note."""
    x = image("x", watchers=[watcher(THEIRS, 2, nonce=12)], notes=[("a", THEIRS)])
    assert intended(given=options(image(watchers=[watcher()]), x)).addresses == (A,)
    claims = pure.intend(state(CLAIMS), options(image(watchers=[watcher()]), x))
    assert claims.ledger and claims.ledger.addresses == (A,)
    assert THEIRS in claims.plan.findings[0].evidence["not_fenced"]
    # What it has, or had when it was fenced, it has staged from there.
    given = options(image(watchers=[watcher()]), image("x", notes=[("a", THEIRS)]))
    for found in (
        state(attached=[volume(), volume("x")]),
        state(used=(moved("x", elsewhere=""),)),
        state(ledger=intended()._replace(volumes=("v", "x"))),
    ):
        assert THEIRS in intended(found, given).addresses


def test_the_network_fence_of_another_node_shows_whose_address_it_is() -> None:
    own, theirs = network_fence(), network_fence("storage-ops-b", (f"{THEIRS}/32",))
    for other in (theirs, replace_fence(theirs, ("192.168.7.0/29",))):
        decision = pure.intend(state(CLAIMS, fences=(own, other)), OPTIONS)
        assert decision.ledger and decision.ledger.addresses == (A,)
        assert decision.plan.findings[0].evidence["not_fenced"] == {
            THEIRS: "belongs to node b (by NetworkFence storage-ops-b) too"
        }
    gone = network_fence("storage-ops-gone", (f"{THEIRS}/32",))
    assert THEIRS in intended(state(CLAIMS, fences=(own, gone))).addresses


def replace_fence(fence: NetworkFence, cidrs: tuple[str, ...]) -> NetworkFence:
    return fence._replace(cidrs=cidrs)


def test_of_two_that_hold_its_images_its_kubelet_does_not_choose() -> None:
    """One of them may be a host for backups, which no Node object has."""
    both = image(watchers=[watcher(), watcher(THEIRS, 2, nonce=12)])
    why = "only node a itself (its kubelet, or the driver on it) says that"
    refused(pure.intend(state(CLAIMS), options(both)), why, THEIRS)
    apart = options(image(watchers=[watcher()]), image("w", locks=[lock(THEIRS, 2, nonce=12)]))
    refused(pure.intend(state(CLAIMS, [volume(), volume("w")]), apart), why)
    # Without a word of the kubelet's.
    told = options(both, fence_addresses=(A, THEIRS))
    assert intended(state(CLAIMS), told).addresses == (A, THEIRS)
    noted = options({**both, "client_addresses": [{"node": "a", "address": A}]})
    refused(pure.intend(state(CLAIMS), noted), why)


def test_an_address_that_two_nodes_have() -> None:
    twin = (pick_host_record(node("b", "Unknown", addresses=(A,))),)
    refused(pure.intend(state(others=twin), ALL_LOST), "belongs to node b (not Ready)")


def test_a_volume_that_is_attached_elsewhere_too() -> None:
    """Whoever comes late may see the new node, and fence that."""
    found = state(attached=[volume(elsewhere="b")])
    refused(
        pure.intend(found, options(image(watchers=[watcher(STORAGE)]))),
        "attached to b too",
        "it is unknown whose address",
    )
    refused(pure.intend(found, OPTIONS), f"it is unknown whose address {A} is")
    for mine, addresses in ((A, (A,)), (STORAGE, (STORAGE, A))):
        given = options(image(watchers=[watcher(mine)]), fence_addresses=(mine,))
        assert intended(found, given).addresses == addresses


def test_volumes_of_several_clusters() -> None:
    """Two clusterIDs may be one Ceph: what its images say counts."""
    found = state(attached=[volume(), volume("w", cluster_id="c2")])
    given = options(image(watchers=[watcher()]), image("w", watchers=[watcher()]))
    ledger = intended(found, given)
    assert (ledger.volumes, ledger.cluster_id, ledger.method) == (("v", "w"), "c1,c2", "ceph")
    refused(
        pure.intend(
            found, options(image(watchers=[watcher()]), image("w", problem="No such pool"))
        ),
        "p/w of volume w could not be read",
    )
    ledger = intended(found, replace(given, cluster_id="c2"))
    assert (ledger.volumes, ledger.cluster_id) == (("w",), "c2")
    # More of them, later.
    again = pure.intend(found._replace(ledger=ledger._replace(phase="fenced")), given)
    assert again.ledger and (again.ledger.volumes, again.ledger.cluster_id, again.ledger.phase) == (
        ("v", "w"),
        "c1,c2",
        "intended",
    )
    one, two = network_fence(), network_fence("other", cluster_id="c2")
    refused(
        pure.intend(found._replace(fences=(one,)), given),
        "no NetworkFence of clusterID c2 covers 10.0.0.5",
    )
    assert [
        made.name for made in intended(found._replace(fences=(one, two)), given).network_fences
    ] == ["storage-ops-a", "other"]


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({"cluster_id": "c2"}, True),
        ({"driver": "nfs"}, True),
        ({"driver": "nfs", "cluster_id": "c2"}, False),
        ({"driver": ""}, True),
    ],
)
def test_whether_a_network_fence_is_of_this_ceph(fields: dict[str, str], counts: bool) -> None:
    """A clusterID is only a name, so one Ceph may have two, and a driver may have several Cephs."""
    decision = pure.intend(
        state(fences=(network_fence(**fields),)), replace(OPTIONS, method="ceph")
    )
    assert bool(decision.plan.refusals) == counts
    late = confirm(
        intended(),
        proof(blocklist=[blocked(A)]),
        state(node(unschedulable=True), fences=(network_fence(**fields),)),
    )
    assert bool(late.plan.refusals) == counts


def test_most_nodes_are_lost() -> None:
    def nodes(lost: int, ready: int) -> Any:
        made = [
            node(f"n{number}", "Unknown" if number < lost else "True", addresses=())
            for number in range(lost + ready)
        ]
        return state(others=tuple(map(pick_host_record, made)))

    allowed = replace(OPTIONS, accept_majority=True)
    ledger = intended()
    # Of the node itself and these: few nodes are no exception.
    many = ((nodes(1, 2), True), (nodes(2, 1), False), (nodes(9, 2), False), (nodes(2, 3), True))
    few = (
        (nodes(0, 0), False),
        (nodes(0, 1), True),
        (nodes(0, 2), True),
        (nodes(1, 1), False),
        (nodes(2, 0), False),
    )
    for found, fine in (*many, *few):
        assert bool(pure.intend(found, OPTIONS).plan.refusals) != fine
        assert not pure.intend(found, allowed).plan.refusals
        assert (
            any(
                "accept_majority" in reason
                for reason in lost.not_standing(found._replace(ledger=ledger), OPTIONS)
            )
            != fine
        )
        assert bool(confirm(ledger, proof(blocklist=[blocked(A)]), found).plan.refusals) != fine


def other_ledger(**fields: Any) -> Ledger:
    return intended()._replace(node="b", **fields)


def test_an_address_that_the_fence_of_another_node_has() -> None:
    """Both behind one address: whichever is released first would take the other's fence with it."""
    refused(
        pure.intend(state(ledgers=(other_ledger(),)), OPTIONS),
        "10.0.0.5 is in the ledger of node b too (phase intended)",
        "node_confirmed_off",
    )
    assert intended(state(ledgers=(other_ledger(addresses=(B,), entries=()),))).addresses == (A,)
    # The range of a NetworkFence covers both, whichever was first.
    wide = network_fence("wide", ("10.0.0.0/24",), addresses_from="")
    noted = other_ledger(addresses=("10.0.0.99",), entries=())
    refused(
        pure.intend(state(fences=(wide,), others=(), ledgers=(noted,)), ALL_LOST),
        "covers node b, which has a fence too",
    )
    noted = noted._replace(
        network_fences=intended(state(fences=(wide,), others=()), ALL_LOST).network_fences
    )
    refused(
        pure.intend(state(ledgers=(noted,)), OPTIONS), "10.0.0.5 is in the ledger of node b too"
    )
    # What was written by both before stays; their release tells.
    assert (
        intended(state(node(unschedulable=True), ledger=intended(), ledgers=(other_ledger(),)))
        == intended()
    )


def test_nothing_to_fence() -> None:
    refused(
        pure.intend(state(attached=[volume(driver="csi.example.com")]), OPTIONS),
        "no RBD volume is attached",
        "csi.example.com",
    )


# node_confirmed_off


def test_a_node_that_is_off() -> None:
    given = options(image(), method="none", node_confirmed_off=True)
    ledger = intended(given=given)
    assert (ledger.method, ledger.addresses, ledger.entries) == ("none", (), ())
    refused(
        pure.intend(state(), replace(given, node_confirmed_off=False)), "Set node_confirmed_off"
    )
    refused(pure.intend(state(), replace(given, method="auto")), "it is unknown from which address")
    assert intended(given=replace(given, reading=None)).unverified
    # What is off leaves its locks behind, wherever they are from; but with any other method
    # somebody would be fenced for them.
    locked = options(image(locks=[lock(STORAGE)]), node_confirmed_off=True)
    assert intended(given=replace(locked, method="none")).addresses == ()
    for method in ("auto", "ceph"):
        refused(
            pure.intend(state(), replace(locked, method=method)),
            "at an address that no source lists as this node's",
        )


@pytest.mark.parametrize("method", ["none", "ceph", "auto"])
@pytest.mark.parametrize("seen", [watcher(), watcher(STORAGE), watcher(A, seen=1)])
def test_a_living_watcher_contradicts(method: str, seen: dict[str, Any]) -> None:
    given = options(image(watchers=[seen]), method=method, node_confirmed_off=True)
    refused(pure.intend(state(), given), "is said to be off", seen["entry"])


def test_a_visitor_from_elsewhere_does_not_contradict() -> None:
    assert (
        intended(
            given=options(
                image(watchers=[watcher(B, seen=1)]), method="none", node_confirmed_off=True
            )
        ).method
        == "none"
    )


# by what means


def test_a_network_fence_is_used_where_there_is_one() -> None:
    ledger = intended(state(fences=(network_fence(),)))
    assert (ledger.method, ledger.entries) == ("network_fence", ())
    assert [(found.name, found.ours) for found in ledger.network_fences] == [
        ("storage-ops-a", True)
    ]
    assert not intended(state(fences=(network_fence(fenced=True),))).network_fences[0].ours
    # Without Ceph at all its address is the only one that is known, if it is more than what
    # Kubernetes calls the node.
    guessed = state(fences=(network_fence(addresses_from="node"),))
    refused(pure.intend(guessed, replace(OPTIONS, reading=None)), "nothing was read of Ceph")
    refused(pure.intend(guessed, options(image())), "it is unknown from which address")
    assert intended(guessed, replace(OPTIONS, reading=None, fence_addresses=(A,))).source == {
        A: "fence_addresses"
    }
    reported = pure.intend(state(fences=(network_fence(),)), replace(OPTIONS, reading=None))
    refused(reported, "nothing was read of Ceph", f"The driver on the node has reported {A}")
    given = state(fences=(network_fence(addresses_from="option"),))
    alone = intended(given, replace(OPTIONS, reading=None))
    assert (alone.source, alone.unverified) == ({A: "network_fence"}, True)
    refused(
        pure.intend(state(fences=(network_fence(),)), replace(OPTIONS, method="ceph")),
        "NetworkFence storage-ops-a covers 10.0.0.5",
    )


@pytest.mark.parametrize(
    ("fences", "reason"),
    [
        (None, "CSI-Addons is not installed"),
        ((), "no NetworkFence of clusterID c1 covers 10.0.0.5"),
        ((network_fence(cluster_id="c2"),), "no NetworkFence of clusterID c1 covers"),
        ((network_fence(cidrs=("10.0.0.0/24",)),), "covers node b (Ready) too"),
        ((network_fence(message=MESSAGES["Fenced"]),), "one message for both operations"),
        ((network_fence(result="Failed", message="denied"),), "may land after a fencing"),
        ((network_fence(result="", message=""),), "may land after a fencing"),
        ((network_fence(deleted=NOW),), "is being deleted"),
        ((network_fence(cluster_id=""),), "is its class missing"),
    ],
)
def test_network_fences_that_do_not_do(fences: Any, reason: str) -> None:
    refused(pure.intend(state(fences=fences), replace(OPTIONS, method="network_fence")), reason)


def test_a_network_fence_must_not_cover_what_is_protected() -> None:
    given = replace(ALL_LOST, protected=(ip_network("10.0.0.128/32"),))
    others = state(fences=(network_fence(cidrs=("10.0.0.0/24",)),), others=())
    refused(pure.intend(others, given), "10.0.0.128/32 of protected_addresses")


def test_all_network_fences_of_an_address_are_used() -> None:
    """The controller takes the fence back for each one that is Unfenced, whenever it starts."""
    ledger = intended(
        state(fences=(network_fence(), network_fence("other", driver="cephfs.csi.ceph.com")))
    )
    assert [found.name for found in ledger.network_fences] == ["storage-ops-a", "other"]


def test_auto_without_a_network_fence_is_ceph() -> None:
    assert intended(state(fences=())).method == "ceph"
    refused(
        pure.intend(state(fences=()), replace(OPTIONS, reading=None, fence_addresses=(A,))),
        "nothing was read of Ceph",
        "prepare_network_fences",
    )


# once more


def test_a_second_run_changes_nothing() -> None:
    for phase in ("intended", "fenced", "detached"):
        ledger = intended()._replace(phase=phase)
        again = pure.intend(
            state(node(unschedulable=True), ledger=ledger), replace(OPTIONS, run="run-2")
        )
        assert again == Decision(pure.Plan([]), ledger)
    gone = state(node(unschedulable=True), attached=[], ledger=ledger)
    assert pure.intend(gone, options(image(watchers=[watcher(B)]), run="run-2")).ledger == ledger


def test_a_killed_run_is_gone_on_with() -> None:
    ledger = intended()
    again = pure.intend(state(ledger=ledger), OPTIONS)
    assert verbs(again) == ["cordon_node"]
    assert again.ledger == ledger
    # Killed before the node's own copy was written.
    half = state(node(unschedulable=True))._replace(ledger=ledger)
    assert verbs(pure.intend(half, OPTIONS)) == ["write_fence_ledger"]


def test_new_clients_are_added_after_the_same_checks() -> None:
    ledger = intended()._replace(phase="fenced")
    found = state(node(unschedulable=True), ledger=ledger)
    more = options(image(watchers=[watcher(), watcher("10.0.0.7", 2, nonce=12)]))
    refused(pure.intend(found, more), "at an address that no source lists as this node's")
    named = pure.intend(found, replace(more, fence_addresses=("10.0.0.7",), run="run-2"))
    assert verbs(named) == ["write_fence_ledger"]
    assert named.ledger and (named.ledger.phase, named.ledger.addresses, named.ledger.run) == (
        "intended",
        (A, "10.0.0.7"),
        "run-2",
    )
    assert named.ledger.entries[0] == ledger.entries[0]
    short = replace(
        more,
        fence_addresses=("10.0.0.7",),
        reading=reading(*copy.deepcopy([image(watchers=[watcher()])]), seconds=1),
    )
    refused(pure.intend(found, short), "are needed")
    refused(pure.intend(found, replace(OPTIONS, fence_addresses=(B,))), "belongs to node b")


@pytest.mark.parametrize("changed", [{"boot_id": "boot-0"}, {"phase": "releasing"}])
def test_a_node_that_was_booted_or_given_back_is_judged_as_a_new_one(
    changed: dict[str, str],
) -> None:
    """The fence before is no evidence about its clients now; but it is ours, so it goes with this
    one's release.
    """
    gone = "10.0.0.9"
    before = intended()._replace(
        addresses=(gone,),
        source={gone: "watcher"},
        entries=(Entry(gone, "address", True, FAR),),
        tainted=True,
    )
    before = before._replace(**{"phase": "detached", **changed})
    found = state(node(unschedulable=True), ledger=before)
    seen = image(watchers=[watcher()])
    for there, entries in (([blocked(gone)], [gone, A]), ([], [A])):
        decision = pure.intend(found, options(reading=reading(seen, blocklist=there)))
        ledger = decision.ledger
        assert verbs(decision) == ["write_fence_ledger"] and ledger
        assert (ledger.phase, ledger.boot_id, ledger.addresses, ledger.source) == (
            "intended",
            "boot-1",
            (A,),
            {A: "watcher"},
        )
        assert [(entry.entry, entry.ours) for entry in ledger.entries] == [
            (entry, True) for entry in entries
        ]
        assert (ledger.tainted, ledger.cordoned, ledger.machine) == (True, True, "machine-a")
        # The next run goes on from there.
        assert intended(state(node(unschedulable=True), ledger=ledger)) == ledger
    refused(
        pure.intend(found, options(image())),
        "it is unknown from which address",
        f"The fence before the node booted had {gone}",
    )
    refused(pure.intend(found, options(reading=reading(seen, observations=2))), "looked at 2 times")
    refused(pure.intend(found, options(reading=reading(seen, fsid="f2"))), "the ledger is about f1")
    # Somebody else has that address by now.
    moved = found._replace(others=(pick_host_record(node("b", "True", addresses=(gone,))),))
    taken = options(reading=reading(seen, blocklist=[blocked(gone)]))
    refused(
        pure.intend(moved, taken),
        "still has 10.0.0.9, from a fence before, and that is the address of node b",
    )
    refused(
        confirm(before, proof(blocklist=[blocked(gone)])),
        "run again from the start" if "boot_id" in changed else "run from the start",
    )


def test_what_has_left_the_node_stays_noted() -> None:
    """A further run fences nothing more, so the fence stays proven, and what was moved is not
    forgotten; but a volume that the node has again has not left it.
    """
    cordoned = state(node(unschedulable=True))
    (held,) = intended().volumes
    before = intended()._replace(phase="fenced", volumes=("pv-moved", held), detached=("pv-moved",))
    assert intended(cordoned._replace(ledger=before)) == before
    both = before._replace(detached=("pv-moved", held))
    again = intended(cordoned._replace(ledger=both))
    assert (again.phase, again.detached) == ("fenced", ("pv-moved",))


@pytest.mark.parametrize("boot", ["boot-1", "boot-0"])
def test_what_has_left_and_is_back_is_judged_as_what_is_new(boot: str) -> None:
    """The node was back, without a release, in the boot of the fence or in a later one."""
    agreed = options(image(watchers=[watcher(STORAGE)], locks=[lock(STORAGE)]))
    known = intended(given=agreed)._replace(phase="detached", proven=True, boot_id=boot)
    if boot == "boot-0":
        w = image("w", watchers=[watcher(STORAGE)], locks=[lock(STORAGE)])
        before = known._replace(detached=("v",))
        known = intended(state(attached=[volume("w")], ledger=before), options(w))
        assert (known.volumes, known.phase, known.detached) == (("v", "w"), "intended", ("v",))
    back, at = volume(), volume().attachment._replace(created=NOW - timedelta(hours=1))
    back = back._replace(attachment=at)
    found = state(attached=[back], ledger=known)
    refused(pure.intend(found, SILENT), "nothing shows from where v is held")
    # Where it was not read, it stays there, and is no part of the fence.
    only = options(image("w", watchers=[watcher(STORAGE)]))
    left = intended(state(attached=[back, volume("w")], ledger=known), only)
    assert ("v" in left.volumes, left.detached) == (False, ())
    # What Ceph shows, and a fence of the whole node, do for it, and its proof begins again.
    given = options(image(watchers=[watcher(STORAGE)]))
    for enough in (given, replace(SILENT, fence_addresses=(STORAGE,))):
        again = intended(found, enough)
        assert ("v" in again.volumes, again.phase, again.detached) == (True, "intended", ())
        assert intended(found._replace(ledger=again), SILENT) == again
    # Any tenant may have it attached while the node is silent, which then has not opened it.
    assert "v" in intended(state(ledger=known), SILENT).volumes


def test_a_node_object_that_was_made_anew() -> None:
    before = intended()._replace(
        phase="detached", node_uid="uid-old", tainted=True, machine="machine-old"
    )
    decision = pure.intend(state(ledger=before), OPTIONS)
    ledger = decision.ledger
    assert verbs(decision) == ["write_fence_ledger", "cordon_node"] and ledger
    # The machine that was fenced may be another one, and at work still.
    assert (ledger.node_uid, ledger.phase, ledger.tainted, ledger.machine) == (
        "uid-a",
        "intended",
        False,
        "machine-old",
    )
    refused(
        confirm(before, proof(blocklist=[blocked(A)])),
        "its object recreated",
        "run again from the start",
    )


def test_a_network_fence_that_was_made_after_the_fence_takes_over() -> None:
    before = intended()._replace(phase="fenced")
    late = state(node(unschedulable=True), ledger=before, fences=(network_fence(),))
    refused(
        confirm(before, proof(blocklist=[blocked(A)]), late),
        "NetworkFence storage-ops-a covers 10.0.0.5 and is Unfenced",
        "method auto",
    )
    refused(
        pure.intend(late, replace(OPTIONS, method="ceph")), "use method network_fence (or auto)"
    )
    for method in ("auto", "network_fence"):
        ledger = intended(late, replace(OPTIONS, method=method))
        assert (ledger.method, ledger.phase, ledger.entries) == (
            "network_fence",
            "intended",
            before.entries,
        )
        assert [(found.name, found.ours) for found in ledger.network_fences] == [
            ("storage-ops-a", True)
        ]
    # What was somebody else's stays that, since it is not written again.
    foreign = before._replace(entries=(before.entries[0]._replace(ours=False),))
    for read in (HELD, None):
        assert (
            intended(late._replace(ledger=foreign), replace(OPTIONS, reading=read)).entries
            == foreign.entries
        )
    done = late._replace(fences=(network_fence(fenced=True),))
    assert verbs(confirm(ledger, proof(blocklist=[blocked(f"{A}/32", "range")]), done)) == [
        "record_fence"
    ]
    # A second one is not in the ledger either.
    more = done._replace(fences=(network_fence(fenced=True), network_fence("other")))
    refused(
        confirm(ledger, proof(blocklist=[blocked(A)]), more), "NetworkFence other covers 10.0.0.5"
    )


def test_a_network_fence_that_is_gone_is_made_up_for() -> None:
    """Somebody deletes what was to fence the node, and perhaps makes it again; nobody can restore
    its uid.
    """
    before = intended(state(fences=(network_fence(),)))
    gone = state(node(unschedulable=True), ledger=before, fences=())
    for method in ("auto", "ceph"):
        ledger = intended(gone, replace(OPTIONS, method=method))
        assert (ledger.method, [entry.entry for entry in ledger.entries]) == ("ceph", [A])
        assert ledger.network_fences == before.network_fences
    again = gone._replace(fences=(network_fence(fenced=True, uid="another"),))
    ledger = intended(again)
    assert (ledger.method, [found.uid for found in ledger.network_fences]) == (
        "network_fence",
        [before.network_fences[0].uid, "another"],
    )
    assert verbs(confirm(ledger, proof(blocklist=[blocked(f"{A}/32", "range")]), again)) == [
        "record_fence"
    ]
    refused(
        confirm(ledger, proof(blocklist=[blocked(f"{A}/32", "range")]), gone),
        "is gone or was replaced",
    )
    # One of another name may be for another Ceph.
    two = intended(
        state(fences=(network_fence(), network_fence("second", fenced=True, uid="uid-2")))
    )
    one = gone._replace(fences=(network_fence("second", fenced=True, uid="uid-2"),))
    refused(
        confirm(two, proof(blocklist=[blocked(f"{A}/32", "range")]), one),
        "storage-ops-a",
        "is gone or was replaced",
    )


def test_another_storages_network_fence_once_nothing_is_attached() -> None:
    before = intended()._replace(phase="fenced")
    other = network_fence(driver="san.example.com", cluster_id="san-1")
    for attached in (None, []):
        found = state(node(unschedulable=True), attached, ledger=before, fences=(other,))
        assert intended(found).method == "ceph"
        assert not confirm(before, proof(blocklist=[blocked(A)]), found).plan.refusals


def test_network_fences_of_the_fence_before() -> None:
    """One that does not cover the node any more is not fenced again, but released with the rest."""
    old = network_fence("old", cidrs=("10.0.0.9/32",), fenced=True)
    before = intended(state(fences=(network_fence(),)))
    kept = before._replace(
        network_fences=(
            before.network_fences[0]._replace(name="old", uid="uid-old", cidrs=("10.0.0.9/32",)),
        )
    )
    found = state(
        node(unschedulable=True),
        ledger=kept._replace(boot_id="boot-0", phase="fenced"),
        fences=(old, network_fence()),
    )
    ledger = intended(found)
    assert [(made.name, made.ours) for made in ledger.network_fences] == [
        ("old", True),
        ("storage-ops-a", True),
    ]
    unfenced = network_fence("old", cidrs=("10.0.0.9/32",))
    assert [
        made.name
        for made in intended(found._replace(fences=(unfenced, network_fence()))).network_fences
    ] == ["storage-ops-a"]
    proven = confirm(
        ledger,
        replace(OPTIONS, reading=None),
        found._replace(fences=(unfenced, network_fence(fenced=True))),
    )
    assert verbs(proven) == ["record_fence"]


def test_new_volumes_need_the_same_evidence() -> None:
    found = state(
        node(unschedulable=True),
        [volume(), volume("w")],
        ledger=intended()._replace(phase="fenced"),
    )
    images = [image(watchers=[watcher()]), image("w", watchers=[watcher()])]
    once = options(reading=reading(*images, observations=1, seconds=0))
    short = options(reading=reading(*images, observations=2, seconds=1))
    refused(pure.intend(found, once), "3 times in 60 s are needed")
    refused(pure.intend(found, short), "3 times in 60 s are needed")
    refused(
        pure.intend(found, replace(once, accept_short_observation=True)),
        "2 times in 0 s are needed",
    )
    assert intended(found, replace(short, accept_short_observation=True)).volumes == ("v", "w")
    ledger = intended(found, options(*images))
    assert (ledger.volumes, ledger.phase) == (("v", "w"), "intended")
    # What adds nothing does not.
    assert (
        intended(
            found._replace(ledger=ledger),
            options(reading=reading(*images, observations=1, seconds=0)),
        )
        == ledger
    )


SHORT = {"observations": 2, "seconds": 5.0}


def twice(**given: Any) -> dict[str, Any]:
    """A client that each of two looks has shown."""
    return {**watcher(**given), "seen": 2, "persistent": True}


def test_a_short_look_is_enough_where_ceph_its_notes_and_the_node_agree() -> None:
    held = image(watchers=[twice()], notes=[("a", A)], locks=[lock(A)])
    mirrored = image("w", watchers=[twice(), twice(address=STORAGE, mirror=True)], notes=[("a", A)])
    found = state(node(), [volume(), volume("w")])
    assert intended(found, options(reading=reading(held, mirrored, **SHORT))).addresses == (A,)
    for shorter in ({**SHORT, "observations": 1}, {**SHORT, "seconds": 4.9}):
        given = options(reading=reading(held, mirrored, **shorter))
        refused(pure.intend(found, given), "3 times in 60 s are needed")


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        # Nothing is noted of this node, or another address is.
        (A, image(watchers=[twice()])),
        (A, image(watchers=[twice()], notes=[("b", A)])),
        # The Node object has another address.
        (STORAGE, image(watchers=[twice()], notes=[("a", A)])),
        # No client is seen, one is not seen all the time, or one opens it by librbd.
        (A, image(notes=[("a", A)])),
        (A, image(watchers=[twice(), watcher(number=2, seen=1)], notes=[("a", A)])),
        (A, image(watchers=[twice(kernel=False)], notes=[("a", A)])),
        # Another client is there as well.
        (A, image(watchers=[twice(), twice(address=STORAGE)], notes=[("a", A)])),
        (A, image(watchers=[twice()], notes=[("a", A)], locks=[lock(STORAGE)])),
    ],
)
def test_where_they_do_not_agree_a_short_look_is_too_short(own: str, seen: dict[str, Any]) -> None:
    given = options(reading=reading(seen, **SHORT))
    refused(pure.intend(state(node(addresses=[own])), given), "3 times in 60 s are needed")


@pytest.mark.parametrize("found", [volume(elsewhere="b"), many(volume()), moved(elsewhere="")])
def test_what_another_node_may_open_needs_a_long_look(found: Any) -> None:
    given = options(reading=reading(image(watchers=[twice()], notes=[("a", A)]), **SHORT))
    refused(pure.intend(state(node(), [found]), given), "3 times in 60 s are needed")


def test_one_volume_that_is_not_clear_is_enough_to_look_longer() -> None:
    found = state(node(), [volume(), volume("w")])
    clear = image(watchers=[twice()], notes=[("a", A)])
    given = options(reading=reading(clear, image("w", watchers=[twice()]), **SHORT))
    refused(pure.intend(found, given), "3 times in 60 s are needed")


@pytest.mark.parametrize("text", ["", "x", "{}"])
def test_a_note_that_is_gone_is_written_again(text: str) -> None:
    ledger = intended()._replace(phase="fenced")
    lost = state(node(unschedulable=True), ledger=ledger)
    lost.item["metadata"]["annotations"] = {ANNOTATION: text}
    assert verbs(pure.intend(lost, OPTIONS)) == ["write_fence_ledger"]
    assert verbs(
        confirm(ledger, proof(blocklist=[blocked(A, until=ledger.entries[0].until)]), lost, text)
    ) == ["record_fence"]
    assert verbs(pure.intend(lost._replace(host=None, item=None), OPTIONS)) == []


@pytest.mark.parametrize(
    ("changed", "given", "reason"),
    [
        ({"fsid": "f2"}, OPTIONS, "the ledger is about f2"),
        (
            {"phase": "fenced"},
            replace(OPTIONS, method="none", node_confirmed_off=True),
            "one by method ceph, and was proven: none is weaker",
        ),
        (
            {"proven": True},
            replace(OPTIONS, method="none", node_confirmed_off=True),
            "one by method ceph, and was proven: none is weaker",
        ),
    ],
)
def test_a_ledger_that_is_in_the_way(
    changed: dict[str, Any], given: FenceOptions, reason: str
) -> None:
    ledger = intended()._replace(**changed)
    refused(pure.intend(state(ledger=ledger), given), reason)


# what proves it


def confirm(
    ledger: Ledger, given: FenceOptions, found: NodeState | None = None, note: str | None = None
) -> Decision:
    found = found or state(node(unschedulable=True))
    if found.item:
        found.item["metadata"]["annotations"] = {ANNOTATION: ledger.text if note is None else note}
    return pure.confirm(found._replace(ledger=ledger), given)


def proof(*images: dict[str, Any], blocklist: Sequence[Any] = (), **fields: Any) -> FenceOptions:
    read = reading(*(images or [image()]), blocklist=blocklist, observations=1, seconds=0)
    return replace(OPTIONS, reading=read, run="run-2", **fields)


def test_a_fence_that_is_to_become_larger_does_not_forget_that_it_was_proven() -> None:
    """By then volumes may have moved without a taint, so its release still has to prove that no
    client of the node is left.
    """
    ledger = intended()
    assert not ledger.proven
    cordoned = state(node(unschedulable=True), ledger=ledger)
    proven = pure.confirm(cordoned, proof(blocklist=[blocked(A)])).ledger
    assert proven and proven.proven and proven.phase == "fenced"
    more = options(image("w", watchers=[watcher()]))
    left = proven._replace(phase="detached", detached=("v",))
    larger = intended(state(attached=(volume("w"),), ledger=left), more)
    assert (larger.phase, larger.volumes, larger.proven) == ("intended", ("v", "w"), True)


def test_nothing_is_confirmed_while_another_run_has_the_lease() -> None:
    ledger = intended()
    found = state(node(unschedulable=True))._replace(ledger=ledger)
    given = proof(blocklist=[blocked(A)])
    assert verbs(pure.confirm(found, given)) == ["record_fence"]
    decision = pure.confirm(found, given, "run r2 has the Lease")
    refused(decision, "run r2 has the Lease")
    assert decision.plan.findings[0].code == "lease_held"
    assert decision.ledger == ledger


def test_an_entry_and_no_watch_prove_it() -> None:
    decision = confirm(intended(), proof(blocklist=[blocked(A, until="2026-12-31T00:00:00Z")]))
    assert verbs(decision) == ["record_fence"]
    ledger = decision.ledger
    assert ledger and (ledger.phase, ledger.run, ledger.unverified) == ("fenced", "run-2", False)
    assert ledger.entries == (Entry(A, "address", True, "2026-12-31T00:00:00Z"),)
    again = confirm(ledger, proof(blocklist=[blocked(A, until="2026-12-31T00:00:00Z")], by="other"))
    assert again == Decision(pure.Plan([]), ledger)
    assert verbs(confirm(ledger._replace(phase="detached"), proof(blocklist=[blocked(A)]))) == [
        "record_fence"
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (replace(OPTIONS, reading=None), "nothing was read of Ceph"),
        (proof(), "Ceph's blocklist has no entry for 10.0.0.5"),
        (proof(blocklist=[blocked(f"{A}:0/11", "client")]), "no entry for 10.0.0.5"),
        (proof(blocklist=[blocked(A, until="2026-01-01T13:00:00Z")]), "expires too soon"),
        (
            proof(image(watchers=[watcher(seen=1)]), blocklist=[blocked(A)]),
            "10.0.0.5:0/11 (client.1) still holds p/v",
        ),
        (proof(image(problem="down"), blocklist=[blocked(A)]), "could not be read: down"),
        (proof(image("w"), blocklist=[blocked(A)]), "volume v is not in what was read"),
    ],
)
def test_what_does_not_prove_it(given: FenceOptions, reason: str) -> None:
    ledger = intended()
    decision = confirm(ledger, given)
    refused(decision, reason)
    assert decision.ledger == ledger


def test_whoever_else_holds_the_image_may_be_the_node() -> None:
    """At another address of its, or at one that is unknown; also if it was seen only once."""
    second = "10.0.0.55"
    host = state(node(unschedulable=True, addresses=(A, second)))
    entry = [blocked(A)]
    refused(
        confirm(
            intended(), proof(image(watchers=[watcher(second, seen=1)]), blocklist=entry), host
        ),
        "10.0.0.55:0/11 (client.1) still holds",
    )

    def twice(*seen: dict[str, Any], attached: Any = None, **fields: Any) -> Decision:
        read = reading(
            image(watchers=list(seen), **fields), blocklist=entry, observations=2, seconds=3
        )
        return confirm(
            intended(),
            replace(proof(), reading=read),
            state(node(unschedulable=True), attached=attached),
        )

    refused(
        twice(watcher(STORAGE)),
        "192.168.7.5:0/11 (client.1) holds p/v of volume v, and it is unknown whose it is",
    )
    # One that comes and goes may be the node with a bad connection.
    refused(twice(watcher(STORAGE, seen=1)), "it is unknown whose it is")
    refused(
        confirm(intended(), proof(image(watchers=[watcher(STORAGE, seen=1)]), blocklist=entry)),
        "it is unknown whose it is",
    )
    # Whatever another node says of itself: no other can have what is attached to this one alone.
    refused(twice(watcher(STORAGE), notes=[("b", STORAGE)]), "it is unknown whose it is")
    refused(twice(watcher(B)), "it is unknown whose it is")
    # It has moved already.
    assert verbs(twice(watcher(STORAGE), attached=())) == ["record_fence"]


def test_whether_another_node_can_have_a_volume_yet() -> None:
    ledger = intended()._replace(volumes=("v", "w"))
    for attached, used, alone in (
        ([volume(), volume("w"), volume("x", elsewhere="b")], (), True),
        ([volume(), volume("w", elsewhere="b")], (), False),
        ([volume()], (), False),
        ([volume(), volume("w")], (moved("x"),), False),
    ):
        assert pure.is_alone(state(attached=attached, used=used), ledger) == alone


def test_what_was_read_before_proves_nothing() -> None:
    """Clocks may differ by half a minute."""
    ledger = intended()._replace(at="2026-01-01T12:00:31Z")
    refused(
        confirm(ledger, proof(blocklist=[blocked(A)])),
        "before the ledger was written (2026-01-01T12:00:31Z), so it proves nothing",
    )
    assert not confirm(
        ledger._replace(at="2026-01-01T12:00:29Z"), proof(blocklist=[blocked(A)])
    ).plan.refusals


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"ledger": None}, "has no ledger"),
        ({"host": pick_host_record(node(ready="True"))}, "is Ready"),
        ({"host": pick_host_record(node())._replace(boot_id="boot-2")}, "run again from the start"),
        ({"ledger": intended()._replace(phase="releasing")}, "is being released"),
        ({"ledger": intended()._replace(phase="detached")}, ""),
        ({"host": None, "item": None}, ""),
    ],
)
def test_whether_a_run_may_go_on(fields: dict[str, Any], reason: str) -> None:
    reasons = lost.not_standing(state(ledger=intended())._replace(**fields), OPTIONS)
    assert bool(reasons) == bool(reason) and reason in "; ".join(reasons)


def test_the_watch_of_another_node_does_not_matter() -> None:
    given = proof(image(watchers=[watcher(B)]), blocklist=[blocked(A)], other_addresses=(B,))
    assert verbs(confirm(intended(), given)) == ["record_fence"]


def test_nothing_was_intended() -> None:
    refused(pure.confirm(state(), OPTIONS), "has no ledger")
    for nobody in ({"entries": ()}, {"addresses": ()}):
        refused(
            confirm(intended()._replace(**nobody), proof(blocklist=[blocked(A)])),
            "names nothing to be fenced",
        )
    bare = intended()._replace(method="network_fence")
    refused(confirm(bare, replace(OPTIONS, reading=None)), "names nothing to be fenced")
    refused(
        confirm(intended()._replace(boot_id="boot-0"), proof()),
        "was booted, or its object recreated, since its fence was intended",
    )


def test_a_network_fence_is_patched_and_its_message_proves_it() -> None:
    ledger = intended(state(fences=(network_fence(),)))
    open_, done = state(fences=(network_fence(),)), state(fences=(network_fence(fenced=True),))
    decision = confirm(ledger, replace(OPTIONS, reading=None), open_)
    assert verbs(decision) == ["fence_network", "record_fence"]
    assert decision.ledger and decision.ledger.unverified and decision.ledger.phase == "fenced"
    # Whoever asks Ceph does so after the patch.
    first = confirm(ledger, replace(OPTIONS, reading=None, proof="ceph"), open_)
    assert (verbs(first), first.ledger) == (["fence_network"], ledger)
    assert verbs(confirm(ledger, replace(OPTIONS, reading=None, proof="ceph"), done)) == []
    second = confirm(ledger, proof(blocklist=[blocked(f"{A}/32", "range")], proof="ceph"), done)
    assert verbs(second) == ["record_fence"]
    assert second.ledger and not second.ledger.unverified
    refused(confirm(ledger, proof(proof="ceph"), done), "no entry for 10.0.0.5")
    # What it says is of before: it was asked to, and has not done it yet.
    asked = state(fences=(network_fence(fenced=True, message=MESSAGES["Unfenced"]),))
    assert verbs(confirm(ledger, replace(OPTIONS, reading=None, proof="ceph"), asked)) == [
        "fence_network"
    ]


@pytest.mark.parametrize(
    ("fences", "reason"),
    [
        ((), "is gone or was replaced"),
        ((network_fence(uid="another"),), "is gone or was replaced"),
        ((network_fence(deleted=NOW),), "is being deleted"),
        ((network_fence(cidrs=("10.0.0.9/32",)),), "has other ranges now"),
    ],
)
def test_a_network_fence_that_is_not_the_one(fences: Any, reason: str) -> None:
    refused(
        confirm(
            intended(state(fences=(network_fence(),))),
            replace(OPTIONS, reading=None),
            state(fences=fences),
        ),
        reason,
    )


def test_none_is_proven_by_silence() -> None:
    given = options(image(), method="none", node_confirmed_off=True)
    ledger = intended(given=given)
    assert verbs(confirm(ledger, given)) == ["record_fence"]
    refused(confirm(ledger, replace(given, reading=HELD)), "still holds p/v")
    refused(confirm(ledger, replace(given, reading=None, proof="ceph")), "nothing was read of Ceph")
    unread = confirm(ledger, replace(given, reading=None))
    assert unread.ledger and unread.ledger.unverified


def test_check_mode_asks_for_no_proof_of_what_was_not_done() -> None:
    given = proof(image(watchers=[watcher()]), check=True)
    decision = confirm(intended(), given)
    assert verbs(decision) == ["record_fence"]
    assert decision.ledger and decision.ledger.phase == "fenced"


def test_a_node_whose_object_is_gone_is_lost_still() -> None:
    gone = state()._replace(host=None, item=None)
    ledger = intended()
    assert pure.intend(gone._replace(ledger=ledger), OPTIONS) == Decision(pure.Plan([]), ledger)
    assert verbs(confirm(ledger, proof(blocklist=[blocked(A)]), gone)) == ["record_fence"]


def test_an_address_with_a_scope_does_not_count() -> None:
    # Only the host itself knows what it means, and Ceph takes none: the node could not be fenced.
    claimed = node("b", "True", addresses=(B, "fe80::1%eth0", "fe80::1%{{ 1 }}\n"))
    assert pick_host_record(claimed).addresses == (B,)


MAPPED = ("::ffff:10.0.0.5", "::ffff:a00:5")


@pytest.mark.parametrize("seen", MAPPED)
@pytest.mark.parametrize("how", ["watchers", "locks"])
def test_a_client_that_ceph_sees_as_ipv6_is_not_hit_by_an_entry_for_ipv4(
    how: str, seen: str
) -> None:
    client = watcher(seen) if how == "watchers" else {**lock(A), "entry": f"[{seen}]:0/11"}
    held = image(**{how: [client]})  # type: ignore[arg-type]
    decision = pure.intend(state(), options(held))
    refused(decision, f"Ceph sees [{seen}]:0/11", "node_confirmed_off")
    assert decision.plan.findings[0].code == "fence_method_unfit"
    # Nor where it is seen once the fence is set.
    later = confirm(intended(), proof(held, blocklist=[blocked(A)]))
    refused(later, f"Ceph sees [{seen}]:0/11")
    # Who has another address is not of this fence, and a node that is off needs none.
    other = image("w", locks=[{**lock(B), "entry": "[::ffff:10.0.0.6]:0/11"}])
    assert intended(None, options(image(watchers=[watcher()]), other)).addresses == (A,)
    locked = image(locks=[{**lock(A), "entry": f"[{seen}]:0/11"}])
    assert intended(None, options(locked, method="none", node_confirmed_off=True)).entries == ()


def test_an_ipv4_mapped_entry_fences_no_ipv4_client() -> None:
    for entry in (
        {**blocked(A), "entry": f"[{MAPPED[0]}]:0/0", "address": MAPPED[0]},
        {**blocked(A), "entry": f"{MAPPED[0]}/128", "address": f"{MAPPED[0]}/128", "kind": "range"},
    ):
        refused(confirm(intended(), proof(blocklist=[entry])), f"has no entry for {A}")


@pytest.mark.parametrize("said", MAPPED)
def test_a_network_fence_of_ipv4_mapped_addresses_is_of_the_ipv4_ones(said: str) -> None:
    fence = network_fence(cidrs=[f"{said}/128"])
    decision = pure.intend(state(fences=(fence,)), OPTIONS)
    refused(decision, f"has {said}/128, which is IPv4 to ceph-csi and IPv6 to Ceph")
    assert decision.plan.findings[0].code == "network_fence_unfit"
    # One that was made since would take the fence back.
    later = confirm(intended(), proof(blocklist=[blocked(A)]), state(fences=(fence,)))
    refused(later, "is Unfenced, so its controller may take the fence away")
    assert later.plan.findings[0].code == "network_fence_opposed"


NO_HOSTS = ["0.0.0.0", "::5", "224.0.0.1", "ff02::1", "127.0.0.1", "::1", "255.255.255.255"]


@pytest.mark.parametrize("said", [*NO_HOSTS, "::10.0.0.99", "169.254.0.1", "fe80::1"])
def test_a_node_cannot_keep_itself_from_being_fenced_by_an_address_of_no_host(said: str) -> None:
    """Ceph takes no entry for some of these, and then the others were not written either."""
    lying = state(node(addresses=(said, A)))
    decision = pure.intend(lying, OPTIONS)
    assert decision.ledger and decision.ledger.addresses == (A,)
    (finding,) = decision.plan.findings
    (left,) = finding.evidence["unusable_addresses"]
    assert ip_network(left) == ip_network(said) and "not_fenced" not in finding.evidence
    # It is no address that the whole node would need, and no note of ceph-csi either.
    silent = options(image(notes=[("a", said)]), fence_addresses=(A,))
    assert intended(lying, silent).addresses == (A,)
    assert "unusable_addresses" not in pure.intend(state(), OPTIONS).plan.findings[0].evidence


def test_a_node_cannot_keep_itself_from_being_fenced_by_many_addresses() -> None:
    """The ledger would be too long for the API server."""
    many = [f"10.50.{number // 250}.{number % 250 + 1}" for number in range(3000)]
    most = whole_node._MOST
    assert len(intended(state(node(addresses=many[: most - 1] + [A]))).addresses) == most
    lying = state(node(addresses=[A, *many]))
    decision = pure.intend(lying, OPTIONS)
    assert decision.ledger and decision.ledger.addresses == (A,)
    (finding,) = decision.plan.findings
    assert finding.evidence["not_fenced"] == {
        "status with 3001 addresses": f"is not believed, since at most {most} are"
    }
    # What nothing shows may be open at any of them.
    unseen = pure.intend(lying, options(image(), fence_addresses=(A,)))
    refused(unseen, "status with 3001 addresses is not believed", "node_confirmed_off")


# what is left out of a fence


def too_late(name: str = "w", **fields: Any) -> Any:
    """A volume that was attached after the node fell silent, see gather_node."""
    return volume(name, **fields)._replace(too_late=True)


def reported(
    decision: Decision,
    *words: str,
    code: str = "nothing_to_repair",
    rest: str = "stays attached",
) -> None:
    """The node is fenced, and one volume is left out of that, each a finding of its own."""
    fence, left = decision.plan.findings
    assert (fence.kind, fence.verdict) == ("Node", "repair"), fence.reason
    assert (left.kind, left.name, left.verdict) == ("PersistentVolume", "w", "report")
    assert left.repair == [] and left.summary.endswith(f"of node a, and {rest}")
    # Only what needs no fence is a hint; of all else the run fails at its end.
    assert left.code == code
    assert left.severity == ("info" if code == "nothing_to_repair" else "major")
    for word in words:
        assert word in left.reason, left.reason
    assert decision.ledger and decision.ledger.volumes == ("v",)
    (listed,) = fence.evidence["left_out"]
    assert listed == f"w: {left.reason}"


LATE = "attached after the node fell silent"
NOT_ATTACHED = "node a may have it open, although it is not attached there"


@pytest.mark.parametrize(
    ("late", "seen"),
    [
        # Nobody has it open; a healthy node has; it is on another Ceph.
        (too_late(), image("w")),
        (many(too_late(elsewhere="b")), image("w", watchers=[watcher(THEIRS, 2, nonce=12)])),
        (too_late(cluster_id="c2"), image("w", problem="no such pool")),
    ],
    ids=["silent", "shared", "unreadable"],
)
def test_what_was_attached_too_late_is_no_evidence(late: Any, seen: dict[str, Any]) -> None:
    """Any tenant can have a volume of its own attached to a silent node, by a pod that names it."""
    two = [volume(), late]
    host = node(addresses=(A, "2001:db8::5"))
    held = image(watchers=[watcher()])
    noted = image(watchers=[watcher(STORAGE)], notes=[("a", STORAGE)])
    off = {"method": "none", "node_confirmed_off": True}
    for found, given in (
        (state(host, two, fences=(network_fence(),)), options(held, seen)),
        (state(attached=two), options(noted, seen)),
        (state(attached=two), options(noted, seen, fence_addresses=(STORAGE,))),
        (state(attached=two), options(image(), seen, **off)),
    ):
        reported(pure.intend(found, given), LATE)
    # Nor what Ceph shows of it afterwards.
    ledger = intended(state(attached=two), options(held, seen))
    after = proof(image(), seen, blocklist=[blocked(A)])
    cordoned = state(node(unschedulable=True), two)
    assert verbs(confirm(ledger, after, cordoned)) == ["record_fence"]
    # A second run has nothing to do, and says it again.
    again = pure.intend(cordoned._replace(ledger=ledger), options(held, seen))
    assert verbs(again) == [] and again.ledger == ledger
    assert [found.name for found in again.plan.findings] == ["w"]


def test_many_volumes_that_are_left_out_are_told_by_some() -> None:
    """Else one tenant's make the result too long, which fails the fence."""
    crowd = [too_late(f"{number:03}" + 247 * "x") for number in range(500)]
    decision = pure.intend(state(attached=[volume(), *crowd]), OPTIONS)
    assert decision.ledger and decision.ledger.volumes == ("v",)
    fence, *left = decision.plan.findings
    assert len(left) == 20 and len(fence.evidence["left_out"]) == 500
    assert len(json.dumps([found.to_result() for found in decision.plan.findings])) < 60_000


def test_no_crowd_hides_a_volume_that_the_run_fails_for() -> None:
    """Only 20 are told. Hints about one tenant's volumes would leave no room for another's volume,
    and the run would end well.
    """
    given = options(image(watchers=[watcher()]))
    crowd = [too_late(f"w{number:03}") for number in range(30)]
    unread = [volume(f"x{number:03}") for number in range(30)]
    # It comes last, after those of its tenant and of another.
    theirs = volume("y")
    assert theirs.volume
    theirs = theirs._replace(volume=theirs.volume._replace(claim_namespace="bank"))
    for others, majors in ((crowd, 1), (unread, 20), ([*crowd, *unread], 20)):
        decision = pure.intend(state(attached=[volume(), *others, theirs]), given)
        _fence, *left = decision.plan.findings
        severe = [found.name for found in left if found.severity == "major"]
        assert "y" in severe, severe
        assert (len(left), len(severe)) == (20, majors)
    # A second run writes nothing, and fails for it as well.
    cordoned = node(unschedulable=True)
    again = pure.intend(state(cordoned, [volume(), *crowd, theirs], ledger=decision.ledger), given)
    assert "y" in {found.name for found in again.plan.findings if found.severity == "major"}


def test_what_was_not_attached_too_late_is_evidence() -> None:
    host = node(addresses=(A, "10.0.0.7"))
    two = [volume(), volume("w")]
    given = options(image(watchers=[watcher()]), image("w"))
    refused(pure.intend(state(host, two, fences=(network_fence(),)), given), "from where w is held")
    # Nor does what is left out take the place of evidence, or get detached with the others.
    alone = state(attached=[too_late("v")])
    refused(pure.intend(alone, OPTIONS), "no RBD volume is attached to node a")
    # What a fence that stands has, the node had before.
    ledger = intended()
    late = state(attached=[too_late("v")], ledger=ledger)
    refused(pure.intend(late, options(image(problem="no such pool"))), "could not be read")
    # A node that is switched off is asked for nothing but its power.
    powered = silent(RBD)._replace(attached=(volume("v0"), too_late(elsewhere="b")))
    decision = pure.intend(powered, by_power("on"))
    assert decision.ledger and decision.ledger.volumes == ("v0",)


def without_volume(name: str = "w") -> Any:
    """An attachment whose PersistentVolume is gone."""
    return attached_volume(attachment(name, RBD, "a"), None, [])


def test_what_has_no_persistentvolume_needs_no_fence() -> None:
    """It cannot be read, and no other node can get it."""
    two = state(attached=[volume(), without_volume()])
    decision = pure.intend(two, OPTIONS)
    reported(decision, "its PersistentVolume is gone")
    # An inline volume has none, either.
    inline = without_volume()
    inline = inline._replace(attachment=inline.attachment._replace(volume=""))
    assert intended(state(attached=[volume(), inline])).volumes == ("v",)
    # There is a PersistentVolume, and its image was not read.
    unread = pure.intend(state(attached=[volume(), volume("w")]), OPTIONS)
    reported(unread, "not in what was read of Ceph", code="ceph_not_read")
    refused(pure.intend(state(attached=[without_volume()]), OPTIONS), "no RBD volume is attached")
    # What Ceph shows at an unknown address on v is not excused by it.
    strange = options(image(watchers=[watcher(), watcher(STORAGE, 2)]))
    refused(pure.intend(two, strange), "no source lists as this node's")
    # It goes while the fence is made.
    both = options(image(watchers=[watcher()]), image("w", watchers=[watcher()]))
    ledger = intended(state(attached=[volume(), volume("w")]), both)
    cordoned = node(unschedulable=True)
    after = state(cordoned, [volume(), without_volume()])
    assert verbs(confirm(ledger, proof(image(), blocklist=[blocked(A)]), after)) == ["record_fence"]
    assert pure.intend(after._replace(ledger=ledger), OPTIONS) == Decision(pure.Plan([]), ledger)
    there = state(cordoned, [volume(), volume("w")])
    refused(confirm(ledger, proof(image(), blocklist=[blocked(A)]), there), "volume w is not in")


def test_who_comes_and_goes_on_one_image_is_a_question_about_that_one() -> None:
    """A tenant has its volume cloned all the time, so a provisioner opens it from its pod. The
    volumes of others move, and this one stays.
    """
    found = state(attached=[volume(), volume("w")])
    held = image(watchers=[watcher()])

    def visited(*watchers: dict[str, Any]) -> dict[str, Any]:
        return image("w", watchers=[*watchers, watcher(POD, 9, seen=1, kernel=False)])

    decision = pure.intend(found, options(held, visited(watcher())))
    reported(decision, f"{POD}:0/11 (client.9) comes and goes on p/w", code="client_unknown")
    ledger = decision.ledger
    assert ledger and ledger.addresses == (A,)
    after = proof(image(), visited(), blocklist=[blocked(A)])
    cordoned = state(node(unschedulable=True), found.attached)
    proven = confirm(ledger, after, cordoned)
    assert verbs(proven) == ["record_fence"] and proven.ledger
    # A further run comes to the same.
    later = state(node(unschedulable=True), found.attached, ledger=proven.ledger)
    again = pure.intend(later, options(image(), visited(watcher())))
    assert again.ledger == proven.ledger
    assert [left.name for left in again.plan.findings] == ["w"]


WHO = f"{POD}:0/11 (client.9) comes and goes on p/w"


@pytest.mark.parametrize(
    ("attached", "images"),
    [
        # v may be open at that very address: nothing shows from where it is held.
        ([volume(), volume("w")], [image(), image("w", watchers=[watcher()])]),
        # Nor does anything show who has w.
        ([volume(), volume("w")], [image(watchers=[watcher()]), image("w")]),
        # Nothing is left that could be fenced.
        ([volume("w")], [image("w", watchers=[watcher()])]),
        # One volume is seen nowhere.
        (
            [volume(), volume("w"), volume("x")],
            [image(watchers=[watcher()]), image("w", watchers=[watcher()]), image("x")],
        ),
    ],
    ids=["another", "itself", "alone", "third"],
)
def test_what_else_hangs_on_who_comes_and_goes_is_refused(
    attached: list[Any], images: list[dict[str, Any]]
) -> None:
    """The client may be the lost node, whose connection is bad."""
    for found in images:
        if found["volume"] == "w":
            found["watchers"].append(watcher(POD, 9, seen=1))
    decision = pure.intend(state(attached=attached), options(*images))
    refused(decision, WHO)
    assert decision.plan.findings[0].code == "client_unknown"


def test_a_doubt_is_not_settled_for_a_fence_that_was_begun() -> None:
    """Its ledger does not tell what was seen of each volume; it may have been nothing."""
    two = state(node(unschedulable=True), [volume(), volume("w")])
    held = image(watchers=[watcher()])
    visited = image("w", watchers=[watcher(), watcher(POD, 9, seen=1)])
    begun = two._replace(ledger=intended(state(attached=[volume()]), options(held)))
    refused(pure.intend(begun, options(held, visited)), WHO)
    # Nor for what it has.
    both = intended(state(attached=two.attached), options(held, image("w", watchers=[watcher()])))
    for phase in ("intended", "fenced"):
        later = two._replace(ledger=both._replace(phase=phase))
        refused(pure.intend(later, options(image(), visited)), WHO)


@pytest.mark.parametrize(
    ("address", "code"), [(POD, "client_unknown"), (B, "fence_shared")], ids=["pod", "node b"]
)
def test_who_works_on_one_image_for_long_is_a_question_about_that_one(
    address: str, code: str
) -> None:
    """A tenant has the space of its big volume given back, which takes hours, by a provisioner at
    the address of a pod or of its node. The volumes of others move, and this one stays.
    """
    found = state(attached=[volume(), volume("w")])
    held = image(watchers=[watcher()])
    tool = watcher(address, 9, kernel=False)
    mine = watcher()
    for more in ({}, {"locks": [lock(address, 9)]}):
        given = options(held, image("w", watchers=[mine, tool], **more))
        decision = pure.intend(found, given)
        reported(decision, f"{address}:0/11 (client.9) holds p/w", code=code)
        assert decision.ledger and decision.ledger.addresses == (A,)
    # A further run, for which only this one is left, comes to its end.
    left = decision.ledger._replace(phase="detached", detached=("v",), proven=True)
    later = state(node(unschedulable=True), [volume("w")], ledger=left)
    again = pure.intend(later, given)
    assert again.ledger == left and [one.name for one in again.plan.findings] == ["w"]
    # A node may have it open like this; by the kernel, or as one of several nodes.
    by_nbd = state(attached=[volume(), volume("w", mounter="rbd-nbd")])
    refused(pure.intend(by_nbd, given), f"{address}:0/11 (client.9)")
    kernel = options(held, image("w", watchers=[mine, watcher(address, 9)]))
    refused(pure.intend(found, kernel), f"{address}:0/11 (client.9)")
    # What is seen nowhere, that client may have; and a lock without its owner tells nothing.
    refused(pure.intend(found, options(image(), image("w", watchers=[mine, tool]))), "client.9")
    locked = options(held, image("w", watchers=[mine], locks=[lock(address, 9)]))
    refused(pure.intend(found, locked), f"{address}:0/11 (client.9)")
    # It is the only one, or others may have it, too.
    refused(pure.intend(state(attached=[volume("w")]), given), "client.9")
    loose = state(used=(moved("w", elsewhere=""),))
    refused(pure.intend(loose, given), f"{address}:0/11 (client.9)")
    taken = state(attached=[volume(), volume("w", elsewhere="b")])
    if address == B:
        refused(pure.intend(taken, given), "belongs to node b")


def test_a_client_by_librbd_at_the_nodes_own_address_is_fenced_with_it() -> None:
    """Its kubelet says that it has an address which is a backup host's, too."""
    both = image("w", watchers=[watcher(), watcher(THEIRS, 9, kernel=False)])
    given = options(image(watchers=[watcher()]), both)
    two = [volume(), volume("w")]
    refused(pure.intend(state(node(addresses=(A, THEIRS)), two), given), "several addresses hold")
    named = replace(given, fence_addresses=(A, THEIRS))
    assert set(intended(state(attached=two), named).addresses) == {A, THEIRS}


def test_who_has_a_volume_that_moved_is_a_question_about_that_one() -> None:
    """Its pod was deleted by force, so node b has it open, at an address that nothing names."""
    noted = image(watchers=[watcher(STORAGE)], notes=[("a", STORAGE)])
    taken = image("w", watchers=[watcher(STORAGE), watcher(THEIRS, 2, nonce=12)])
    why = f"unknown whose address {THEIRS} is. If it is a's"
    for found, rest in (
        (state(used=(moved("w"),)), NOT_ATTACHED),
        (state(attached=[volume(), volume("w", elsewhere="b")]), "stays attached"),
    ):
        decision = pure.intend(found, options(noted, taken))
        reported(decision, why, code="client_unknown", rest=rest)
        assert decision.ledger and decision.ledger.addresses == (STORAGE, A)
        # What is seen nowhere may be open there.
        refused(pure.intend(found, options(image(), taken, fence_addresses=(STORAGE,))), why)
        # Whose address it is decides whether the node's own is fenced.
        claims = found._replace(host=pick_host_record(CLAIMS))
        refused(pure.intend(claims, options(noted, taken)), THEIRS)
        # And whoever has another volume there is a stranger as before.
        strange = image(watchers=[watcher(STORAGE), watcher(THEIRS, 2, nonce=12)])
        noted_too = {**strange, "client_addresses": [{"node": "a", "address": STORAGE}]}
        refused(pure.intend(found, options(noted_too, taken)), "no source lists as this node's")
        # Nor do the volumes of a node that is said to be off show no one.
        off = {"method": "none", "node_confirmed_off": True}
        refused(pure.intend(found, options(image(), taken, **off)), "is said to be off")
        # Two addresses are seen, and of neither anyone but the node says that it is its own.
        words = options(image(watchers=[watcher()]), taken)
        refused(pure.intend(found, words), why)


# power


def by_power(*answers: Any, **fields: Any) -> FenceOptions:
    """What the user asks for, and what the BMC has said."""
    asked = {"method": "power", "reading": None, **fields}
    return replace(OPTIONS, power=parse_power(looks(*answers)), **asked)


def silent(*drivers: str, **fields: Any) -> NodeState:
    """The node, with a volume of each driver, some seconds after the ledger was written."""
    host = node()
    host["status"]["nodeInfo"]["systemUUID"] = MACHINE
    found = tuple(volume(f"v{number}", driver) for number, driver in enumerate(drivers))
    later = {"now": NOW + timedelta(seconds=30)} if "ledger" in fields else {}
    return state(host, attached=found, **later, **fields)


DRIVERS = (RBD, "csi.example.com")


@pytest.mark.parametrize(
    ("answers", "seconds", "code"),
    [
        (["on"], 140, ""),
        (["on"], 141, "power_reading_unfit"),
        (["on"], -101, "power_reading_unfit"),
        # The newest counts.
        (["on", {"state": "on", "read_at": "2026-01-01T12:05:00Z"}], 420, ""),
        ([], 30, "power_reading_unfit"),
        ([{"state": "on", "uuid": "2" * 32}], 30, "bmc_other_machine"),
        ([{"state": "on", "address": "192.0.2.99"}], 30, "bmc_other_machine"),
        ([{"state": "", "status": 401}], 30, "bmc_login_refused"),
    ],
)
def test_a_machine_is_switched_off_only_where_its_bmc_was_read_just_before(
    answers: list[Any], seconds: int, code: str
) -> None:
    """The run had waited for others since, and a BMC may have another machine by then. What was
    read says which one, and where it is switched.
    """
    known = pure.intend(silent(*DRIVERS), by_power("on")).ledger
    now = NOW + timedelta(seconds=seconds)
    at_last = silent(*DRIVERS, ledger=known)._replace(now=now)
    found = pure.hold(at_last, by_power(*answers)).plan.findings
    assert [finding.code for finding in found] == ([code] if code else []), found
    # Check mode switches nothing, and a fence of another method has no BMC.
    assert not pure.hold(at_last, by_power(check=True)).plan.findings


def test_a_node_that_is_switched_off_is_fenced_for_every_driver() -> None:
    """Nothing is read of Ceph, and no address matters."""
    decision = pure.intend(silent(*DRIVERS), by_power("on"))
    assert verbs(decision) == ["write_fence_ledger", "cordon_node"]
    ledger = decision.ledger
    assert ledger and (ledger.method, ledger.phase, ledger.volumes) == (
        "power",
        "intended",
        ("v0", "v1"),
    )
    assert (ledger.addresses, ledger.entries, ledger.unverified) == ((), (), False)
    assert ledger.power and ledger.power._asdict() == {
        **{"kind": "redfish", "address": "192.0.2.11", "system": "1", "uuid": MACHINE},
        "off_at": "",
    }
    (finding,) = decision.plan.findings
    assert "1 RBD volumes and 1 others" in finding.summary
    assert "switched off by its BMC 192.0.2.11" in finding.reason
    assert "192.0.2.11" in str(finding.evidence["power"]) and "aside" not in finding.evidence

    after = silent(*DRIVERS, ledger=ledger)
    proven = pure.confirm(after, by_power("off", "off"))
    assert verbs(proven) == ["record_fence"] and proven.ledger
    assert (proven.ledger.phase, proven.ledger.unverified) == ("fenced", False)
    assert proven.ledger.power and proven.ledger.power.off_at == "2026-01-01T12:00:20Z"

    again = silent(*DRIVERS, ledger=proven.ledger)
    for decide, given in (
        (pure.intend, by_power("off")),
        (pure.intend, by_power("off", method="auto")),
        (pure.confirm, by_power("off", "off")),
    ):
        cordoned = again._replace(host=again.host and _cordoned(again.host))
        assert decide(cordoned, given).plan.findings == []


def off_while_seen(
    *watchers: dict[str, Any], attributes: Mapping[str, str] | None = None, **fields: Any
) -> Decision:
    """What is proven of a node that is off, with the volumes v0, v1 and one of another driver,
    where Ceph shows these clients on v0 all the time.
    """
    before = silent(RBD, RBD, "csi.example.com")
    attached = (volume("v0", **(attributes or {})), *before.attached[1:])
    ledger = pure.intend(before._replace(attached=attached), by_power("on")).ledger
    assert ledger and ledger.volumes == ("v0", "v1", "v2")
    now = {"read_at": "2026-01-01T12:00:30Z", "observations": 3, "seconds": 35.0}
    found = reading(image("v0", watchers=watchers), image("v1"), **now)
    after = silent(RBD, RBD, "csi.example.com", ledger=ledger)
    after = after._replace(attached=attached)._replace(**fields)
    return pure.confirm(after, by_power("off", "off", reading=found))


def test_a_tool_on_one_volume_does_not_contradict_that_a_node_is_off() -> None:
    """A provisioner that copies it, or gives its space back, held up every tenant and driver."""
    tool = watcher(POD, 99, kernel=False)
    decision = off_while_seen(tool)
    assert decision.ledger and decision.ledger.phase == "fenced"
    assert decision.ledger.volumes == ("v1", "v2") and decision.ledger.proven
    (left,) = (one for one in decision.plan.findings if one.name == "v0")
    assert (left.verdict, left.severity, left.code) == ("report", "major", "client_unknown")
    assert "an out-of-service taint would detach it with the others" in left.summary


@pytest.mark.parametrize(
    ("watchers", "fields", "code"),
    [
        # The node may have mapped it so, or has it mapped.
        (
            [watcher(POD, 99, kernel=False)],
            {"attributes": {"mounter": "rbd-nbd"}},
            "client_unknown",
        ),
        ([watcher(POD, 99)], {}, "client_unknown"),
        ([watcher(POD, 99, kernel=False), watcher(POD, 98)], {}, "client_unknown"),
        ([watcher(A, 99, kernel=False)], {}, "ceph_watcher_left"),
        (
            [watcher(POD, 99, kernel=False), watcher(A, 98, kernel=False)],
            {},
            "client_unknown",
        ),
    ],
)
def test_what_may_be_the_nodes_own_client_contradicts_that_it_is_off(
    watchers: list[dict[str, Any]], fields: dict[str, Any], code: str
) -> None:
    decision = off_while_seen(*watchers, **fields)
    assert decision.ledger and decision.ledger.phase == "intended"
    (finding,) = decision.plan.findings
    assert (finding.verdict, finding.code, finding.name) == ("refuse", code, "a")


def test_a_tool_on_all_that_is_fenced_leaves_nothing_to_prove() -> None:
    ledger = pure.intend(silent(RBD), by_power("on")).ledger
    now = {"read_at": "2026-01-01T12:00:30Z", "observations": 3, "seconds": 35.0}
    found = reading(image("v0", watchers=[watcher(POD, 99, kernel=False)]), **now)
    decision = pure.confirm(silent(RBD, ledger=ledger), by_power("off", "off", reading=found))
    assert decision.plan.findings[0].code == "client_unknown"
    assert decision.ledger and decision.ledger.phase == "intended"


NFS = "nfs.csi.k8s.io"
IN_LINE = ("the inline nfs volume files of pod shop/web-0",)


def mounted(name: str, driver: str = NFS) -> Any:
    """One that is never attached to any node."""
    return without_attachment(name, "a", nfs_volume(name, driver))


def nfs_volume(name: str, driver: str) -> dict[str, Any]:
    source = {"csi": {"driver": driver, "volumeHandle": name}} if driver else {"nfs": SHARE}
    spec = {**source, "claimRef": {"namespace": "shop", "name": name}}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


SHARE = {"server": "192.0.2.1", "path": "/"}


@pytest.mark.parametrize(
    ("fields", "volumes"),
    [
        ({"used": (mounted("w"), mounted("x", ""))}, ("w", "x")),
        ({"inline": IN_LINE}, ()),
        ({"used": (mounted("w"),), "inline": IN_LINE}, ("w",)),
    ],
    ids=["volumes", "inline", "both"],
)
def test_a_node_with_nothing_but_nfs_is_fenced_only_as_a_whole(
    fields: dict[str, Any], volumes: tuple[str, ...]
) -> None:
    found = silent(**fields)
    for begin, prove in (
        (by_power("on"), by_power("off", "off")),
        (by_others("off"), by_others("off", "off")),
    ):
        ledger = pure.intend(found, begin).ledger
        assert ledger and (ledger.method, ledger.volumes) == (begin.method, volumes)
        after = silent(ledger=ledger, **fields)
        after = after._replace(now=NOW + timedelta(seconds=60))
        proven = pure.confirm(after, prove).ledger
        assert proven and (proven.phase, proven.volumes) == ("fenced", volumes)
        # A second run, in which all of it has left.
        again = silent(ledger=proven)
        again = again._replace(host=again.host and _cordoned(again.host), now=after.now)
        assert pure.intend(again, replace(prove, method="auto")).plan.findings == []
    what = "w (nfs.csi.k8s.io)" if volumes else IN_LINE[0]
    for method in ("auto", "ceph", "network_fence", "none"):
        given = replace(OPTIONS, method=method, node_confirmed_off=True)
        refused(pure.intend(found, given), f"It has {what}", "use method external or power")


@pytest.mark.parametrize("changed", [{"boot_id": "boot-0"}, {"phase": "releasing"}])
def test_a_fence_in_ceph_has_nothing_of_an_earlier_one_by_power(changed: dict[str, str]) -> None:
    """The node had no power, so its NFS volume was moved. It has power again, and Ceph does not
    keep it from that volume.
    """
    off = pure.intend(silent(RBD, used=(mounted("w"),)), by_power("on")).ledger
    assert off and off.volumes == ("v0", "w")
    off = off._replace(phase="detached", detached=("v0", "w"), proven=True)
    found = state(ledger=off._replace(**changed))
    ledger = pure.intend(found, options(image(watchers=[watcher()]))).ledger
    assert ledger and (ledger.method, ledger.volumes, ledger.detached) == ("ceph", ("v",), ())
    # One that is of every driver keeps them.
    again = pure.intend(silent(RBD, ledger=off._replace(**changed)), by_power("on")).ledger
    assert again and again.volumes == ("v0", "w") and again.detached == ("w",)


def young(found: NodeState, **fields: Any) -> NodeState:
    """The same, whose Node object is younger than some of its pods."""
    assert found.host
    return found._replace(host=found.host._replace(created=NOW - timedelta(hours=1)), **fields)


def test_another_node_that_has_a_shared_volume_of_one_that_is_off() -> None:
    """What it alone has shows where it is."""
    shared = many(volume("s", elsewhere="b"))
    beside, single = seen_beside("x", "b", B)
    b = pick_host_record(node("b", "True", addresses=(B,)))
    found = state(attached=[shared, volume("w")], others=(b,), single=single)
    ledger = pure.intend(found, by_power("on")).ledger
    images = [image("s", watchers=[watcher(B, 77, nonce=77)]), image("w")]
    read = {"seconds": 35.0, "observations": 2, "read_at": "2026-01-01T12:00:30Z"}
    after = found._replace(ledger=ledger, now=NOW + timedelta(seconds=30))
    given = by_power("off", "off", reading=reading(*images, beside, **read))
    proven = pure.confirm(after, given).ledger
    assert proven and (proven.phase, proven.volumes) == ("fenced", ("s", "w"))
    alone = by_power("off", "off", reading=reading(*images, **read))
    refused(pure.confirm(after, alone), f"{B}:0/77")


@pytest.mark.parametrize("method", ["power", "external"])
def test_a_pod_of_the_machine_that_had_the_name_before(method: str) -> None:
    """It may have its volumes, attached again since or not. So one tenant's pod, kept by a
    finalizer, had the whole fence refused.
    """
    begin = by_power("on") if method == "power" else by_others("off")
    used = (mounted("w")._replace(used_by_older_pod=True), mounted("x"))
    found = silent(*DRIVERS, used=used, inline=IN_LINE)
    attached = (found.attached[0]._replace(used_by_older_pod=True), found.attached[1])
    found = young(found, attached=attached, older=("pod shop/db-0", "pod shop/web-0"))
    decision = pure.intend(found, begin)
    assert decision.ledger and decision.ledger.volumes == ("v1", "x")
    findings = {one.name: one for one in decision.plan.findings}
    for name in ("v0", "w"):
        assert (findings[name].severity, findings[name].code) == ("major", "fence_incomplete")
        assert f"{name} is of a pod that is older than this Node object" in findings[name].reason
    # No taint is set either.
    assert findings["v0"].summary.endswith("and stays attached")
    for name in ("db-0", "web-0"):
        left = findings[name]
        assert (left.kind, left.namespace, left.verdict) == ("Pod", "shop", "report")
        assert (left.severity, left.code) == ("major", "fence_incomplete")
        assert f"pod shop/{name} is older than this Node object" in left.reason
    # It may be the only one, which is fenced for nothing; or the fence has it already.
    only = silent(used=used[:1], inline=IN_LINE)
    refused(
        pure.intend(young(only, older=("pod shop/web-0",)), begin),
        "w is of a pod that is older than this Node object",
        "pod shop/web-0 is older than this Node object",
    )
    ledger = decision.ledger._replace(volumes=("v1", "w", "x"))
    host = node()
    host["status"]["nodeInfo"]["systemUUID"] = MACHINE
    begun = young(state(host, attached, used=used, ledger=ledger))
    refused(pure.intend(begun, begin), "w is of a pod that is older than this Node object")


def test_a_volume_that_was_attached_to_the_machine_that_had_the_name_before() -> None:
    """The rest is switched off with the machine that has it now."""
    found = silent(*DRIVERS)
    before = found.attached[0].attachment._replace(created=NOW - timedelta(days=1))
    attached = (found.attached[0]._replace(attachment=before), found.attached[1])
    decision = pure.intend(young(found, attached=attached), by_power("on"))
    assert decision.ledger and decision.ledger.volumes == ("v1",)
    (left,) = (one for one in decision.plan.findings if one.name == "v0")
    assert left.reason.startswith("v0 was attached before this Node object was made")


def test_what_is_not_in_ceph_is_left_where_ceph_is_the_fence() -> None:
    """It joins no such fence, and is no matter of its entries."""
    found = state(used=(mounted("w"),), inline=IN_LINE)
    ledger = intended(found)
    assert ledger.volumes == ("v",) and pure.is_alone(found, ledger)
    files = mounted("f", "cephfs.csi.ceph.com")
    for used in (moved("u"), files):
        assert not pure.is_alone(found._replace(used=(mounted("w"), used)), ledger)


def _cordoned(host: Any) -> Any:
    return host._replace(node=host.node._replace(unschedulable=True))


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((), "was not asked"),
        (("off",), "1 times in 0 s"),
        (("off", "on"), "and said off before"),
        (({"state": "", "status": 401}, {"state": "", "status": 401}), "refuses the user"),
        (({"uuid": "4c4c4544-0034-5210-8051-000000000000"},), "belongs to machine"),
    ],
)
def test_what_a_bmc_must_say(answers: Sequence[Any], words: str) -> None:
    ledger = pure.intend(silent(RBD), by_power("on")).ledger
    refused(pure.confirm(silent(RBD, ledger=ledger), by_power(*answers)), words)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"kind": ""}, "names no BMC of node a"),
        ({"shared": ["b"]}, "is that of b too"),
        ({"uuid": "4c4c4544-0034-5210-8051-000000000000"}, "belongs to machine"),
        ({"state": "", "problem": "timed out"}, "did not tell whether the node is on (timed out)"),
    ],
)
def test_nothing_is_intended_by_a_bmc_that_may_be_anothers(answer: Any, words: str) -> None:
    refused(pure.intend(silent(RBD), by_power(answer)), words)
    refused(pure.intend(silent(RBD), by_power()), "was not asked")
    refused(pure.intend(silent(), by_power("on")), "no volume is attached to node a")


def test_a_machine_that_had_the_name_before_is_not_switched_off() -> None:
    """What was attached to it may be open there, whatever becomes of the machine of the BMC."""
    found = silent(*DRIVERS)
    assert found.host
    again = found._replace(host=found.host._replace(created=NOW + timedelta(seconds=1)))
    refused(pure.intend(again, by_power("on")), "was attached before this Node object was made")


def test_without_its_node_object_only_the_ledgers_machine_is_switched_off() -> None:
    ledger = pure.intend(silent(RBD), by_power("on")).ledger
    assert ledger
    gone = silent(RBD, ledger=ledger)._replace(host=None)
    more = silent(*DRIVERS, ledger=ledger)._replace(host=None)
    assert pure.intend(gone, by_power("on")).ledger
    refused(pure.intend(more, by_power("on")), "which machine has v1")
    other = gone._replace(ledger=ledger._replace(machine="unknown"))
    refused(pure.intend(other, by_power("on")), "which machine has v0")


def test_a_fence_by_power_is_the_strongest() -> None:
    """It takes over what another one has begun, and none takes it over once it was proven."""
    begun = intended()
    ledger = pure.intend(silent(RBD, ledger=begun), by_power("on")).ledger
    assert ledger and (ledger.method, ledger.phase) == ("power", "intended")
    assert ledger.entries == begun.entries and ledger.addresses == ()
    assert ledger.power
    off = ledger._replace(power=ledger.power._replace(off_at=FAR), proven=True)
    for phase in ("intended", "fenced", "detached"):
        for method in ("ceph", "none"):
            given = replace(OPTIONS, method=method, node_confirmed_off=True)
            proven = silent(RBD, ledger=off._replace(phase=phase))
            refused(pure.intend(proven, given), "weaker. Go on with power or external (or auto)")
    refused(pure.intend(silent(RBD, ledger=ledger), replace(OPTIONS, power=())), "was not asked")


def test_a_bmc_that_dies_before_the_node_is_proven_to_be_off_is_no_dead_end() -> None:
    """Its plug was pulled, so nothing tells any more whether it is on."""
    found = state(used=(mounted("w"),))
    begun = pure.intend(silent(RBD, used=(mounted("w"),)), by_power("on")).ledger
    assert begun and begun.volumes == ("v0", "w")
    stuck = silent(RBD, used=(mounted("w"),), ledger=begun)
    refused(pure.intend(stuck, by_power({"state": "", "status": 0})), "method external")
    after = found._replace(ledger=begun._replace(volumes=("v", "w")))
    in_ceph = pure.intend(after, options(image(watchers=[watcher()]), method="ceph")).ledger
    assert in_ceph and (in_ceph.method, in_ceph.volumes, in_ceph.power) == ("ceph", ("v",), None)
    assert [entry.entry for entry in in_ceph.entries] == [A]
    word = replace(OPTIONS, method="none", node_confirmed_off=True, reading=None)
    by_word = pure.intend(after, word).ledger
    assert by_word and (by_word.method, by_word.volumes) == ("none", ("v",))
    # Nobody asks Ceph about it.
    assert by_word.unverified
    # One that was proven before by another method is not given up for the user's word.
    proven = after._replace(ledger=after.ledger and after.ledger._replace(proven=True))
    refused(pure.intend(proven, word), "none is weaker. Go on with power or external (or auto)")
    outside = pure.intend(stuck, by_others("off")).ledger
    assert outside and (outside.method, outside.volumes) == ("external", ("v0", "w"))


@pytest.mark.parametrize("method", ["power", "external", "none"])
@pytest.mark.parametrize("proven", [False, True])
def test_what_was_begun_without_ceph_is_judged_anew_in_ceph(method: str, proven: bool) -> None:
    """No address was judged for a node that was to be off, and no image was read."""
    word = replace(OPTIONS, method="none", node_confirmed_off=True, reading=None)
    given = {"power": by_power("on"), "external": by_others("off"), "none": word}[method]
    begun = pure.intend(silent(RBD), given).ledger
    assert begun and (begun.method, begun.volumes) == (method, ("v0",))
    known = silent(RBD, ledger=begun._replace(proven=proven))
    protected = (ip_network("10.0.0.9/32"),)
    elsewhere = {"method": "ceph", "fence_addresses": ("10.0.0.7",), "protected": protected}
    read = options(image("v0"), **elsewhere)
    own = pick_host_record(node(addresses=("10.0.0.9",)))
    refused(pure.intend(known._replace(host=own), read), "nothing shows from where v0 is held")
    # Nor was the Ceph that has them.
    other = "1b1e4f4c-8f4e-4f5c-9a49-0d1c4b2e6a11"
    away = known._replace(attached=(volume("v0", cluster_id=other),))
    seen = options(image("v0", watchers=[watcher()]), method="ceph")
    refused(pure.intend(away, seen), "which looks like another cluster")
    # A volume whose pod is older than the Node may be of the machine before.
    older = tuple(found._replace(used_by_older_pod=True) for found in known.attached)
    noted = image("v0", watchers=[watcher(STORAGE)], notes=[("a", STORAGE)])
    ledger = pure.intend(known._replace(attached=older), options(noted, method="ceph")).ledger
    assert ledger and ledger.machine == UNKNOWN_MACHINE


def word_of_the_user(**fields: Any) -> FenceOptions:
    return replace(OPTIONS, method="none", node_confirmed_off=True, reading=None, **fields)


@pytest.mark.parametrize("proven", [False, True])
def test_what_ceph_leaves_out_is_not_kept_from_a_fence_without_it(proven: bool) -> None:
    """What is in the ledger is detached, once the others are proven."""
    two = (volume(), volume("w", cluster_id="c2"))
    begun = intended(state(attached=two), word_of_the_user())._replace(proven=proven)
    assert begun.volumes == ("v", "w")
    seen = image(watchers=[watcher()])
    again = intended(
        state(attached=two, ledger=begun), options(seen, method="ceph", cluster_id="c1")
    )
    assert again.volumes == ("v",)
    # One that is silent, and of a pod that may be the machine's that had the name before.
    older = (volume(), volume("w")._replace(used_by_older_pod=True))
    given = options(seen, image("w"), method="ceph")
    decision = pure.intend(young(state(attached=older, ledger=begun)), given)
    assert decision.ledger and "w" not in decision.ledger.volumes
    # What has left the node stays in it until the release.
    assert "w" in intended(state(ledger=begun), options(seen, method="ceph")).volumes
    # Where nothing of it was read, nothing is known.
    unread = options(image("x"), method="ceph")
    refused(pure.intend(state(attached=two, ledger=begun), unread), "is not in what was read")
    # It goes on as it is, and no address matters to it.
    noted = options(image(notes=[("a", A)]), image("w"), node_confirmed_off=True)
    again = intended(recorded(record(), attached=two, ledger=begun), noted)
    assert (again.method, again.volumes) == ("none", ("v", "w"))


def test_the_record_counts_where_a_fence_was_begun_without_ceph() -> None:
    """As for a new fence: it shows the node, and who else has what is attached is a stranger."""
    for given in (word_of_the_user(), by_power("on")):
        begun = intended(silent(RBD), given)
        records = recorded(record(machine=MACHINE)).records
        known = silent(RBD, ledger=begun)._replace(records=records)
        in_ceph = intended(known, options(image("v0"), method="ceph"))
        assert in_ceph.source == {STORAGE: "record", A: "status"}
        strange = image("v0", watchers=[watcher("10.0.0.99")], locks=[lock("10.0.0.99")])
        decision = pure.intend(known, options(strange, method="ceph"))
        refused(decision, "at an address that no source lists as this node's")


def test_a_network_fence_that_was_begun_without_ceph_has_seen_no_ceph() -> None:
    other = "1b1e4f4c-8f4e-4f5c-9a49-0d1c4b2e6a11"
    away = (volume(cluster_id=other),)
    prepared = (network_fence(addresses_from="option", cluster_id=other),)
    asked = replace(OPTIONS, method="network_fence", reading=None)
    begun = intended(state(attached=away, fences=prepared), asked)
    assert (begun.method, begun.fsid) == ("network_fence", "")
    seen = options(image(watchers=[watcher()]))
    refused(
        pure.intend(state(attached=away, ledger=begun), seen), "which looks like another cluster"
    )


@pytest.mark.parametrize("phase", ["intended", "fenced"])
def test_what_a_network_fence_has_judged_without_ceph_is_judged_anew_with_it(phase: str) -> None:
    """Its record, and the families of its monitors, may show that another address is the node's."""
    asked = replace(OPTIONS, method="network_fence", reading=None, fence_addresses=(A,))
    begun = intended(state(fences=(network_fence(),)), asked)._replace(phase=phase)
    there = {"ledger": begun, "fences": (network_fence(fenced=True),)}
    seen = recorded(record(), **there)
    told = f"clusterID c1 covers {STORAGE}"
    refused(pure.intend(seen, SILENT), told)
    named = options(image(), fence_addresses=(A,))
    refused(pure.intend(seen, named), f"{STORAGE} is where Ceph saw it in an earlier night")
    refused(pure.intend(state(**there), dual(image())), "no IPv6 address of node a is fenced")
    refused(pure.intend(state(**there), options(reading=reading(image(), **SHORT))), "are needed")
    # It knows Ceph from here on, and goes on without it as it began.
    known = intended(state(**there), SILENT)
    assert (known.fsid, known.volumes, known.addresses) == ("f1", ("v",), (A,))
    blind = replace(SILENT, reading=None)
    assert intended(state(**there), blind) == begun
    assert intended(state(**there)._replace(host=None, item=None), blind) == begun
    # The run that has judged it may be killed: the watch is over then, and its record stays away.
    after = {**there, "ledger": known}
    assert intended(recorded(record(), **after), SILENT) == known
    # What is added without Ceph has been judged without it.
    two = (volume(), volume("w"))
    joined = intended(state(attached=two, **after), blind)
    assert (joined.volumes, joined.fsid) == (("v", "w"), "f1")
    again = recorded(record(), attached=two, **{**there, "ledger": joined})
    refused(pure.intend(again, options(image(), image("w"))), told)


def test_a_fence_in_ceph_that_was_to_become_one_by_power_can_be_set_again() -> None:
    """Its volume has moved, and its entry was removed by others. The BMC does not answer."""
    moved_on = intended()._replace(phase="detached", detached=("v",), proven=True)
    begun = pure.intend(silent(ledger=moved_on, used=(mounted("w"),)), by_power("on")).ledger
    assert begun and (begun.method, begun.phase, begun.proven) == ("power", "intended", True)
    assert begun.volumes == ("v", "w") and begun.detached == ("v",)
    there = state(attached=[], used=(mounted("w"),), ledger=begun)
    ledger = pure.intend(there, options(image(), method="ceph", fence_addresses=(A,))).ledger
    assert ledger and (ledger.method, ledger.volumes, ledger.detached) == ("ceph", ("v",), ("v",))
    assert [entry.entry for entry in ledger.entries] == [A] and ledger.proven


def test_another_bmc_is_another_fence_and_what_was_off_is_not_forgotten() -> None:
    known = pure.intend(silent(RBD), by_power("on")).ledger
    assert known and known.power
    known = known._replace(phase="fenced", power=known.power._replace(off_at=FAR))
    ledger = pure.intend(silent(RBD, ledger=known), by_power({"address": "192.0.2.12"})).ledger
    assert ledger and ledger.power and ledger.phase == "intended"
    assert (ledger.power.address, ledger.power.off_at) == ("192.0.2.12", FAR)


OUTSIDE = {"kind": "external", "address": "cloud01", "system": "", "node": "a", "status": 0}


def by_others(*states: str, **fields: Any) -> FenceOptions:
    """What the user asks for, and what a command has said, half a minute apart."""
    times = ("2026-01-01T12:00:00Z", "2026-01-01T12:00:30Z")
    answers = [{**OUTSIDE, "state": one, "read_at": at} for one, at in zip(states, times)]
    return by_power(*answers, **{"method": "external", **fields})


def test_a_node_that_others_have_switched_off_is_fenced_for_every_driver() -> None:
    decision = pure.intend(silent(*DRIVERS), by_others("off"))
    assert verbs(decision) == ["write_fence_ledger", "cordon_node"]
    ledger = decision.ledger
    assert ledger and (ledger.method, ledger.volumes) == ("external", ("v0", "v1"))
    assert (ledger.addresses, ledger.entries, ledger.unverified) == ((), (), False)
    assert ledger.power and ledger.power.address == "cloud01" and ledger.is_off
    (finding,) = decision.plan.findings
    assert "it was switched off, says its external source cloud01" in finding.reason
    assert "aside" not in finding.evidence

    after = silent(*DRIVERS, ledger=ledger)
    refused(pure.confirm(after, by_others("off")), "1 times in 0 s")
    refused(pure.confirm(after, by_others("off", "on")), "says on of node a")
    proven = pure.confirm(after, by_others("off", "off"))
    assert verbs(proven) == ["record_fence"] and proven.ledger
    assert proven.ledger.phase == "fenced" and proven.ledger.power
    assert proven.ledger.power.off_at == "2026-01-01T12:00:00Z"

    again = silent(*DRIVERS, ledger=proven.ledger)
    cordoned = again._replace(host=again.host and _cordoned(again.host))
    for given in (by_others("off"), by_others("off", method="auto")):
        assert pure.intend(cordoned, given).plan.findings == []
    # It is off since a later time than when it was proven.
    later = {**OUTSIDE, "since": "2026-01-01T12:30:00Z"}
    refused(pure.intend(cordoned, by_power(later, method="auto")), "it was on in between")


def test_without_its_node_object_what_was_told_before_is_the_machine() -> None:
    def told(instance: str, method: str = "external") -> FenceOptions:
        return by_power({**OUTSIDE, "system": instance, "uuid": ""}, method=method)

    found = silent(RBD)
    assert found.host
    there = found._replace(host=found.host._replace(provider_id="lab:///1"))
    ledger = pure.intend(there, told("lab:///1")).ledger
    assert ledger
    gone = silent(RBD, ledger=ledger)._replace(host=None)
    for method in ("external", "auto"):
        assert pure.intend(gone, told("lab:///1", method)).ledger
    refused(pure.intend(gone, told("lab:///2")), "is not the one by which")
    # A fence of Ceph has told of none.
    other = gone._replace(ledger=ledger._replace(power=None, method="ceph"))
    refused(pure.intend(other, told("lab:///1")), "does not say by which provider_id")


def test_nothing_is_intended_for_a_node_that_others_have_not_switched_off() -> None:
    """It is said before anything is changed, whoever tells."""
    refused(pure.intend(silent(RBD), by_others("on")), "says on of node a")
    refused(pure.intend(silent(RBD), by_power("on", method="external")), "says on of node a")
    refused(pure.intend(silent(RBD), by_others()), "was not asked")
    refused(pure.intend(silent(), by_others("off")), "no volume is attached to node a")
    assert pure.intend(silent(RBD), by_power("off", method="external")).ledger


def test_what_only_tells_switches_nothing_off() -> None:
    told = by_others("off", method="power")
    refused(pure.intend(silent(RBD), told), "cannot switch it off: have that done")


def test_a_fence_by_others_and_one_by_power_may_take_each_other_over() -> None:
    """The BMC may have gone with the power; what was off is not forgotten."""
    ledger = pure.intend(silent(RBD), by_others("off")).ledger
    found = silent(RBD, ledger=ledger)
    switched = pure.intend(found, by_power("on")).ledger
    assert switched and (switched.method, switched.phase) == ("power", "intended")
    assert switched.power
    off = switched._replace(phase="fenced", power=switched.power._replace(off_at=FAR))
    again = pure.intend(silent(RBD, ledger=off), by_others("off")).ledger
    assert again and again.power and (again.method, again.phase) == ("external", "intended")
    assert (again.volumes, again.power.off_at) == (off.volumes, FAR)


def test_that_a_node_was_called_off_is_not_forgotten() -> None:
    """It was not, so it is fenced in Ceph."""
    word = intended()._replace(method="none", addresses=(), entries=(), proven=True)
    given = options(image(watchers=[watcher()]), method="ceph")
    for phase in ("intended", "fenced", "detached"):
        ledger = pure.intend(state(ledger=word._replace(phase=phase)), given).ledger
        assert ledger and ledger.method == "ceph" and ledger.declared_off
        assert pure.intend(state(ledger=ledger), given).ledger == ledger
    # A second run by the same method changes nothing.
    said = replace(OPTIONS, method="none", node_confirmed_off=True, reading=None)
    cordoned = state(node(unschedulable=True))
    first = pure.intend(cordoned, said).ledger
    assert first and not first.declared_off
    first = first._replace(phase="fenced", proven=True)
    assert pure.intend(cordoned._replace(ledger=first), said).ledger == first
    # So it is where the release has begun, and the node is in the same boot.
    again = pure.intend(state(ledger=word._replace(phase="releasing")), given).ledger
    assert again and again.declared_off
    # In another boot it is another fence.
    ledger = pure.intend(state(ledger=word._replace(boot_id="boot-0")), given).ledger
    assert ledger and not ledger.declared_off
    ledger = pure.intend(state(ledger=word._replace(proven=False)), given).ledger
    assert ledger and not ledger.declared_off


def test_a_reboot_releases_no_machine_that_an_older_pod_may_be_on() -> None:
    """Only ceph-csi's note, which knows a node by its name, calls the address the node's."""
    older = volume()._replace(used_by_older_pod=True)
    seen = options(image(watchers=[watcher(STORAGE)], notes=[("a", STORAGE)]))
    ledger = pure.intend(state(attached=[older]), seen).ledger
    assert ledger and ledger.machine == UNKNOWN_MACHINE
    there = options(image(watchers=[watcher()]))
    ledger = pure.intend(state(attached=[older]), there).ledger
    assert ledger and ledger.machine == "machine-a"
    # Nor does its word that the node is off, which knows no address.
    dead = image(locks=[lock(STORAGE)])
    word = options(dead, method="none", node_confirmed_off=True)
    ledger = intended(state(attached=[older]), word)
    assert ledger.machine == UNKNOWN_MACHINE
    gone = silent(RBD, ledger=ledger)._replace(host=None, item=None, attached=(older,))
    refused(pure.intend(gone, by_power("on")), "it is not known which machine has v")


def test_a_volume_of_an_older_pod_that_shows_no_client_is_left_out_in_ceph() -> None:
    """The machine that had the node's name before may wake up at any address."""
    host = node()
    host["metadata"]["creationTimestamp"] = f"{NOW - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    older = volume("w")._replace(used_by_older_pod=True)
    alone = state(host, attached=[older])
    given = options(image("w"), fence_addresses=(A,))
    refused(pure.intend(alone, given), "is of a pod that is older than this Node object")
    both = state(host, attached=[volume(), older])
    seen = options(image(watchers=[watcher()]), image("w"))
    decision = pure.intend(both, seen)
    assert decision.ledger and decision.ledger.volumes == ("v",)
    assert "is of a pod that is older" in str([one.reason for one in decision.plan.findings])
    # Although the whole node cannot be fenced, since node b has one of its addresses, too.
    host["status"]["addresses"].append({"type": "InternalIP", "address": B})
    other = pick_host_record(node("b", "True", addresses=(B,)))
    spared = state(host, attached=[volume(), older], others=(other,))
    kept = pure.intend(spared, seen).ledger
    assert kept and (kept.volumes, kept.addresses) == (("v",), (A,))
    # One that shows its client is at the address that is fenced.
    shown = options(image(watchers=[watcher()]), image("w", watchers=[watcher(nonce=12)]))
    told = pure.intend(both, shown).ledger
    assert told and told.volumes == ("v", "w")


def test_what_was_begun_and_never_proven_may_be_ended_by_another_method() -> None:
    """Its entries stay in the ledger, so that they are released."""
    begun = intended()
    word = replace(OPTIONS, method="none", node_confirmed_off=True, reading=None)
    ledger = pure.intend(state(ledger=begun), word).ledger
    assert ledger and (ledger.method, ledger.entries) == ("none", begun.entries)


def test_a_doubt_about_an_address_that_would_be_fenced_is_not_settled() -> None:
    """Node b has left a lock, and the kubelet of node a says that b's address is its own."""
    noted = image(notes=[("a", STORAGE)])
    locked = image("w", locks=[lock(THEIRS, 2, nonce=12)])
    found = state(CLAIMS, used=(moved("w"),))
    refused(pure.intend(found, options(noted, locked)), f"unknown whose address {THEIRS} is")
    decision = pure.intend(state(used=(moved("w"),)), options(noted, locked))
    reported(decision, THEIRS, code="client_unknown", rest=NOT_ATTACHED)


@pytest.mark.parametrize("asked", [by_power("on"), by_others("off")])
def test_ceph_may_contradict_what_says_off(asked: FenceOptions) -> None:
    """A watch outlasts its client, so only who is seen for longer is alive."""
    ledger = pure.intend(silent(RBD), asked).ledger
    found = silent(RBD, ledger=ledger)

    def given(seen: int, seconds: float = 35.0) -> FenceOptions:
        watched = image("v0", watchers=[watcher(A, seen=seen)])
        at = f"{found.now:%Y-%m-%dT%H:%M:%SZ}"
        read = reading(watched, observations=2, seconds=seconds, read_at=at)
        tells = by_others if asked.method == "external" else by_power
        return tells("off", "off", reading=read)

    assert verbs(pure.confirm(found, given(1))) == ["record_fence"]
    refused(pure.confirm(found, given(3)), "still holds p/v0")
    refused(pure.confirm(found, given(1, 30.0)), "Ceph was looked at for 30 s")


def test_ceph_is_asked_only_for_rbd_of_a_node_that_is_switched_off() -> None:
    """It may contradict a BMC, and says nothing of other drivers, nor of what cannot be read."""
    drivers = (RBD, "csi.example.com", RBD, RBD)
    found = silent(*drivers)
    gone = found._replace(attached=(*found.attached[:3], without_volume("v3")))
    ledger = pure.intend(gone, by_power("on")).ledger
    assert ledger and ledger.volumes == ("v0", "v1", "v2", "v3")
    after = silent(*drivers, ledger=ledger)._replace(attached=gone.attached)
    unread = image("v2", problem="no such pool")

    def given(*images: dict[str, Any]) -> FenceOptions:
        at = f"{after.now:%Y-%m-%dT%H:%M:%SZ}"
        return by_power(
            "off", "off", reading=reading(*images, observations=2, seconds=35.0, read_at=at)
        )

    assert verbs(pure.confirm(after, given(image("v0"), unread))) == ["record_fence"]
    # RBD volumes must be read, and an image that can be read must have no watcher.
    refused(pure.confirm(after, given(unread)), "volume v0 is not in what was read of Ceph")
    held = image("v0", watchers=[watcher()])
    refused(pure.confirm(after, given(held, unread)), "still holds p/v0")
    # Where the blocklist is the fence, an image that cannot be read is no proof.
    fence = intended()._replace(volumes=("v",))
    refused(
        confirm(fence, proof(image(problem="no such pool"), blocklist=[blocked(A)])),
        "could not be read",
    )


# what was recorded while the node was healthy


def record(on: str = "a", address: str = STORAGE, **fields: Any) -> Record:
    """Seen 20 hours ago, in the boot that the node is in."""
    at = NOW - timedelta(hours=20)
    made = Record(
        on, f"uid-{on}", f"machine-{on}", "boot-1", "f1", address, ("client.7",), 2, 2, 35.0, at
    )
    return made._replace(**fields)


def recorded(*records: Record, **fields: Any) -> NodeState:
    """Node a without any client of Ceph, unless the options say so."""
    return state(records=Records({found.key: found for found in records}), **fields)


SILENT = options(image())


def test_a_node_without_any_client_is_fenced_by_its_record() -> None:
    refused(pure.intend(state(), SILENT), "it is unknown from which address node a reaches Ceph")
    ledger = intended(recorded(record()), SILENT)
    # With the rest of the node, as with any fence.
    assert ledger.source == {STORAGE: "record", A: "status"}
    assert [entry.entry for entry in ledger.entries] == [STORAGE, A]
    (finding,) = pure.intend(recorded(record()), SILENT).plan.findings
    assert finding.evidence["record"] == (
        f"{STORAGE} (client.7), by 2 images, at 2025-12-31T16:00:00Z, 20 hours ago, in this boot"
    )
    assert finding.evidence["says"] == [
        f"record: {STORAGE}",
        "watchers: nothing",
        "locks: nothing",
        "ceph-csi: nothing",
        "fence_addresses: nothing",
        "NetworkFence of the user: nothing",
        "NetworkFence of the driver: nothing",
        f"status: {A}",
    ]
    old = recorded(record(at=NOW - timedelta(days=40)))
    assert "40 days ago" in str(pure.intend(old, SILENT).plan.findings[0].evidence["record"])


@pytest.mark.parametrize(
    "stale",
    [
        {"boot_id": "boot-0"},
        {"machine": "another"},
        {"fsid": "another"},
        {"node_uid": "uid-before"},
        {"boot_id": "", "machine": ""},
    ],
    ids=str,
)
def test_a_record_that_is_not_of_the_present_names_no_address(stale: dict[str, str]) -> None:
    """A reboot may give the node another address; another Ceph sees it by another network."""
    refused(pure.intend(recorded(record(**stale)), SILENT), "it is unknown from which address")


def test_what_a_record_of_before_the_boot_says_is_told() -> None:
    refused(
        pure.intend(recorded(record(boot_id="boot-0")), SILENT),
        f"Ceph saw it at {STORAGE} at 2025-12-31T16:00:00Z, but the node was booted since",
    )
    unread = state(records=Records({}, {"uid-a.f1": "it is none"}))
    refused(pure.intend(unread, SILENT), "the record of its clients cannot be read: it is none")


def test_a_short_look_is_enough_where_the_record_agrees() -> None:
    """The Node object seldom has the address on a storage network of its own."""
    held = image(watchers=[twice(address=STORAGE)], notes=[("a", STORAGE)])
    given = options(reading=reading(held, **SHORT))
    assert STORAGE in intended(recorded(record()), given).addresses
    refused(pure.intend(state(), given), "3 times in 60 s are needed")
    refused(pure.intend(recorded(record(boot_id="boot-0")), given), "3 times in 60 s are needed")


def test_a_node_that_does_not_tell_its_boot_has_no_record_of_the_present() -> None:
    host = node()
    host["status"]["nodeInfo"] = {}
    found = recorded(record(boot_id="", machine=""), host=host)
    refused(pure.intend(found, SILENT), "it is unknown from which address")


def test_without_a_reading_of_ceph_no_record_counts() -> None:
    refused(
        pure.intend(recorded(record()), replace(SILENT, reading=None)), "nothing was read of Ceph"
    )


@pytest.mark.parametrize(
    ("owner", "given"),
    [
        # Its status.
        ({"others": (pick_host_record(node("b", "True", addresses=(B, STORAGE))),)}, SILENT),
        # The NetworkFence that was made for it.
        ({"fences": (network_fence("storage-ops-b", (f"{STORAGE}/32",)),)}, SILENT),
        # What ceph-csi noted of it.
        ({}, options(image(), image("w", notes=[("b", STORAGE)]))),
        # A client that has what only that node has.
        ({}, options(image(), image("w", watchers=[watcher(STORAGE, 9)]))),
    ],
    ids=["status", "NetworkFence", "note", "client"],
)
def test_an_address_that_is_another_nodes_by_now_is_not_fenced(
    owner: dict[str, Any], given: FenceOptions
) -> None:
    refused(pure.intend(recorded(record(), **owner), given), f"address {STORAGE} (record)")


def test_an_address_that_is_recorded_of_another_node_is_not_fenced() -> None:
    theirs = record("b")
    both = f"address {STORAGE} (record) is recorded of node b (seen by Ceph at"
    refused(pure.intend(recorded(record(), theirs), SILENT), both)
    # It was booted since, and may have the address again: only a newer one of this node tells.
    booted = theirs._replace(boot_id="boot-0")
    newer = booted._replace(at=record().at + timedelta(hours=1))
    refused(pure.intend(recorded(record(), newer), SILENT), both)
    older = booted._replace(at=record().at - timedelta(hours=1))
    for found in (booted, older, theirs._replace(fsid="another")):
        assert STORAGE in intended(recorded(record(), found), SILENT).addresses
    # Whatever else calls it the lost node's.
    noted = options(image(notes=[("a", STORAGE)]))
    refused(pure.intend(recorded(theirs), noted), f"address {STORAGE} (metadata) is recorded of")
    # Of its other addresses one is spared, as with any owner.
    seen = recorded(record("b", A))
    held = options(image(watchers=[watcher(STORAGE)]), fence_addresses=(STORAGE,))
    assert intended(seen, held).addresses == (STORAGE,)


def test_an_address_that_was_only_intended_may_be_another_nodes_by_now() -> None:
    """The run that intended it did not end, so nothing is blocked there yet."""
    agreed = image(watchers=[watcher(STORAGE)], locks=[lock(STORAGE)])
    begun = intended(given=options(agreed))
    assert begun.addresses == (STORAGE, A)
    theirs, single = seen_beside("x", "b", STORAGE)
    given = options(image(), theirs)
    known = state(ledger=begun, single=single)
    refused(pure.intend(known, given), f"address {STORAGE} (watcher) belongs to")
    refused(
        pure.intend(recorded(record("b"), ledger=begun), SILENT),
        f"address {STORAGE} (watcher) is recorded of node b",
    )
    noted = options(image(), image("x", notes=[("b", A)]))
    refused(pure.intend(state(ledger=begun), noted), f"address {A} (status) belongs to")
    # Once it is blocked, nobody is hit who was not before.
    stands = reading(image(), theirs, blocklist=[blocked(STORAGE), blocked(A)])
    assert intended(known, replace(given, reading=stands)) == begun
    # It may have been removed for that other one.
    proven = known._replace(ledger=begun._replace(phase="fenced"))
    refused(pure.intend(proven, given), f"address {STORAGE} (watcher) belongs to")
    # Of a run that was killed right before, all is as it was.
    assert intended(state(ledger=begun), options(agreed)) == begun
    assert intended(state(ledger=begun), SILENT) == begun


def test_an_address_that_was_only_intended_may_be_that_of_all_nodes() -> None:
    """Behind NAT they have one. The next node was not seen there before the run ended."""
    begun = intended()
    tries = image(watchers=[watcher(A, 9, nonce=99, seen=1)])
    both = volume(elsewhere="b")
    kept = {"ledger": begun, "attached": [both]}
    refused(pure.intend(state(**kept), options(tries)), "comes and goes on p/v at an address that")
    has = image(watchers=[watcher(A, 9, nonce=99)])
    refused(pure.intend(state(**kept), options(has)), f"it is unknown whose address {A} is")
    assert intended(state(**kept), options(has, fence_addresses=(A,))).addresses == (A,)
    # What is blocked has ended the watches of them all, and who stays is told by the proof.
    for seen in (tries, has):
        stands = reading(seen, blocklist=[blocked(A)])
        assert intended(state(**kept), replace(OPTIONS, reading=stands)) == begun
        # The watches of the node had ended, and its entry was removed since. It must be back soon.
        proven = begun._replace(phase="fenced")
        assert intended(state(**{**kept, "ledger": proven}), options(seen)) == proven


def test_a_fence_that_stands_is_not_judged_by_records() -> None:
    ledger = intended()
    found = recorded(record("b", A), record(), host=node(unschedulable=True), ledger=ledger)
    stands = reading(image(watchers=[watcher()]), blocklist=[blocked(A)])
    decision = pure.intend(found, replace(OPTIONS, reading=stands))
    assert decision == Decision(pure.Plan([]), ledger)


@pytest.mark.parametrize(
    ("given", "fences", "who"),
    [
        (options(image(watchers=[watcher(A)])), (), f"Ceph shows its client at {A}"),
        (options(image(locks=[lock(A)])), (), f"Ceph shows its client at {A}"),
        (options(image(notes=[("a", "192.168.7.50")])), (), "ceph-csi noted 192.168.7.50"),
        (
            SILENT,
            (network_fence(cidrs=("192.168.7.50/32",), addresses_from="option"),),
            "its NetworkFence has, from the user, 192.168.7.50",
        ),
    ],
    ids=["watcher", "lock", "note", "NetworkFence"],
)
def test_what_contradicts_the_record_refuses_until_a_person_has_decided(
    given: FenceOptions, fences: tuple[NetworkFence, ...], who: str
) -> None:
    found = recorded(record(), fences=fences)
    decision = pure.intend(found, given)
    refused(
        decision, f"it is recorded that node a reaches Ceph from {STORAGE}, but {who}", "find out"
    )
    assert decision.plan.findings[0].code == "evidence_contradicts"
    assert f"record: {STORAGE}" in str(decision.plan.findings[0].evidence["says"])
    named = replace(given, fence_addresses=(STORAGE, A, "192.168.7.50"))
    # A NetworkFence that lacks what the user names is refused for that.
    named_so = intended(found._replace(fences=()), named)
    assert {STORAGE, A, "192.168.7.50"} <= set(named_so.addresses)


def test_a_stranger_is_known_by_the_record() -> None:
    """Without it, who has both a lock and the image open is taken for the node."""
    held = options(image(watchers=[watcher("192.168.7.60")], locks=[lock("192.168.7.60")]))
    assert "192.168.7.60" in intended(given=held).addresses
    refused(
        pure.intend(recorded(record()), held),
        "at an address that no source lists as this node's (known: ",
        STORAGE,
    )
    # The address of the record itself is no stranger's.
    assert intended(recorded(record()), options(image(watchers=[watcher(STORAGE)]))).source == {
        STORAGE: "watcher",
        A: "status",
    }


def test_a_record_does_not_tell_this_node_from_another_one_with_the_volume() -> None:
    """By now the client there may be that node's."""
    both = state(attached=[volume(elsewhere="b"), volume("w")])
    found = both._replace(records=recorded(record()).records)
    held = options(image(watchers=[watcher(STORAGE)]), image("w"))
    refused(pure.intend(found, held), f"it is unknown whose address {STORAGE} is")


def test_who_names_the_addresses_decides_about_the_recorded_one() -> None:
    """It is not fenced then, and what is seen nowhere needs it, unless it is another host's."""
    named = replace(SILENT, fence_addresses=("192.168.7.50",))
    refused(
        pure.intend(recorded(record()), named),
        f"{STORAGE} is where Ceph saw it in an earlier night: name it in fence_addresses",
    )
    host = replace(named, other_addresses=(STORAGE,))
    assert intended(recorded(record()), host).addresses == ("192.168.7.50", A)
    # A record of each for one address proves nothing of either.
    why = f"{STORAGE} is where Ceph saw it in an earlier night"
    refused(pure.intend(recorded(record(), record("b")), named), why)
    fence = network_fence("storage-ops-b", (f"{STORAGE}/32",), addresses_from="option")
    moved_on = recorded(record(), fences=(fence,))
    assert intended(moved_on, named).addresses == ("192.168.7.50", A)
    # Unless it is named, it cannot be both.
    refused(
        pure.intend(recorded(record()), replace(SILENT, other_addresses=(STORAGE,))),
        f"other_addresses has {STORAGE}, which is an address of node a",
    )


def test_a_node_that_is_said_to_be_off_is_not_at_its_recorded_address() -> None:
    off = replace(SILENT, method="none", node_confirmed_off=True)
    assert intended(recorded(record()), off).addresses == ()
    # So it does not matter who has that by now.
    assert intended(recorded(record(), record("b")), off).addresses == ()
    assert intended(recorded(record(address=B)), off).addresses == ()
    seen = replace(off, reading=reading(image(watchers=[watcher(STORAGE, seen=1)])))
    refused(pure.intend(recorded(record()), seen), "is said to be off")


def test_a_recorded_address_is_all_that_ceph_shows_of_a_node() -> None:
    """So what is seen nowhere is not taken to be at yet another address."""
    two = [volume(), volume("w")]
    held = options(image(watchers=[watcher(STORAGE)], locks=[lock(STORAGE)]), image("w"))
    refused(pure.intend(state(attached=two), held), "so it may have others")
    assert intended(recorded(record(), attached=two), held).addresses == (STORAGE, A)


# what another node says of itself

LIES = {"others": (pick_host_record(node("b", "True", addresses=(B, STORAGE))),)}
# The lost node is at STORAGE, and its connection is bad.
FLAPS = image(watchers=[watcher(STORAGE, 2, seen=1)])
AT_A = image("w", watchers=[watcher()])
TWO = (volume(), volume("w"))


@pytest.mark.parametrize(
    ("attached", "given"),
    [
        (TWO, options(FLAPS, AT_A)),
        # Both nodes have it.
        (
            (many(volume(elsewhere="b")), volume("w")),
            options(image(watchers=[watcher(STORAGE, 2)]), AT_A),
        ),
    ],
    ids=["comes and goes", "shared"],
)
def test_a_claim_lets_no_client_pass(attached: Any, given: FenceOptions) -> None:
    for claim in ({}, LIES):
        decision = pure.intend(state(attached=attached, **claim), given)
        # At most w is fenced.
        assert "client_unknown" in {one.code for one in decision.plan.findings}
        assert decision.ledger is None or decision.ledger.volumes == ("w",)


def test_a_claim_lets_no_recorded_address_pass() -> None:
    given = options(image(), fence_addresses=(A,))
    for claim in ({}, LIES):
        why = f"{STORAGE} is where Ceph saw it in an earlier night" if not claim else STORAGE
        refused(pure.intend(recorded(record(), **claim), given), "nothing shows from where v", why)


@pytest.mark.parametrize("seen", [3, 1], ids=["all the time", "once"])
def test_a_claim_is_no_proof_that_the_client_after_the_fence_is_another_nodes(seen: int) -> None:
    left = proof(image(watchers=[watcher(STORAGE, 2, seen=seen)]), blocklist=[blocked(A)])
    for claim in ({}, LIES):
        found = state(node(unschedulable=True), **claim)
        refused(confirm(intended(), left, found), "it is unknown whose it is")


@pytest.mark.parametrize("asked", [by_power("on"), by_others("off")])
def test_a_claim_takes_no_client_from_a_node_that_is_said_to_be_off(asked: FenceOptions) -> None:
    ledger = pure.intend(silent(RBD), asked).ledger
    tells = by_others if asked.method == "external" else by_power
    for addresses in ((B,), (B, A)):
        others = (pick_host_record(node("b", "True", addresses=addresses)),)
        found = silent(RBD, ledger=ledger)._replace(others=others)
        at = f"{found.now:%Y-%m-%dT%H:%M:%SZ}"
        alive = image("v0", watchers=[watcher(A)])
        read = reading(alive, observations=2, seconds=35.0, read_at=at)
        refused(pure.confirm(found, tells("off", "off", reading=read)), "still holds p/v0")


@pytest.mark.parametrize("elsewhere", [True, False])
def test_what_moved_from_the_node_shows_no_other_node(elsewhere: bool) -> None:
    """Its own client has u open still, which Kubernetes has detached by force for node b."""
    also = [watcher(B, 5)] if elsewhere else []
    u = image("u", watchers=[watcher(STORAGE, 2, seen=1), *also])
    at = attachment("u", RBD, "b")._replace(created=NOW)
    for used, single in (((moved("u"),), {}), ((), {"u": at}), ((), {})):
        found = state(attached=TWO, used=used, single=single)
        decision = pure.intend(found, options(FLAPS, AT_A, u))
        assert "client_unknown" in {one.code for one in decision.plan.findings}
        assert decision.ledger is None or decision.ledger.volumes == ("w",)


# what proves that an address is another node's


def shared_with_b(*images: dict[str, Any], **fields: Any) -> Decision:
    """Both nodes have w. Node a's client is at A, and another one at STORAGE."""
    both = image("w", watchers=[watcher(), watcher(STORAGE, 2, nonce=12)])
    given = fields.pop("given", {})
    found = state(attached=[volume(), many(volume("w", elsewhere="b"))], **fields)
    return pure.intend(found, options(image(watchers=[watcher()]), both, *images, **given))


def passes(decision: Decision) -> bool:
    ledger = None if decision.plan.refusals else decision.ledger
    return bool(ledger and ledger.volumes == ("v", "w") and ledger.addresses == (A,))


def test_what_proves_whose_client_it_is() -> None:
    assert not passes(shared_with_b())
    seen, single = seen_beside(address=STORAGE)
    assert passes(shared_with_b(seen, single=single))
    assert passes(shared_with_b(records=recorded(record("b")).records))
    fence = network_fence("storage-ops-b", (f"{STORAGE}/32",), addresses_from="option")
    assert passes(shared_with_b(fences=(fence,)))
    assert passes(shared_with_b(given={"other_addresses": (STORAGE,)}))
    # Another node than the one that has the volume is no reason either.
    seen, single = seen_beside(on="c", address=STORAGE)
    assert not passes(shared_with_b(seen, single=single))
    assert not passes(shared_with_b(fences=(fence._replace(addresses_from="driver"),)))


@pytest.mark.parametrize(
    "records",
    [
        [record("b", boot_id="boot-0")],
        [record("b", fsid="another")],
        [record("b"), record("a")],
        [record("b"), record("a", boot_id="boot-0")],
    ],
    ids=["boot", "Ceph", "both", "before"],
)
def test_a_record_that_proves_nothing_of_another_node(records: list[Record]) -> None:
    assert not passes(shared_with_b(records=recorded(*records).records))


def test_a_kubelet_does_not_choose_since_when_its_node_is_silent() -> None:
    """What was taken from it by force would else be another node's from before: its own client
    there would be that node's, and the fence proven.
    """
    seen, single = seen_beside(address=STORAGE)
    images = reading(seen).images
    late = {"x": single["x"]._replace(created=NOW - timedelta(seconds=60))}
    lying = node(seconds=-86400 * 365)
    (taint,) = node(seconds=300)["spec"]["taints"]
    assert proven_of(state({**lying, "spec": {"taints": [taint]}}, single=single), images, OPTIONS)
    for taints in ([taint], [], [{**taint, "key": "mine"}], [{**taint, "timeAdded": None}]):
        found = state({**lying, "spec": {"taints": taints}}, single=late)
        assert not proven_of(found, images, OPTIONS), taints


def test_an_image_that_proves_nothing_of_another_node() -> None:
    seen, single = seen_beside(address=STORAGE)
    at = single["x"]
    silent_since = NOW - timedelta(seconds=300)
    # What came to that node since this one is silent may have been taken from it.
    for created in (None, silent_since, silent_since + timedelta(seconds=1)):
        late = {"x": at._replace(created=created)}
        assert not passes(shared_with_b(seen, single=late)), created
    # Since when it is silent, no Node object tells then.
    sure = state(single=single)
    assert proven_of(sure, reading(seen).images, OPTIONS)
    assert not proven_of(sure._replace(host=None), reading(seen).images, OPTIONS)
    assert not passes(shared_with_b(seen, single={}))
    # Nor may any fence have it.
    for fenced in (
        {"ledgers": (other_ledger(volumes=("x",), addresses=("10.0.0.99",), entries=()),)},
        {"used": (moved("x"),)},
    ):
        assert not passes(shared_with_b(seen, single=single, **fenced))
    # Who comes and goes, a tool, several of them, a lock of another one, and what is not read.
    (client,) = seen["watchers"]
    for differs in (
        {"watchers": [{**client, "persistent": False}]},
        {"watchers": [watcher(STORAGE, 77, kernel=False)]},
        {"watchers": [client, watcher("192.168.7.8", 78)]},
        {"watchers": [client, watcher("192.168.7.8", 78, seen=1)]},
        {"watchers": [], "locks": [lock(STORAGE, 77)]},
        {"locks": [lock("192.168.7.8", 78)]},
        {"problem": "down"},
    ):
        assert not passes(shared_with_b({**seen, **differs}, single=single)), differs
    # rbd-mirror has no word in it.
    mirrored = {**seen, "watchers": [client, watcher("192.168.7.8", 78, mirror=True)]}
    assert passes(shared_with_b(mirrored, single=single))
    # With two images at two addresses it has several, and with two nodes at one, so may this one.
    more, other = seen_beside("y", address="192.168.7.8")
    assert not passes(shared_with_b(seen, more, single={**single, **other}))
    more, other = seen_beside("y", on="c", address=STORAGE)
    assert not passes(shared_with_b(seen, more, single={**single, **other}))


@pytest.mark.parametrize(
    "mine",
    [
        image("z", watchers=[watcher(STORAGE, 9, seen=1)]),
        image("z", locks=[lock(STORAGE, 9)]),
        image("z", notes=[("a", STORAGE)]),
    ],
    ids=["watcher", "lock", "note"],
)
def test_what_speaks_for_the_lost_node_leaves_nothing_proven(mine: dict[str, Any]) -> None:
    seen, single = seen_beside(address=STORAGE)
    found = {"single": single, "records": recorded(record("b")).records}
    both = image("w", watchers=[watcher(), watcher(STORAGE, 2, nonce=12)])
    given = options(image(watchers=[watcher()]), both, seen, mine)
    attached = [volume(), many(volume("w", elsewhere="b")), volume("z")]
    decision = pure.intend(state(attached=attached, **found), given)
    assert not decision.ledger or decision.plan.refusals or "w" not in decision.ledger.volumes


# families of addresses

SIX = "fd00::5"
BOTH = {"families": ["IPv4", "IPv6"]}
ONLY_SIX = {"families": ["IPv6"]}


def dual(*images: dict[str, Any], **fields: Any) -> FenceOptions:
    """A Ceph whose monitors have addresses of both families."""
    return replace(OPTIONS, reading=reading(*images, **BOTH), **fields)


def of_both(*addresses: str) -> dict[str, Any]:
    return node(addresses=addresses or (A, SIX))


def test_a_client_that_is_seen_needs_no_address_of_the_other_family() -> None:
    """All connections of a client have the one address that Ceph shows."""
    assert intended(given=dual(image(watchers=[watcher()]))).addresses == (A,)
    # The owner of a lock may be dead, and the client of a later mount at the other one.
    locked = image(locks=[lock()])
    refused(pure.intend(state(), dual(locked)), "no IPv6 address of node a is fenced", "held: v.")
    assert {*intended(state(of_both()), dual(locked)).addresses} == {A, SIX}
    # Also where it was intended by one.
    known = intended(given=options(locked))
    refused(pure.intend(state(ledger=known), dual(locked)), "no IPv6 address of node a is fenced")


def test_a_client_that_is_nowhere_seen_may_be_at_an_address_of_either_family() -> None:
    volumes = (volume(), volume("w"))
    for one in (A, SIX):
        six = one == SIX
        client = {**watcher(one), "entry": f"[{one}]:0/11"} if six else watcher(one)
        images = (image(watchers=[client]), image("w"))
        decision = pure.intend(state(of_both(one), volumes), dual(*images))
        missing = "IPv4" if six else "IPv6"
        refused(
            decision, f"no {missing} address of node a is fenced", "held: w.", "fence_addresses"
        )
        assert "held: v" not in decision.plan.refusals[0].reason
        assert decision.plan.refusals[0].code == "fence_incomplete"
        # The node has one of each, or the user names it.
        whole = intended(state(of_both(A, SIX), volumes), dual(*images))
        assert {*whole.addresses} == {A, SIX}
        other = ({A, SIX} - {one}).pop()
        given = dual(*images, fence_addresses=(other,))
        assert {*intended(state(of_both(one), volumes), given).addresses} == {A, SIX}
    # Of a Ceph of one family nothing else is asked.
    images = (image(watchers=[watcher()]), image("w"))
    assert intended(state(attached=volumes), options(*images)).addresses == (A,)


def test_where_the_node_was_recorded_no_other_family_is_asked_for() -> None:
    found = recorded(record(address=A))
    assert intended(found, dual(image())).source == {A: "record"}
    # Where another address is fenced, the record says nothing of that one.
    given = dual(image(), fence_addresses=("10.0.0.9",))
    refused(pure.intend(recorded(record()), given), "no IPv6 address of node a is fenced")
    # Nor does one of a family that this Ceph does not have any more.
    six = replace(OPTIONS, reading=reading(image(), **ONLY_SIX))
    refused(pure.intend(found, six), f"{A} (record)", "of this Ceph has an IPv4 address")


def test_a_family_that_ceph_does_not_have_fences_nothing() -> None:
    """Ceph sees no client at such an address, so an entry for it would hit none."""
    # What the user says, and what ceph-csi noted in another time.
    decision = pure.intend(state(of_both(SIX)), options(image(), fence_addresses=(SIX,)))
    refused(decision, f"{SIX} (fence_addresses)", "of this Ceph has an IPv6", "fence_addresses")
    assert "nothing shows" not in decision.plan.refusals[0].reason
    assert decision.plan.refusals[0].code == "address_unknown"
    decision = pure.intend(state(of_both(SIX)), options(image(notes=[("a", SIX)])))
    refused(decision, f"{SIX} (metadata)", "of this Ceph has an IPv6")
    six = replace(OPTIONS, reading=reading(image(notes=[("a", A)]), **ONLY_SIX))
    refused(pure.intend(state(of_both(A)), six), f"{A} (metadata)", "of this Ceph has an IPv4")
    # The same where it is intended already.
    known = intended(
        state(of_both(SIX)),
        replace(OPTIONS, reading=reading(image(notes=[("a", SIX)]), **ONLY_SIX)),
    )
    assert known.addresses == (SIX,)
    refused(
        pure.intend(state(of_both(SIX), ledger=known), options(image())), "of this Ceph has an IPv6"
    )


def test_an_address_that_no_monitor_has_may_be_that_of_an_older_client() -> None:
    """A client keeps its address when the monitors change. So it is fenced there too, or not at all
    where nothing shows who has a volume.
    """
    found = (volume(), volume("w"))
    images = (image(watchers=[watcher()]), image("w"))
    assert {*intended(state(of_both(), found), options(*images)).addresses} == {A, SIX}
    fences = (network_fence(cidrs=(f"{A}/32", f"{SIX}/128")),)
    given = state(of_both(), found, fences=fences)
    assert {*intended(given, options(*images)).addresses} == {A, SIX}
    given = state(of_both(), found, fences=(network_fence(),))
    uncovered = f"{SIX} is covered by no NetworkFence"
    refused(pure.intend(given, options(*images)), uncovered)
    refused(pure.intend(given, dual(*images)), uncovered, "no IPv6 address of node a is fenced")
    # A client of another image shows that Ceph had the other family.
    older = image("x", watchers=[watcher("fd00::77")])
    refused(
        pure.intend(state(None, found), options(*images, older)),
        "no IPv6 address of node a is fenced",
    )


def test_a_note_is_no_evidence_where_ceph_has_both_families() -> None:
    """It is of when the volume was staged; the client of a later mount may have the other one."""
    noted = image(notes=[("a", A)])
    refused(pure.intend(state(), dual(noted)), "no IPv6 address of node a is fenced", "held: v.")
    assert {*intended(state(of_both()), dual(noted)).addresses} == {A, SIX}
    assert intended(given=options(noted)).addresses == (A,)
    # Two notes of the volume tell both.
    both = dual(image(notes=[("a", A), ("a", SIX)]))
    assert {*intended(given=both).addresses} == {A, SIX}


def test_the_users_network_fence_is_his_word_only_for_the_families_that_it_has() -> None:
    """Without it, what it does not cover would be left out at his word."""
    found, own = (volume(),), of_both(A, SIX, "10.0.0.7")
    given = {"addresses_from": "option"}
    one = (network_fence(cidrs=(f"{A}/32",), **given),)
    both = (network_fence(cidrs=(f"{A}/32", f"{SIX}/128"), **given),)
    assert intended(state(own, found, fences=one), options(image())).addresses == (A,)
    refused(
        pure.intend(state(own, found, fences=one), dual(image())),
        "10.0.0.7 is covered by no NetworkFence",
        "no IPv6 address of node a is fenced",
    )
    assert {*intended(state(own, found, fences=both), dual(image())).addresses} == {A, SIX}
    # The other family is covered by another one, which is not his word for what is left out.
    other = network_fence("other", cidrs=(f"{SIX}/128",))
    refused(
        pure.intend(state(own, found, fences=(*one, other)), dual(image())),
        "10.0.0.7 is covered by no NetworkFence",
    )


def test_where_ceph_is_not_read_a_node_of_both_families_may_reach_it_by_both() -> None:
    blind = replace(OPTIONS, reading=None)
    given = {"addresses_from": "option"}
    one = (network_fence(cidrs=(f"{A}/32",), **given),)
    both = (network_fence(cidrs=(f"{A}/32", f"{SIX}/128"), **given),)
    assert intended(state(fences=one), blind).addresses == (A,)
    # The network of Ceph may be another one than that of Kubernetes.
    six = (network_fence(cidrs=(f"{SIX}/128",), **given),)
    assert intended(state(fences=six), blind).addresses == (SIX,)
    refused(pure.intend(state(of_both(), fences=one), blind), "no IPv6 address of node a is fenced")
    assert {*intended(state(of_both(), fences=both), blind).addresses} == {A, SIX}
    # Without a word of the user's about the node nothing is left out at his word.
    named = replace(blind, fence_addresses=(A,))
    refused(
        pure.intend(state(of_both(A, "10.0.0.7"), fences=(network_fence(),)), named),
        "10.0.0.7 is covered by no NetworkFence",
    )


def test_a_fence_that_is_only_intended_is_judged_by_its_families_again() -> None:
    """It may be of before Ceph had the second one; nothing was detached by it yet."""
    known = intended(given=options(image(watchers=[watcher()])))
    before = state(ledger=known)
    refused(pure.intend(before, dual(image())), "no IPv6 address of node a is fenced", "held: v.")
    assert intended(before, options(image())).addresses == (A,)
    # Its client is there still.
    assert intended(before, dual(image(watchers=[watcher()]))).addresses == (A,)
    assert {*intended(before, dual(image(), fence_addresses=(SIX,))).addresses} == {A, SIX}
    # One that was proven stands: other nodes may have its volumes.
    proven = known._replace(phase="fenced", proven=True)
    assert intended(state(ledger=proven), dual(image())).addresses == (A,)
    # Until more is added to it: since that was begun, the node may have been back.
    joined = proven._replace(phase="intended", volumes=("v", "w"))
    two = (volume(), volume("w"))
    refused(
        pure.intend(state(attached=two, ledger=joined), dual(image(), image("w"))),
        "no IPv6 address of node a is fenced",
        "w",
    )


def test_a_node_that_is_off_needs_no_address_of_any_family() -> None:
    given = dual(image(), method="none", node_confirmed_off=True)
    assert intended(given=given).method == "none"

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the answers of a SCSI disk prove about it (STOR-01 to STOR-03). Pure: no I/O here."""

from __future__ import annotations

from .._node import scsi
from .._node.block import Disk
from .._node.scsi import Answer
from .model import (
    FINE,
    FOREIGN,
    GONE,
    OTHER,
    SERVING,
    STANDBY,
    TWIN,
    UNIDENTIFIED,
    UNKNOWN,
    Judgement,
    Observation,
    ResidualState,
)

# Designator types whose names stay with a volume: 1 is T10 vendor ID based, 2 EUI-64, 3 NAA (SPC-4,
# Device Identification VPD page, DESIGNATOR TYPE field).
_LASTING_KINDS = ("1", "2", "3")
# NOT READY, LOGICAL UNIT NOT ACCESSIBLE: asymmetric access state transition, target port in standby
# state, in unavailable state (SPC-4, ASC and ASCQ assignments; they are also in
# drivers/scsi/device_handler/scsi_dh_alua.c).
_STANDBY_SENSES = ("02/04/0a", "02/04/0b", "02/04/0c")


def judge(disk: Disk | None, answer: Answer | None, expected: str) -> Judgement:
    """What one answer proves about a disk that was found as the LUN ``expected`` (a WWID as
    multipath spells it).

    GONE and OTHER allow a repair, so each needs answers that agree; all else is UNKNOWN.
    """
    # NVMe, DASD and others have no INQUIRY that could be sent.
    if disk is None:
        return Judgement(FOREIGN, "not a SCSI disk, so it cannot be asked")
    if answer is None:
        return Judgement(UNKNOWN, "not asked")
    return (
        _judge_transport(disk, answer)
        or _judge_presence(answer)
        or _judge_names(disk, answer, expected)
        or _judge_readiness(answer)
    )


def _judge_transport(disk: Disk, answer: Answer) -> Judgement | None:
    """Whether the question may not have reached the array; None if it did.

    An array that is out of reach says nothing about its LUNs.
    """
    if disk.transport is not None and not disk.transport.up:
        return Judgement(
            UNKNOWN,
            f"transport outage: {disk.transport.describe()}, device {disk.state}",
            code="transport_outage",
        )
    if disk.state == "offline":
        # Set by the error handler (drivers/scsi/scsi_error.c scsi_eh_offline_sdevs); only an
        # administrator sets it back.
        remedy = f"when the array is in order, echo running > /sys/block/{disk.name}/device/state"
        return Judgement(
            UNKNOWN,
            f"the kernel set it offline after errors, and leaves it so: {remedy}",
            code="transport_outage",
        )
    # "blocked" and "transport-offline" are set while a remote port or session is lost
    # (drivers/scsi/scsi_sysfs.c sdev_states, drivers/scsi/scsi_lib.c).
    if disk.state != "running":
        said = f"transport outage: device {disk.state}"
        return Judgement(UNKNOWN, said, code="transport_outage")
    # The child that asked has failed, or had no answer in time.
    if answer.problem:
        return Judgement(UNKNOWN, answer.problem)
    # The host byte says that the command did not get through (include/scsi/scsi_status.h).
    if any("DID_" in said for said in (answer.ready, answer.inquiry, answer.vpd)):
        said = f"transport error: {answer.describe()}"
        return Judgement(UNKNOWN, said, code="transport_outage")
    return None


def _judge_presence(answer: Answer) -> Judgement | None:
    """Whether the target serves a LUN under this number; None if it does, and names it."""
    said = answer.describe()
    unsupported = answer.ready == scsi.LUN_NOT_SUPPORTED
    # PERIPHERAL QUALIFIER 1: no device is connected, but could be; 3: no device is possible here
    # (SPC-4, standard INQUIRY data). The kernel ignores such LUNs in a scan, too
    # (drivers/scsi/scsi_scan.c scsi_probe_and_add_lun).
    absent = answer.qualifier in (1, 3)
    if answer.inquiry == scsi.LUN_NOT_SUPPORTED or absent:
        # One odd answer does not decide. LUN 0 is special: the target itself answers TEST UNIT
        # READY there, though no device is.
        agreed = unsupported or (absent and answer.ready == "good")
        return Judgement(
            GONE if agreed else UNKNOWN, said if agreed else f"contradictory answers: {said}"
        )
    # Qualifier 2 is reserved; 4 to 7 are vendor specific (SPC-4, standard INQUIRY data).
    if answer.inquiry != "good" or answer.qualifier != 0:
        return Judgement(UNKNOWN, f"no sign that the LUN is gone: {said}")
    # A LUN without a usable page 0x83 may still serve data, so it is not called broken.
    if answer.vpd != "good":
        proven = answer.ready == "good"
        return Judgement(
            UNIDENTIFIED if proven else UNKNOWN,
            f"its identity is unproven, VPD 0x83 {answer.vpd}: {said}",
        )
    # INQUIRY and VPD were answered by a device, TEST UNIT READY was not.
    if unsupported:
        return Judgement(UNKNOWN, f"contradictory answers: {said}")
    return None


def _judge_names(disk: Disk, answer: Answer, expected: str) -> Judgement | None:
    """Whether the LUN has other names than the expected one; None if they are the same."""
    said = answer.describe()
    if expected not in answer.wwids:
        # Only names of the same kind can be compared: a LUN has several, and none excludes another.
        names = scsi.world_wide(answer.wwids)
        if not any(wwid[0] == expected[:1] for wwid in names):
            return Judgement(
                UNIDENTIFIED,
                f"its names cannot be compared with {expected or 'an unknown WWID'}: {said}",
            )
        # World-wide names of the same type are unique, so another one is another LUN. It is found
        # by the best of its names, which may be of another kind.
        return Judgement(OTHER, f"answers as another LUN: {said}", tuple(sorted(names)))
    # A clone or a replica may keep one name and get others.
    changed = _other_names(disk.names, answer.wwids)
    if changed:
        return Judgement(
            TWIN,
            f"answers with the same WWID, but as {changed}, which "
            f"is another volume or a copy: {said}",
            code="identity_changed",
        )
    return None


def _judge_readiness(answer: Answer) -> Judgement:
    """What the LUN's own answer to TEST UNIT READY says."""
    said = answer.describe()
    # Status 0x18, RESERVATION CONFLICT: another host has reserved the LUN, so it is there (SAM-5).
    if answer.ready in ("good", "status 0x18"):
        return Judgement(SERVING, said, code="path_serves_lun")
    return Judgement(
        STANDBY if answer.ready in _STANDBY_SENSES else UNKNOWN,
        f"no sign that the LUN is gone: {said}",
    )


def _other_names(known: tuple[str, ...], said: tuple[str, ...]) -> str:
    """In which names a disk differs from those it was found with; empty if it does not.

    It differs if all names of one kind are new. ``known``: from its discovery; ``said``: now.
    """
    # A kind that only one side has proves nothing. Vendor specific names (type 0) are left out:
    # they may be what people call the volume on the array. A T10 name has the vendor and mostly the
    # serial number in it.
    for kind in _LASTING_KINDS:
        # A volume may get further names of a kind; only if none is left it is another one.
        before, now = ({name for name in names if name[0] == kind} for names in (known, said))
        if before and now and before.isdisjoint(now):
            return f"{', '.join(sorted(now))} and no longer {', '.join(sorted(before))}"
    return ""


def suspects(observation: Observation) -> set[str]:
    """Names of the disks to observe further: those that do not plainly serve their LUN.

    All of them if a map has no path left, since any disk could be one of its paths.
    """
    found = set()
    for device in observation.maps:
        # Any disk of the node may be the path that the map has lost.
        if not device.slaves:
            return set(observation.disks)
        kinds = {name: judge_in(observation, name, device.wwid).kind for name in device.slaves}
        # A passive path is fine beside an active one; alone it shows an array that is failing over.
        fine = FINE if SERVING in kinds.values() else FINE - {STANDBY}
        found |= {name for name, kind in kinds.items() if kind not in fine}
    for disk in observation.plain_disks:
        # Local disks that fail are none of this runbook's business.
        if is_broken(judge_in(observation, disk.name, disk.wwid), disk):
            found.add(disk.name)
    return found & set(observation.disks)


def undecided(observation: Observation) -> set[str]:
    """The suspects about which another observation may prove something.

    A path that the kernel calls down proves nothing in this observation, so its whole map will be
    refused (doubts.path_obstacles), whatever later observations show. Waiting would be in vain.
    """
    groups = [device.slaves for device in observation.maps]
    groups += [(disk.name,) for disk in observation.plain_disks]
    # Running, with its session or port up (block.Disk.reachable).
    down = {disk.name for disk in observation.disks.values() if not disk.reachable}
    found = suspects(observation)
    return {name for group in groups if down.isdisjoint(group) for name in group if name in found}


def judge_in(observation: Observation, name: str, expected: str) -> Judgement:
    """What one observation says about a disk."""
    return judge(observation.disks.get(name), observation.answers.get(name), expected)


def is_broken(judgement: Judgement, disk: Disk) -> bool:
    """Whether the array took a disk in no map away, or may have.

    A local drive has no transport. That it does not answer is a defect, not a residual.
    """
    # The first three need an answer of the target, which a local drive that fails cannot give.
    return judgement.kind in (GONE, OTHER, TWIN) or (
        judgement.kind == UNKNOWN and disk.transport is not None
    )


def history_of(state: ResidualState, name: str, expected: str) -> list[Judgement]:
    """What the observations say about a disk, the newest last.

    One that was fine at first was not asked again, but it must still exist.
    """
    judgements = []
    for seen in state.observations:
        # Only suspects are asked again; a disk that was fine keeps its first answer.
        if name in seen.disks and name not in seen.answers:
            continue
        judgements.append(judge_in(seen, name, expected))
    # Another program, or the kernel, removes it at the same time.
    if name not in state.last.disks and name in state.observations[0].disks:
        judgements.append(Judgement(UNKNOWN, "it vanished while it was observed"))
    return judgements

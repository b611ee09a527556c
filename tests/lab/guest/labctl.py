# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything the lab does inside a VM node: an iSCSI array (LIO, driven through configfs) and the
faults it can have.

One file, standard library only, Python 3.9. What the array looks like is kept in STATE, so that a
rebooted node finds it again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

STATE = Path("/var/lib/lab/state.json")
LUN_FILES = Path("/var/lib/lab/luns")
PORTALS = ("127.0.0.1", "127.0.0.2")
TARGET_IQN = "iqn.2026-01.test.lab:array1"
INITIATOR_IQN = "iqn.2026-01.test.lab:node1"
CORE = Path("/sys/kernel/config/target/core/fileio_0")
TPG = Path("/sys/kernel/config/target/iscsi") / TARGET_IQN / "tpgt_1"
READY_LUNS = (1, 2, 3, 4)
LUN_MB = 64
MANY_FIRST = 11
ALUA_STATES = {"active_optimized": 0, "active_nonoptimized": 1, "standby": 2, "unavailable": 3}
MULTIPATH = {"polling_interval": "2", "max_polling_interval": "2", "no_path_retry": "fail"}
IN_DEFAULTS = ("polling_interval", "max_polling_interval", "checker_timeout", "uev_wait_timeout")
SCSI_DEBUG_FAULTS = Path("/sys/kernel/debug/scsi_debug")
OPCODES = {"tur": 0x00, "inquiry": 0x12, "read10": 0x28, "report_luns": 0xA0, "any": 0xFF}


class LabctlError(Exception):
    """Said on stderr; exit code 1."""


# --- small helpers
# --------------------------------------------------------------------------------------------------


def run(*argv: str, deadline: float = 30, check: bool = True) -> str:
    """Run a command; never wait longer than the deadline, not even for a child that cannot be
    killed.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            rc = process.wait(deadline)
        except subprocess.TimeoutExpired:
            process.kill()
            raise LabctlError(f"{' '.join(argv)}: no end after {deadline:.0f} s") from None
        output.seek(0)
        text = output.read()
    if check and rc != 0:
        raise LabctlError(f"{' '.join(argv)}: rc {rc}: {text.strip()}")
    return text


def until(check: Callable[[], bool], deadline: float, what: str) -> None:
    # Three emulated machines on two busy processors take several times as long.
    deadline *= 5
    end = time.monotonic() + deadline
    while not check():
        if time.monotonic() > end:
            raise LabctlError(f"{what}: not within {deadline:.0f} s")
        time.sleep(0.1)


def read(path: Path) -> str:
    """A sysfs file's text; empty when it (or its device) has just gone."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def write(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text}\n")
    except OSError as exc:
        raise LabctlError(f"cannot write {text!r} to {path}: {exc.strerror}") from exc


def load() -> dict[str, Any]:
    if not STATE.exists():
        return {"backings": {}, "luns": {}, "alua": {}, "multipath": dict(MULTIPATH)}
    state: dict[str, Any] = json.loads(STATE.read_text())
    return state


def save(state: dict[str, Any]) -> None:
    STATE.parent.mkdir(parents=True, exist_ok=True)
    temporary = STATE.with_suffix(".new")
    temporary.write_text(json.dumps(state, indent=1))
    temporary.rename(STATE)


# --- the array
# --------------------------------------------------------------------------------------------------


def serial(backing: str) -> str:
    """The same backing has the same serial, hence the same WWID, in every VM."""
    return hashlib.sha256(backing.encode()).hexdigest()[:32]


def wwid(backing: str) -> str:
    """As multipath writes it: LIO puts the serial's first 25 hex digits behind its own NAA 6
    prefix.
    """
    return "36001405" + serial(backing)[:25]


def make_backing(backing: str, size_mb: int, content: str) -> None:
    LUN_FILES.mkdir(parents=True, exist_ok=True)
    with (LUN_FILES / backing).open("wb") as handle:
        handle.truncate(size_mb << 20)
        handle.write(content.encode())
    enable_backing(backing)


def enable_backing(backing: str) -> None:
    file = LUN_FILES / backing
    device = CORE / backing
    device.mkdir(parents=True)
    # Buffered: the lab's disk is slow, and its data is worth nothing.
    write(
        device / "control", f"fd_dev_name={file},fd_dev_size={file.stat().st_size},fd_buffered_io=1"
    )
    write(device / "wwn/vpd_unit_serial", serial(backing))
    write(device / "enable", "1")


def map_lun(number: int, backing: str) -> None:
    lun = TPG / f"lun/lun_{number}"
    lun.mkdir()
    (lun / backing).symlink_to(CORE / backing)


def unmap_lun(number: int) -> None:
    lun = TPG / f"lun/lun_{number}"
    if not lun.exists():
        raise LabctlError(f"LUN {number} is not mapped")
    for entry in lun.iterdir():
        if entry.is_symlink():
            entry.unlink()
    lun.rmdir()


def set_alua(backing: str, state: str) -> None:
    group = CORE / backing / "alua/default_tg_pt_gp"
    # Implicit only: with explicit ALUA the initiator would switch the group back by itself.
    write(group / "alua_access_type", "1")
    write(group / "alua_access_state", str(ALUA_STATES[state]))


def build_array(state: dict[str, Any]) -> None:
    """Make LIO what the state says; called on a node whose LIO is empty (first setup, boot)."""
    run("modprobe", "-a", "target_core_mod", "target_core_file", "iscsi_target_mod", "iscsi_tcp")
    if not os.path.ismount("/sys/kernel/config"):
        run("mount", "-t", "configfs", "none", "/sys/kernel/config")
    for backing, made in state["backings"].items():
        if (LUN_FILES / backing).exists():
            enable_backing(backing)
        else:
            make_backing(backing, made["size_mb"], made["content"])
    Path("/sys/kernel/config/target/iscsi").mkdir(exist_ok=True)
    TPG.mkdir(parents=True)
    for name, value in {
        "authentication": 0,
        "demo_mode_write_protect": 0,
        "generate_node_acls": 1,
        "cache_dynamic_acls": 1,
    }.items():
        write(TPG / "attrib" / name, str(value))
    for number, backing in state["luns"].items():
        map_lun(int(number), backing)
    for backing, alua in state["alua"].items():
        set_alua(backing, alua)
    for portal in PORTALS:
        (TPG / f"np/{portal}:3260").mkdir()
    write(TPG / "enable", "1")
    # A portal that is down drops silently, as a dead switch does; a closed port would answer at
    # once.
    run("nft", "add table inet lab; add set inet lab down { type ipv4_addr; }")
    run("nft", "add chain inet lab input { type filter hook input priority 0; }")
    for side in "ds":
        run("nft", f"add rule inet lab input ip {side}addr @down tcp {side}port 3260 drop")


# --- the initiator
# --------------------------------------------------------------------------------------------------


def write_multipath_conf(settings: dict[str, str]) -> None:
    defaults = {
        "user_friendly_names": "yes",
        "find_multipaths": "no",
        **{k: v for k, v in settings.items() if k in IN_DEFAULTS},
    }
    # LIO's built-in hardware entry says no_path_retry 12: only overrides wins over it.
    overrides = {k: v for k, v in settings.items() if k not in IN_DEFAULTS}
    sections = {"defaults": defaults, "blacklist": {"devnode": '"^vd"'}, "overrides": overrides}
    text = "".join(
        f"{name} {{\n{''.join(f'    {k} {v}' + chr(10) for k, v in body.items())}}}\n"
        for name, body in sections.items()
    )
    Path("/etc/multipath.conf").write_text(text)


def login() -> None:
    run("iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", PORTALS[0])
    run("iscsiadm", "-m", "node", "-o", "update", "-n", "node.startup", "-v", "automatic")
    run("iscsiadm", "-m", "node", "--login", deadline=60)


def rescan() -> None:
    run("iscsiadm", "-m", "session", "--rescan", deadline=120)


def wait_for_maps(wwids: Iterable[str], deadline: float) -> None:
    """Until each of these has a map with both paths usable, in the kernel's own eyes."""
    wanted = set(wwids)

    def complete() -> bool:
        maps = dm_maps()
        return all(
            list(maps.get(w, {}).get("dm_states", {}).values()) == ["active", "active"]
            for w in wanted
        )

    until(complete, deadline, f"{len(wanted)} maps with two active paths each")
    # The maps are there: a long queue of events about them is no reason to fail.
    run("udevadm", "settle", "-t", "20", deadline=40, check=False)


# --- what is there
# --------------------------------------------------------------------------------------------------


def dm_maps() -> dict[str, dict[str, Any]]:
    """Multipath maps by WWID, from sysfs and device-mapper alone."""
    found: dict[str, dict[str, Any]] = {}
    if not any(Path("/sys/block").glob("dm-*")):
        return found
    status = _by_name(run("dmsetup", "status", "--target", "multipath", deadline=10))
    table = _by_name(run("dmsetup", "table", "--target", "multipath", deadline=10))
    for device in Path("/sys/block").glob("dm-*"):
        uuid, name = read(device / "dm/uuid"), read(device / "dm/name")
        if uuid.startswith("mpath-") and name in table:
            states = dict(re.findall(r" (\d+:\d+) ([AF]) ", status.get(name, "") + " "))
            found[uuid[len("mpath-") :]] = {
                "name": name,
                "dm": device.name,
                "slaves": sorted(slave.name for slave in (device / "slaves").iterdir()),
                "dm_states": {
                    number: "active" if letter == "A" else "failed"
                    for number, letter in states.items()
                },
                "queueing": "queue_if_no_path" in table[name],
            }
    return found


def _by_name(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def disks() -> dict[str, dict[str, str]]:
    found = {}
    for block in Path("/sys/block").glob("sd*"):
        device = block / "device"
        found[block.name] = {
            "hctl": os.path.basename(os.path.realpath(device)),
            "wwid": re.sub(r"^naa\.", "3", read(device / "wwid")),
            "state": read(device / "state"),
            "dev": read(block / "dev"),
        }
    return found


def sessions() -> dict[str, dict[str, str]]:
    found = {}
    for session in Path("/sys/class/iscsi_session").glob("session*"):
        number = session.name[len("session") :]
        portal = read(Path(f"/sys/class/iscsi_connection/connection{number}:0/persistent_address"))
        found[number] = {"portal": portal, "state": read(session / "state")}
    return found


def whole_state() -> dict[str, Any]:
    state = load()
    try:
        lines = run(
            "multipathd", "show", "paths", "raw", "format", "%d|%T", deadline=10, check=False
        ).splitlines()
    except LabctlError:
        lines = []
    checkers = dict(line.replace(" ", "").split("|", 1) for line in lines if line.count("|") == 1)
    known = disks()
    maps = {}
    for w, entry in dm_maps().items():
        paths = {}
        for name in entry["slaves"]:
            disk = known.get(name, {})
            paths[name] = {
                "hctl": disk.get("hctl", ""),
                "dm_state": entry["dm_states"].get(disk.get("dev", ""), ""),
                "checker_state": checkers.get(name, ""),
                "sysfs_state": disk.get("state", ""),
            }
        maps[w] = {
            "name": entry["name"],
            "dm": entry["dm"],
            "paths": paths,
            "queueing": entry["queueing"],
        }
    luns = {
        number: {"backing": backing, "wwid": wwid(backing)}
        for number, backing in state["luns"].items()
    }
    return {"maps": maps, "disks": known, "sessions": sessions(), "luns": luns}


# --- commands
# --------------------------------------------------------------------------------------------------


def cmd_ready() -> None:
    """The node as every test finds it: LUNs 1..4 over two portals, logged in, mpatha..mpathd with
    two paths each.
    """
    state = load()
    if state["luns"]:
        raise LabctlError("this node is set up already")
    for number in READY_LUNS:
        name = f"lun{number}"
        state["backings"][name] = {"size_mb": LUN_MB, "content": f"content of {name}\n"}
        state["luns"][str(number)] = name
    Path("/etc/iscsi/initiatorname.iscsi").write_text(f"InitiatorName={INITIATOR_IQN}\n")
    write_multipath_conf(state["multipath"])
    # mpatha is LUN 1, and so on, whichever the kernel happens to find first.
    Path("/etc/multipath").mkdir(exist_ok=True)
    bindings = (
        f"mpath{chr(ord('a') + place)} {wwid(backing)}\n"
        for place, backing in enumerate(state["luns"].values())
    )
    Path("/etc/multipath/bindings").write_text("".join(bindings))
    build_array(state)
    save(state)
    run("systemctl", "restart", "iscsid", "multipathd", deadline=60)
    login()
    wait_for_maps(map(wwid, state["luns"].values()), 90)


def cmd_restore() -> None:
    """At boot: the array is back before open-iscsi logs in."""
    state = load()
    if state["luns"] or state["backings"]:
        build_array(state)


def cmd_lun_new(backing: str, size_mb: int, content: str) -> None:
    state = load()
    if backing in state["backings"]:
        raise LabctlError(f"backing {backing} exists")
    make_backing(backing, size_mb, content)
    state["backings"][backing] = {"size_mb": size_mb, "content": content}
    save(state)
    print(wwid(backing))


def cmd_lun_map(number: int, backing: str) -> None:
    state = load()
    backing = backing or f"lun{number}"
    if backing not in state["backings"]:
        raise LabctlError(f"no backing {backing}: make it with `labctl lun new {backing} SIZE_MB`")
    map_lun(number, backing)
    state["luns"][str(number)] = backing
    save(state)
    print(wwid(backing))


def cmd_lun_unmap(numbers: Sequence[int]) -> None:
    state = load()
    for number in numbers:
        unmap_lun(number)
        del state["luns"][str(number)]
    save(state)


def cmd_lun_many(count: int) -> None:
    """LUNs 11, 12, … with small disks, found by the initiator, each with its two-path map."""
    state = load()
    made = []
    for number in range(MANY_FIRST, MANY_FIRST + count):
        backing = f"many{number}"
        make_backing(backing, 1, f"content of {backing}\n")
        map_lun(number, backing)
        state["backings"][backing] = {"size_mb": 1, "content": f"content of {backing}\n"}
        state["luns"][str(number)] = backing
        made.append(wwid(backing))
    save(state)
    rescan()
    wait_for_maps(made, 60 + 3 * count)


def cmd_portal(direction: str, address: str) -> None:
    if address not in PORTALS:
        raise LabctlError(f"no portal {address}: there are {', '.join(PORTALS)}")
    run(
        "nft",
        "add" if direction == "down" else "delete",
        "element",
        "inet",
        "lab",
        "down",
        f"{{ {address} }}",
    )


def cmd_alua(number: int, access: str) -> None:
    state = load()
    backing = state["luns"].get(str(number))
    if backing is None:
        raise LabctlError(f"LUN {number} is not mapped")
    set_alua(backing, access)
    state["alua"][backing] = access
    save(state)


def cmd_multipath_config(settings: Sequence[str]) -> None:
    state = load()
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise LabctlError(f"{setting!r}: expected key=value")
        state["multipath"][key] = value
    write_multipath_conf(state["multipath"])
    save(state)
    run("multipathd", "reconfigure")
    queueing = state["multipath"]["no_path_retry"] != "fail"
    # The reply comes before the maps are reloaded.
    until(
        lambda: all(entry["queueing"] == queueing for entry in dm_maps().values()),
        30,
        f"queueing {queueing} on every map",
    )


def cmd_multipathd(verb: str) -> None:
    if verb in ("stop", "start"):
        units = ("multipathd.socket", "multipathd.service")
        run("systemctl", verb, *(units if verb == "stop" else units[1:]), deadline=60)
    else:
        run(
            "systemctl",
            "kill",
            f"--signal={'STOP' if verb == 'freeze' else 'CONT'}",
            "multipathd.service",
        )


def cmd_hold(device: str, excl: bool) -> None:
    """Keep a device open, as a database or a container would, until killed."""
    end, start = os.pipe()
    if os.fork() == 0:
        os.setsid()
        try:
            os.open(device, os.O_RDONLY | os.O_CLOEXEC | (os.O_EXCL if excl else 0))
            answer = str(os.getpid())
        except OSError as exc:
            answer = f"cannot open {device}: {exc.strerror}"
        os.write(start, answer.encode())
        os.close(start)
        if not answer.isdigit():
            os._exit(1)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        while True:
            time.sleep(3600)
    os.close(start)
    answer = os.read(end, 1000).decode()
    if not answer.isdigit():
        raise LabctlError(answer)
    print(answer)


def cmd_read(device: str) -> None:
    """One direct read in the background; on a dead, queueing map it hangs in D state.

    Its output is in /run/lab-read.PID.
    """
    log = Path("/run/lab-read.new")
    with log.open("w") as output:
        process = subprocess.Popen(
            ["dd", f"if={device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    log.rename(f"/run/lab-read.{process.pid}")
    print(process.pid)


def cmd_scsi_debug_load(luns: int, size_mb: int) -> None:
    """Cheap two-path maps: two hosts that offer the same LUNs."""
    before = set(dm_maps())
    run(
        "modprobe",
        "scsi_debug",
        "add_host=2",
        f"max_luns={luns}",
        "vpd_use_hostno=0",
        f"dev_size_mb={size_mb}",
        deadline=60 + 2.0 * luns,
    )
    until(lambda: len(set(dm_maps()) - before) == luns, 60 + 2.0 * luns, f"{luns} scsi_debug maps")
    wait_for_maps(set(dm_maps()) - before, 60 + 2.0 * luns)


def cmd_scsi_debug_unload() -> None:
    for entry in dm_maps().values():
        if all(
            read(Path("/sys/block") / slave / "device/model") == "scsi_debug"
            for slave in entry["slaves"]
        ):
            run("multipath", "-f", entry["name"])
    run("modprobe", "-r", "scsi_debug")


def cmd_scsi_debug_inject(disk: str, scsi: str, sense: str, count: int) -> None:
    key, asc, ascq = (int(part, 16) for part in sense.split("/"))
    # Type 2: answer with this status and sense. A negative count is a number of times; a positive
    # one means always.
    write(
        _scsi_debug(disk),
        f"2 {-count if count else 1} {OPCODES[scsi]:#x} 0 0 0x2 {key:#x} {asc:#x} {ascq:#x}",
    )


def cmd_scsi_debug_clear(disk: str) -> None:
    faults = _scsi_debug(disk)
    for line in faults.read_text().splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[0].isdigit():
            write(faults, f"- {fields[0]} {fields[2]}")


def _scsi_debug(disk: str) -> Path:
    faults = SCSI_DEBUG_FAULTS / disks()[disk]["hctl"] / "error"
    if not faults.exists():
        raise LabctlError(f"no {faults}: this needs scsi_debug of Linux 6.7 or later (trixie)")
    return faults


def lun_numbers(text: str) -> list[int]:
    first, _dash, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="labctl", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, call: Callable[..., None], text: str, under: Any = commands
    ) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = under.add_parser(name, help=text)
        made.set_defaults(call=call)
        return made

    command("ready", cmd_ready, "set a new node up")
    command("restore", cmd_restore, "rebuild the array at boot")
    command("state", lambda: print(json.dumps(whole_state(), indent=1)), "what is there, as JSON")
    command("rescan", rescan, "rescan the iSCSI sessions")
    command("login", login, "log in over both portals")
    command(
        "logout",
        lambda: print(run("iscsiadm", "-m", "node", "--logout", deadline=120), end=""),
        "log out",
    )

    lun = commands.add_parser("lun", help="LUNs of the array").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    new = command("new", cmd_lun_new, "make a backing; prints its WWID", lun)
    new.add_argument("backing")
    new.add_argument("size_mb", type=int)
    new.add_argument("content", nargs="?", default="")
    mapped = command("map", cmd_lun_map, "map a backing (default: lunN); prints its WWID", lun)
    mapped.add_argument("number", type=int)
    mapped.add_argument("backing", nargs="?", default="")
    command("unmap", cmd_lun_unmap, "unmap N, or N-M", lun).add_argument(
        "numbers", type=lun_numbers
    )
    command(
        "many", cmd_lun_many, f"COUNT more LUNs, from {MANY_FIRST} on, with maps", lun
    ).add_argument("count", type=int)

    portal = command("portal", cmd_portal, "drop a portal's traffic silently, or let it pass again")
    portal.add_argument("direction", choices=("down", "up"))
    portal.add_argument("address")
    alua = command("alua", cmd_alua, "ALUA state of the group of a LUN")
    alua.add_argument("number", type=int)
    alua.add_argument("access", choices=ALUA_STATES)
    command("multipath-config", cmd_multipath_config, "change multipath.conf").add_argument(
        "settings", nargs="+", metavar="KEY=VALUE"
    )
    command("multipathd", cmd_multipathd, "stop, start, freeze or thaw the daemon").add_argument(
        "verb", choices=("stop", "start", "freeze", "thaw")
    )
    hold = command("hold", cmd_hold, "keep a device open; prints the holder's pid")
    hold.add_argument("device")
    hold.add_argument("--excl", action="store_true")
    command("read", cmd_read, "dd from a device in the background; prints its pid").add_argument(
        "device"
    )

    debug = commands.add_parser("scsi-debug", help="maps without an array").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    loading = command("load", cmd_scsi_debug_load, "two hosts with the same LUNS LUNs", debug)
    loading.add_argument("luns", type=int, nargs="?", default=2)
    loading.add_argument("size_mb", type=int, nargs="?", default=8)
    command("unload", cmd_scsi_debug_unload, "flush the maps and unload", debug)
    inject = command(
        "inject",
        cmd_scsi_debug_inject,
        "fail a command with KEY/ASC/ASCQ (hex), COUNT times or always",
        debug,
    )
    inject.add_argument("disk")
    inject.add_argument("scsi", choices=OPCODES)
    inject.add_argument("sense")
    inject.add_argument("count", type=int, nargs="?", default=0)
    command(
        "clear", cmd_scsi_debug_clear, "take a disk's injected errors back", debug
    ).add_argument("disk")
    return top


def main() -> int:
    arguments = vars(parser().parse_args())
    call = arguments.pop("call")
    arguments.pop("command", None)
    # multipathd's verb is an argument; that of `lun` and `scsi-debug` only chose the function.
    if call is not cmd_multipathd:
        arguments.pop("verb", None)
    try:
        call(**arguments)
    except LabctlError as exc:
        print(f"labctl: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a disk answers, and how it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import scsi

NAA = bytes.fromhex("6001405919eb0a2fd484e85817272b66")
STANDARD = bytes([0x00, 0, 5, 2, 91]) + bytes(91)
GONE = "05/25/00"


def designator(kind: int, data: bytes, association: int = 0) -> bytes:
    return bytes([1, association << 4 | kind, 0, len(data)]) + data


def page(*designators: bytes) -> bytes:
    body = b"".join(designators)
    return bytes([0, 0x83]) + len(body).to_bytes(2, "big") + body


@pytest.mark.parametrize(
    ("sense", "expected"),
    [
        (bytes([0x70, 0, 5]) + bytes(9) + bytes([0x25, 0]), GONE),
        (bytes([0x72, 2, 0x04, 0x0C]) + bytes(4), "02/04/0c"),
        (bytes([0xF0, 0, 6]) + bytes(9) + bytes([0x3F, 0x0E]), "06/3f/0e"),
        (bytes([0x70, 0, 5]), "sense unreadable"),
        (b"", "sense unreadable"),
        (bytes([0x12]) * 32, "sense unreadable"),
    ],
)
def test_sense(sense: bytes, expected: str) -> None:
    assert scsi.parse_sense(sense) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((0, 0, 0, b""), "good"),
        ((0x18, 0, 0, b""), "status 0x18"),
        ((0, 1, 0, b""), "DID_NO_CONNECT"),
        ((0, 0x42, 0, b""), "DID_0x42"),
        ((2, 0, 8, bytes([0x72, 5, 0x25, 0])), GONE),
        # A transport error wins over whatever sense is lying about.
        ((2, 14, 8, bytes([0x72, 5, 0x25, 0])), "DID_TRANSPORT_DISRUPTED"),
    ],
)
def test_classify(fields: tuple[int, int, int, bytes], expected: str) -> None:
    assert scsi.classify(*fields) == expected


def test_device_identification() -> None:
    data = page(
        designator(1, b"LIO-ORG lun1:919eb0a2-fd48"),
        designator(3, NAA),
        designator(2, bytes.fromhex("0011223344556677")),
        designator(3, bytes(8), association=1),  # the port's name, not the unit's
        designator(4, bytes(4), association=1),
    )
    assert scsi.parse_device_identification(data + bytes(100)) == (
        "1LIO-ORG_lun1:919eb0a2-fd48",
        "36001405919eb0a2fd484e85817272b66",
        "20011223344556677",
    )


@pytest.mark.parametrize(
    "data",
    [b"", bytes([0, 0x80, 0, 0]), page(designator(3, NAA))[:-1], bytes([0, 0x83, 0, 3, 1, 3, 0])],
)
def test_device_identification_that_is_not_sound(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"page"):
        scsi.parse_device_identification(data)


@given(st.binary(max_size=300))
def test_device_identification_never_breaks(data: bytes) -> None:
    try:
        names = scsi.parse_device_identification(data)
    except ValueError:
        return
    assert all(name[0] in "01238" for name in names)


@given(st.lists(st.binary(min_size=8, max_size=16), max_size=10))
def test_device_identification_keeps_every_name(names: list[bytes]) -> None:
    data = page(*(designator(3, name) for name in names))
    assert scsi.parse_device_identification(data) == tuple(
        dict.fromkeys(f"3{name.hex()}" for name in names)
    )


@pytest.mark.parametrize(
    ("lun", "expected"),
    [
        ("0001000000000000", 1),
        ("0000000000000000", 0),
        ("4100000000000000", 0x4100),
        ("0001000200000000", 0x20001),
    ],
)
def test_kernel_lun(lun: str, expected: int) -> None:
    assert scsi.kernel_lun(bytes.fromhex(lun)) == expected


@given(st.lists(st.integers(0, 255), max_size=40))
def test_report_luns(luns: list[int]) -> None:
    data = (
        (8 * len(luns)).to_bytes(4, "big")
        + bytes(4)
        + b"".join(bytes([0, lun]) + bytes(6) for lun in luns)
    )
    assert scsi.parse_report_luns(data + bytes(50)) == tuple(luns)
    # A list that was cut short is no list: a missing LUN would look unmapped.
    assert scsi.parse_report_luns(data[:-1]) is None


@given(st.binary(max_size=100))
def test_report_luns_never_breaks(data: bytes) -> None:
    scsi.parse_report_luns(data)


@pytest.mark.parametrize(
    ("wwid", "expected"),
    [
        ("naa.6001405919EB0a2f", "36001405919eb0a2f"),
        ("eui.0011223344556677", "20011223344556677"),
        ("t10.Linux   scsi_debug      2000    ", "1Linux_scsi_debug_2000"),
        ("", ""),
        ("uuid.1234", ""),
    ],
)
def test_wwid_from_sysfs(wwid: str, expected: str) -> None:
    assert scsi.wwid_from_sysfs(wwid) == expected


class Disk:
    """Answers command blocks from a table of lists: operation code (and page) -> what it says each
    time.
    """

    def __init__(self, **answers: list[tuple[str, bytes]]) -> None:
        self.answers = answers

    def __call__(self, cdb: bytes, length: int) -> tuple[str, bytes]:
        name = {0x00: "ready", 0x12: "vpd" if cdb[1] else "inquiry", 0xA0: "luns", 0x1A: "mode"}[
            cdb[0]
        ]
        answers = self.answers[name]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def ask(report_luns: bool = False, **answers: list[tuple[str, bytes]]) -> scsi.Answer:
    return scsi.Answer.from_json(scsi.converse(Disk(**answers), report_luns))


def test_conversation_with_a_healthy_disk() -> None:
    luns = (
        "good",
        (16).to_bytes(4, "big") + bytes(4) + bytes([0, 1]) + bytes(6) + bytes([0, 3]) + bytes(6),
    )
    answer = ask(
        True,
        ready=[("good", b"")],
        inquiry=[("good", STANDARD)],
        vpd=[("good", page(designator(3, NAA)))],
        luns=[luns],
    )
    assert answer == scsi.Answer(
        "good", "good", "good", 0, ("36001405919eb0a2fd484e85817272b66",), (1, 3)
    )


def test_conversation_with_a_disk_that_is_gone() -> None:
    """LIO rejects even INQUIRY; others answer it with peripheral qualifier 3 and are not asked for
    more.
    """
    assert ask(ready=[(GONE, b"")], inquiry=[(GONE, b"")]) == scsi.Answer(GONE, GONE)
    assert ask(ready=[(GONE, b"")], inquiry=[("good", bytes([0x7F]) + bytes(95))]) == scsi.Answer(
        GONE, "good", qualifier=3
    )


def test_a_disk_that_does_not_answer_in_time_is_asked_no_more() -> None:
    """Each command would take as long again, and a server may have any number of such LUNs."""
    sent: list[bytes] = []

    def send(cdb: bytes, length: int) -> tuple[str, bytes]:
        sent.append(cdb)
        return scsi.classify(0, 3, 0, b""), b""

    answer = scsi.Answer.from_json(scsi.converse(send, True))
    assert sent == [scsi.TEST_UNIT_READY]
    assert (answer.ready, answer.inquiry, answer.luns) == ("DID_TIME_OUT", "not asked", None)


@pytest.mark.parametrize(
    ("names", "wwid"),
    [
        # The kernel takes the SCSI name string for the LUN's WWID.
        (("8naa.6001405e", "36001405f"), "36001405f"),
        (("1LIO_x", "20014", "32abc", "35001", "36001405f", "36001405e"), "36001405f"),
        (("1LIO_x", "20014", "32abc", "35001"), "35001"),
        (("1LIO_x", "20014", "32abc"), "32abc"),
        (("1LIO_x", "20014"), "20014"),
        (("0own", "1LIO_x"), "1LIO_x"),
        (("0own", "8naa.6001405e"), ""),
        ((), ""),
    ],
)
def test_the_name_by_which_udev_knows_a_disk(names: tuple[str, ...], wwid: str) -> None:
    assert scsi.wwid_of(names) == wwid


def test_a_unit_attention_is_asked_past() -> None:
    news = ("06/3f/0e", b"")
    answer = ask(ready=[news, news, (GONE, b"")], inquiry=[news, (GONE, b"")])
    assert (answer.ready, answer.inquiry) == (GONE, GONE)
    for_ever = ask(ready=[news], inquiry=[news])
    assert (for_ever.ready, for_ever.inquiry) == ("06/3f/0e", "06/3f/0e")


@pytest.mark.parametrize(
    ("vpd", "expected"),
    [
        (("05/24/00", b""), "missing"),
        (("good", page()), "missing"),
        (("good", page(designator(3, NAA))[:-4]), "malformed"),
        (("02/04/01", b""), "02/04/01"),
        (("DID_NO_CONNECT", b""), "DID_NO_CONNECT"),
    ],
)
def test_vpd_page_that_proves_nothing(vpd: tuple[str, bytes], expected: str) -> None:
    answer = ask(ready=[("good", b"")], inquiry=[("good", STANDARD)], vpd=[vpd])
    assert (answer.vpd, answer.wwids) == (expected, ())


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([("good", bytes.fromhex("03008000"))], True),
        ([("good", bytes.fromhex("03001000"))], False),
        ([("06/2a/01", b""), ("good", bytes.fromhex("0b009008"))], True),
        ([("05/20/00", b"")], None),
        ([("good", b"\x03\x00")], None),
        ([("DID_NO_CONNECT", b"\x03\x00\x80\x00")], None),
    ],
)
def test_write_protection(answers: list[tuple[str, bytes]], expected: bool | None) -> None:
    assert scsi.says_write_protected(Disk(mode=answers)) is expected


def test_what_is_no_scsi_disk_says_nothing_of_protection(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(bytes(512))
    assert scsi.write_protected(str(tmp_path / "disk"), 1) is None

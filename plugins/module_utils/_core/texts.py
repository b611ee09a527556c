# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines, words and numbers of what kernels and programs write. Pure: no I/O here.

They end a line with a line feed, and separate words by blanks of ASCII (isspace(3) in the C
locale). Python's own methods also take U+2028, U+0085 and other characters for the end of a line,
U+2003 for a blank, and ``²`` for a digit. Whoever chooses a part of the text, such as the name of a
LUN or of a folder, could write lines and words of its own with these.
"""

from __future__ import annotations

import re

BLANKS = " \t\n\r\v\f"
_BETWEEN = re.compile(f"[{BLANKS}]+")


def lines(text: str) -> list[str]:
    """Its lines, without their line feeds."""
    return text.removesuffix("\n").split("\n") if text else []


def words(text: str) -> list[str]:
    """Its words. In names, /proc escapes only blanks and line feeds, so there ``split(" ")``."""
    return [word for word in _BETWEEN.split(text) if word]


def stripped(text: str) -> str:
    """The text without blanks at its ends."""
    return text.strip(BLANKS)


# Of kubectl exec, when the program has ended (CodeExitError of k8s.io/client-go/util/exec).
KUBECTL_ENDED = "command terminated with exit code "


def telling(text: str) -> list[str]:
    """The lines that a person has to read of a program that did not do its work."""
    # A terminal ends a line with a carriage return, too.
    said = [line for line in map(stripped, lines(text)) if line]
    # kubectl writes it behind what the program itself has said.
    said = [line for line in said if not line.startswith(KUBECTL_ENDED)] or said
    # A traceback ends with the error. Others begin with it, or say something before and behind it:
    # a shell of the locale, sudo of its rules, ssh of the connection.
    chosen = [] if said[:1] and said[0].startswith("Traceback") else said[:2]
    return [*chosen, *said[len(chosen) :][-1:]]


def is_number(text: str) -> bool:
    """It has only digits, at least one."""
    return text.isascii() and text.isdigit()

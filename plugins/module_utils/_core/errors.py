# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The errors that every part of the collection knows."""

from __future__ import annotations


class StorageOpsError(Exception):
    """What a module could not do, for the operator: the object, the reason, the next step.

    ``code``: one of codes.CODES. Each class has its own, and the one that raises may say another.
    """

    code = "evidence_unreadable"

    def __init__(self, message: str = "", code: str = "") -> None:
        super().__init__(message)
        if code:
            self.code = code


class BadOption(StorageOpsError):
    """An option that cannot be used."""

    code = "bad_option"


class Refused(StorageOpsError):
    """A value from a tenant, a node or the network that cannot be what it has to be."""

    code = "value_refused"


def code_of(error: BaseException) -> str:
    """The code of any error."""
    return error.code if isinstance(error, StorageOpsError) else "unexpected_error"


def words(error: BaseException) -> str:
    """What went wrong, for a message that says the object itself: without the name of a class,
    where the rest is clear without it.
    """
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, (StorageOpsError, OSError, ValueError)) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"

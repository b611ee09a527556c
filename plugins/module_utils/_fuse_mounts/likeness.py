# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a new mount may replace a dead one: same source, same options. Pure: no I/O here.

The pods must get back what they had: never the data of another volume, never more than they could
reach before.
"""

from __future__ import annotations

import re

from .._core.untrusted import masked
from .._node import kubelet
from .._node.kubelet import VolumeNote
from .._node.mounts import Mount
from . import recipes as fuse_recipes
from .model import FuseState, Recovery, printable
from .stacks import answers_at

# Options that decide who may do what in a FUSE filesystem (Documentation/filesystems/fuse.rst;
# shown by fs/fuse/inode.c fuse_show_options).
KEPT = ("allow_other", "default_permissions")
# SELinux labels of the whole filesystem. One with a comma, as a label with categories has, is
# quoted (security/selinux/hooks.c selinux_sb_show_options).
_CONTEXT = re.compile(r'(?:^|,)((?:fs|def|root)?context=(?:"[^"]*"|[^,"]*))')


def renewed_by_driver(
    state: FuseState, recovery: Recovery, notes: list[VolumeNote]
) -> Mount | None:
    """The staging mount of the same volume, if it answers: then its driver has remounted it."""
    taken = {target.point for target in recovery.targets}
    for note in notes:
        # The note names driver and handle, and these the only two paths that the kubelet would use.
        for point in kubelet.staging_points(note, state.notes, state.root):
            layers = state.table.layers(point)
            # Of another type, or a folder within: not what the driver mounts there.
            same = answers_at(state, point, recovery.devices) and (
                layers[-1].root,
                layers[-1].fstype,
            ) == ("/", recovery.fstype)
            # A staging mount that is itself to be replaced cannot be what replaces it.
            if same and point not in taken:
                return layers[-1]
    return None


def origin_of(mount: Mount) -> str:
    """The bucket or remote folder that mountinfo names as the source; empty if it names none.

    FUSE servers choose the source freely (mount.fuse3(8), fsname), and many give the name of their
    program, which says nothing about the volume.
    """
    recipe = fuse_recipes.for_fstype(mount.fstype)
    nothing = {"", "none", "fuse", mount.fstype, mount.fstype.partition(".")[2]}
    # The name before the colon is a section of a configuration file; ours differs from the
    # driver's.
    source = mount.source.rpartition(":")[2] if recipe and recipe.names_remote else mount.source
    # A bucket without a folder may end in a colon or slash.
    return "" if source in nothing else source.rstrip("/:")


def unlike(recovery: Recovery, mount: Mount) -> str:
    """Why a new mount cannot replace the dead ones, judged by mountinfo; empty if it can."""
    # If no new mount was made at that path, the old one is found there.
    if mount.device in recovery.devices:
        return "the new mount is of the dead filesystem"
    # Another program may write its source differently, so sources of different types say nothing.
    if mount.fstype == recovery.fstype and recovery.origin and origin_of(mount) != recovery.origin:
        new = origin_of(mount) or mount.source
        return (
            f"the new mount is of {printable(masked(new))!r}, the dead one was of "
            f"{printable(masked(recovery.origin))!r}"
        )
    has = {*mount.super_options, *contexts(mount)}
    # More options than before are fine; less would let users in, or keep pods out.
    lost = [option for option in recovery.kept if option not in has]
    return f"the new mount lacks {' and '.join(lost)}, which the dead one had" if lost else ""


def contexts(mount: Mount) -> tuple[str, ...]:
    """The SELinux labels that a filesystem was mounted with, as mount options."""
    # mountinfo separates options by commas, and a quoted label may contain some.
    return tuple(_CONTEXT.findall(",".join(mount.super_options)))

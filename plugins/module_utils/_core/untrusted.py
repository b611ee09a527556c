# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tenants, nodes and the network write, and what may become of it. Pure: no I/O here.

A Secret, an event, an annotation, a bucket's name, the name of a process: the collection runs as
root on data that less trusted people shape. Here, and only here, such a value becomes a word of a
command (``word``), a value in a configuration file (``config_value``), a name for the API or for a
command that is printed (``name``, ``command_line``), or a text to show (``shown``); or it is
refused. Each kind of value has one list of what is allowed. docs/security.md says who may write
what.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import Refused

# A refusal shows a value that is not longer.
_SAMPLE = 200
# How long a text to show may be. Longer ones are cut, with a count.
MAX_SHOWN = 4_000
# How many of a list are shown.
MAX_FEW = 5
# PATH_MAX (include/uapi/linux/limits.h): no option that names a file is longer.
MAX_WORD = 4_096

# Of an API object, what is nested deeper is not read.
_MAX_DEPTH = 100
# The last is the quote of a text that is not whole.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}"]', re.DOTALL)
_decode = json.JSONDecoder().raw_decode

# RFC 1123 subdomain (section 2.1; each label has at most 63 characters, RFC 1035, section 2.3.4),
# as the names of nearly all Kubernetes objects are (apimachinery's IsDNS1123Subdomain).
_MAX_NAME = 253
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,{_MAX_NAME}}}\Z){_LABEL}(?:\.{_LABEL})*")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# An address, a range or a client as Ceph's blocklist has them: 10.0.0.1:0/123, [2001:db8::1]:0/0.
_ADDRESS = re.compile(r"(?=.*[0-9])\[?[0-9a-fA-F]*[:.][0-9a-fA-F:.]*\]?(?::[0-9]+)?(?:/[0-9]+)?")
_PLACE = re.compile(r"{(\w+)}", re.ASCII)

# By placeholder, what a command to be copied may have there that is more than a name: a mount point
# below the kubelet's folder, and an NFS share. No blank, comma, quote or brace: Ansible splits at
# the first two, and takes the others for a quoted text or a template.
_PARTS = r"(?:/[A-Za-z0-9][A-Za-z0-9._~-]*)"
_LONGER = {
    "path": re.compile(rf"{_PARTS}+"),
    "share": re.compile(rf"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):(?:/|{_PARTS}+/?)"),
}

NO_COMMAND = "(no command is shown, since a name in it is none that Kubernetes gives)"

# By kind, what a word may be. Each is one word for every program: no blank, no quote, no comma,
# since s3fs and other FUSE programs take a comma within ``-o`` for the beginning of another option.
_WORDS = {
    "region": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"),
    "endpoint": re.compile(
        r"(?:https?://)?(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})"
        r"(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]{0,1000})?"
    ),
    # A bucket, a folder in one, an address of a metadata engine, a folder of the node.
    "source": re.compile(r"[\w/][\w./:@+=~%!()&?-]{0,2000}", re.UNICODE),
    "access_key": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+=/-]{0,255}"),
    # Made by us.
    "path": re.compile(r"/[A-Za-z0-9._/-]{0,1000}"),
}
# In place of a credential that was taken out of a text.
HIDDEN = "(hidden)"
# Names of options and attributes whose values are secrets: passwd=, sftp-pass=, session_token=; the
# key of SSE-C, as rclone (--s3-sse-customer-key and the same with -base64, rclone.org/s3) and
# geesefs (--sse-c) take it; and the like.
_SECRET_NAME = re.compile(
    r"passw(?:or)?d$|(?:^|[_.-])(?:pass|passphrase|token)$|secret"
    r"|(?:customer|account|private|encryption)[_.-]?key(?:[_.-](?:base64|pem))?$"
    r"|(?:^|[_.-])sse[_.-]?c$",
    re.ASCII | re.IGNORECASE,
)
# The fifth part of its value is the password of the private key (s3fs(1)).
_CERTIFICATE, _PASSWORD_AT = "ssl_client_cert", 4
# Not for a folder above the bucket's, whatever a server makes of it.
_UPWARDS = re.compile(r"(?:^|[/:])\.\.(?:/|$)")

# By the style of a file, what a secret in it may hold.
_SECRETS = {
    # goconfig (rclone) takes a value that begins with ` or three quotes for one of several lines,
    # and puts in %(name)s. Other readers of such files take quotes and comments apart.
    "ini": re.compile(r"(?!.*%\()[!$-&(-:<-Z^_a-z{|}~]+"),
    # Fields separated by colons (s3fs-fuse, src/s3fs_cred.cpp, ParseS3fsPasswdFile).
    "fields": re.compile(r"[!-9;-~]+"),
    # Whoever reads it: no shell takes any of it for anything but itself.
    "plain": re.compile(r"[A-Za-z0-9%+,./:=@^_-]+"),
}


def problem(kind: str, text: str) -> str:
    """Why a text cannot be a word of this kind; empty if it can.

    Kinds: region, endpoint, source, access_key, path; option (any printable text).
    """
    if kind == "option":
        good = text.isprintable() and len(text) <= MAX_WORD
    else:
        good = bool(_WORDS[kind].fullmatch(text)) and not _UPWARDS.search(text)
    sample = "" if kind == "access_key" else f" {sample_of(text)}"
    return "" if good else f"the {kind}{sample} cannot be one"


def word(kind: str, text: str) -> str:
    """The text, which is one word of a command line. Raises Refused."""
    why = problem(kind, text)
    if why:
        raise Refused(why)
    return text


def config_value(style: str, key: str, text: str) -> str:
    """A secret as a file has it, so that it is read as what it is. Raises Refused, which never
    shows it.

    Styles: ``ini``, ``fields`` (separated by colons), ``plain`` (a line for an unknown reader).
    """
    if not _SECRETS[style].fullmatch(text):
        raise Refused(f"the credential {key} has characters that no credentials file can hold")
    return text


def is_name(text: str) -> bool:
    """It is what Kubernetes takes for the name of an object."""
    return bool(_NAME.fullmatch(text))


def name(what: str, text: str) -> str:
    """The text, which is a name of the API. Raises Refused that says ``what`` is none."""
    if not is_name(text):
        raise Refused(f"the {what} {sample_of(text)} is not a valid Kubernetes name")
    return text


def is_plain(text: str) -> bool:
    """A shell and Ansible take it as it is: a name of the API, or of an inventory."""
    return len(text) <= _MAX_NAME and bool(_PLAIN.fullmatch(text))


def command_line(template: str, **names: str | Sequence[str]) -> str:
    """A command to be copied, with names put in for ``{placeholders}``; empty if one is no name.

    What a node or a tenant wrote would be run by the operator's shell. Allowed are plain names, and
    addresses as Ceph spells them; for ``{path}`` and ``{share}`` these, quoted. Several of them are
    joined by commas. Other braces stay as they are.
    """
    given = {key: [text] if isinstance(text, str) else list(text) for key, text in names.items()}
    for key in set(_PLACE.findall(template)) & set(given):
        if not given[key] or not all(_fits(key, text) for text in given[key]):
            return ""

    def filled(match: re.Match[str]) -> str:
        if match[1] not in given:
            return match[0]
        words = ",".join(given[match[1]])
        return shlex.quote(words) if match[1] in _LONGER else words

    return _PLACE.sub(filled, template)


def _fits(place: str, text: str) -> bool:
    """The text may stand at this place of a command."""
    if place in _LONGER:
        return len(text) <= MAX_WORD and bool(_LONGER[place].fullmatch(text))
    return is_plain(text) or bool(_ADDRESS.fullmatch(text))


def shown_command(template: str, **names: str | Sequence[str]) -> str:
    """The same within a sentence: without a command it says so."""
    return command_line(template, **names) or NO_COMMAND


def shown(text: str, most: int = MAX_SHOWN, lines: bool = False) -> str:
    """A text for people: what a terminal would act on, or what hides or turns text, is escaped.

    ``lines``: line breaks and tabs stay.
    """
    left = len(text) - most
    if left > 0:
        text = f"{text[:most]} (+{left} characters)"
    if text.isprintable():
        return str(text)  # a str itself: Ansible may not serialize what is only derived from it
    # Control, format and private characters and lone surrogates are not printable (Python,
    # str.isprintable), among them what turns the direction of writing (Unicode Annex 9).
    kept = "\n\t" if lines else ""
    return "".join(char if char.isprintable() or char in kept else _escaped(char) for char in text)


def few(texts: Iterable[str], between: str = ", ") -> str:
    """The first of a list that others can lengthen, each text once, and how many more there are.

    A person reads it in one line of a job's output, with what comes behind it.
    """
    distinct = list(dict.fromkeys(texts))
    left = len(distinct) - MAX_FEW
    return between.join(distinct[:MAX_FEW]) + (f" (+{left} more)" if left > 0 else "")


def clean(value: Any, most: int = MAX_SHOWN) -> Any:
    """A result with every text in it shown, keys as well; ``most``: characters of each."""
    if isinstance(value, str):
        return shown(value, most, lines=True)
    if isinstance(value, dict):
        return {clean(key, most): clean(item, most) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item, most) for item in value]
    return value


def from_json(text: str) -> Any:
    """What a text of others says. Raises ValueError, also for one with too many brackets."""
    try:
        return json.loads(text)
    except RecursionError as error:
        # A tenant's annotation of thousands of brackets must not end a run about others.
        raise ValueError("it is nested too deep") from error


def read_object(text: bytes) -> Any:
    """What an answer of the API server says; see ``read_value``. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        decoded = text.decode()
        flat, end = _flat(decoded, 0)
        return json.loads(flat + decoded[end:])


def read_value(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins there, and its end; what is nested too deep in it is null.

    Raises json.JSONDecodeError, also for a value that is not whole.
    """
    # managedFields of an object may be nested thousands deep, as its owner wants. An object that
    # is left out for that would look as if it were not there.
    try:
        return _decode(text, at)
    except RecursionError:
        flat, end = _flat(text, at)
        return _decode(flat)[0], end


def _flat(text: str, at: int) -> tuple[str, int]:
    """The JSON value that begins there, with null for what is nested too deep; and its end."""
    parts, depth = [], 0
    for token in _TOKEN.finditer(text, at):
        if token[0] in ("[", "{"):
            depth += 1
            if depth == _MAX_DEPTH + 1:
                parts.append(f"{text[at : token.start()]}null")
        elif token[0] in ("]", "}"):
            if depth == _MAX_DEPTH + 1:
                at = token.end()
            depth -= 1
            if depth == 0:
                return "".join([*parts, text[at : token.end()]]), token.end()
        elif token[0] == '"':
            break
    raise json.JSONDecodeError("it is not whole", text, len(text))


def masked(text: str) -> str:
    """A text without the password before the host in an address. A user's name alone is none."""

    def hide(match: re.Match[str]) -> str:
        scheme, _separator, rest = match[0].partition("://")
        user, at, host = rest.rpartition("@")
        _name, colon, password = user.partition(":")
        return f"{scheme}://********@{host}" if at and colon and password else match[0]

    # Word by word, since a pattern that begins at each :// takes quadratic time. Up to the last @:
    # a password may have one, too.
    return re.sub(r"\S+", hide, text, flags=re.ASCII)


def sample_of(text: str) -> str:
    """A refused value, quoted, without a password; of a long one only its length.

    What is cut could end before the sign by which a password is known.
    """
    return f"'{shown(masked(text))}'" if len(text) <= _SAMPLE else f"of {len(text)} characters"


def is_secret(name: str, value: str) -> bool:
    """An option or attribute of this name has a secret as its value."""
    # passwd_file= and the like name a file; its path is no secret. So does load_sse_c (s3fs(1)).
    if not value or name.endswith("file") or name == "load_sse_c":
        return False
    parts = value.split(":", _PASSWORD_AT)
    certified = name.lower() == _CERTIFICATE and len(parts) > _PASSWORD_AT and parts[-1] != ""
    return certified or bool(_SECRET_NAME.search(name))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")

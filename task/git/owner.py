"""Whether git trusts a repository on this machine: it runs the hooks that lie there, so not one of another user.

Git checks this itself since 2.39.4, but not in every command and version; what it would say is said here for all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal

_GITFILE = "gitdir: "
Local = Literal["", "ours", "safe"]  # no repository on this machine; one of ours; a trusted one of another user


def owned_by_another(path: str, environ: Mapping[str, str]) -> str:
    """Return the folder of a repository that belongs to another user; "" if it is ours, or is no repository."""
    us = {os.geteuid()}
    if us == {0} and environ.get("SUDO_UID", "").isdigit():  # like git: root by sudo still counts as that user
        us.add(int(environ["SUDO_UID"]))
    for place in (f"{path}/.git", path, f"{path}.git/.git", f"{path}.git"):
        parts = [place]
        with suppress(OSError, ValueError):
            if os.path.isfile(place):  # a submodule, or a linked work tree
                with open(place, encoding="utf-8") as file:
                    where = file.read(4096).removeprefix(_GITFILE).rstrip("\n")
                parts.append(os.path.join(os.path.dirname(place), where))
            if os.path.exists(f"{parts[-1]}/HEAD") or len(parts) > 1:
                others = [part for part in parts if os.stat(part).st_uid not in us]
                return os.path.realpath(parts[-1]) if others else ""
    return ""


def is_safe(folder: str, said: Sequence[str], home: str) -> bool:
    """Tell whether one of the `safe.directory` settings covers that folder, or the work tree that it belongs to."""
    safe = False
    for value in said:
        known = os.path.join(home, value[2:]) if value.startswith("~/") else value
        if not value:  # an empty one cancels those before it
            safe = False
        elif known == "*" or known.rstrip("/") in (folder, folder.removesuffix("/.git")):
            safe = True
        else:
            safe = safe or (known.endswith("/*") and folder.startswith(known[:-1]))
    return safe

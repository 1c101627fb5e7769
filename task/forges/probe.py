"""Asks a host which forge it is: addresses that each forge answers to anyone, and no login."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from task.errors import ForgeError, UnreachableError
from task.forges.address import Known
from task.forges.places import HINT
from task.forges.table import FORGES
from task.git.remote_url import RemoteUrl
from task.http import Http, Limits, NoAnswerError

LIMITS = Limits(connect=5.0, silence=10.0, total=15.0, size=1024 * 1024, tries=1)


def probe(
    remote: RemoteUrl, more_ca: str = "", log: Callable[[str], None] = lambda _line: None, limits: Limits = LIMITS
) -> Known:
    """Return which forge a host is, and where its web begins (GitLab and others may be below a path).

    Raises `ForgeError` if the host is of another kind, and `UnreachableError` if it does not answer.
    """
    http = Http(remote.root, more_ca=more_ca, log=log, limits=limits)
    answered = False
    folders = [""]
    if not remote.ssh and len(remote.parts) > 2:  # there is a folder before owner and repository
        folders.append(f"/{quote(remote.parts[0])}")
    try:
        for folder in folders:
            for forge in FORGES.values():
                if forge.question is None:
                    continue
                path, is_it = forge.question
                try:
                    answer = http.ask("GET", f"{folder}{path}")
                except NoAnswerError:
                    continue
                answered = True
                if is_it(answer):
                    return Known(forge.name, f"{remote.root}{folder}")
    finally:
        http.close()
    if not answered:
        raise UnreachableError(
            f"{remote.host} does not show which kind of Git host it is: it does not answer over https",
            hint=f"{HINT}; or --ca-file",
        )
    hint = HINT.replace("NAME or --forge NAME=https://HOST", f"NAME={remote.root}")
    raise ForgeError(f"which kind of Git host {remote.host} is, cannot be seen from outside", hint=hint)

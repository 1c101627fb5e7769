"""Chooses the error for a registry that refuses a request, or does not answer."""

from __future__ import annotations

import re

from task.errors import RegistryAccessError, RegistryDownError, RegistryError
from task.http import NoAnswerError, Response, retry_after
from task.registry.bearer_tokens import HOW_TO_LOG_IN
from task.registry.docker_config import HUB, RegistryLogin

_CODE = re.compile(r"[A-Z][A-Z_]{1,40}", re.ASCII)
_HUB_LIMIT = (
    "Docker Hub counts pulls: by account with a login, by address without one; give a login, or ask a mirror by "
    "registries.conf"
)


def no_answer(name: str, error: NoAnswerError) -> RegistryError:
    """Return the error for a registry that could not be reached."""
    if error.kind == "tls":
        return RegistryAccessError(
            f"registry {name}: {error.message}",
            hint="give its certificate authority: --ca-file, or ca_file in registries.conf",
        )
    if error.kind in ("redirect", "large"):
        return RegistryError(f"registry {name}: {error.message}", hint="check the host in the image's name")
    return RegistryDownError(f"registry {name}: {error.message}", hint="run it again")


def refused(name: str, repository: str, answer: Response, login: RegistryLogin | None) -> RegistryError:
    """Return the error for an answer that is neither success nor "not found"."""
    status, code = answer.status, _code(answer)
    shown = f"{status} {code}" if code else str(status)
    if status == 429 or code == "TOOMANYREQUESTS":  # the code in OCI's specification
        later = retry_after(answer)
        wait = "" if later is None else f", and wants us to wait for {later:.0f} s"
        hint = _HUB_LIMIT if name == HUB else "ask less often (limit in registries.conf), or run it again later"
        return RegistryDownError(f"registry {name} limits the rate of requests ({shown}){wait}", hint=hint)
    if status >= 500:
        return RegistryDownError(f"registry {name} answered {shown}", hint="run it again")
    if status not in (401, 403):
        return RegistryError(
            f"registry {name} answered {shown} when asked for {repository}", hint="check the host in the image's name"
        )
    # Registries hide private repositories: a missing one is a 401 or 403 as well. So the messages name both cases.
    if login is None:
        return RegistryAccessError(
            f"registry {name} does not allow anonymous access to {repository} ({shown}), or has no such repository",
            hint=HOW_TO_LOG_IN,
        )
    where = f" (it is from {login.origin})" if login.origin else ""
    return RegistryAccessError(
        f"registry {name} does not accept the login for {repository} ({shown}), or has no such repository",
        hint=f"renew the login, or let it read the repository{where}",
    )


def _code(answer: Response) -> str:
    """Return the registry's error code, or "".

    Its message is not shown, because it may contain anything, even a token.
    """
    try:
        code = answer.json()["errors"][0]["code"]
    except (ValueError, LookupError, TypeError):
        return ""
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""

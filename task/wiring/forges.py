"""Creates the clients for the run's Git hosts, with their tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing

from task.errors import Malformed, UsageError
from task.forges.opened import Forges
from task.forges.places import forge_option, known_to
from task.forges.tokens import Tokens, check_token_file
from task.git.credentials import certificates
from task.git.environment import Login
from task.git.names import rewritten
from task.output.log import Log
from task.settings import Settings


def forges_of(
    settings: Settings,
    environ: Mapping[str, str],
    log: Log,
    opened: ExitStack,
    logins: Callable[[str], Sequence[Login]],
) -> Forges:
    """Return the clients for the run's Git hosts (forges). `logins` returns the Git credentials for
    a URL. `opened` closes the clients at the end of the run.

    Raises `UsageError` immediately for an invalid `--forge`, or if the token file does not exist.
    The token itself is checked when it is first needed.
    """
    options = settings.forge
    try:
        forge = forge_option(options.forge) if options.forge else None
    except Malformed as error:
        raise UsageError(f"--forge: {error.message}", hint=error.hint) from None
    if options.forge_token_file:
        check_token_file(options.forge_token_file)

    def tokens() -> Tokens:
        """Return the tokens. They are read when the first one is needed."""
        return Tokens(
            environ,
            logins,
            file=options.forge_token_file,
            user=options.forge_username,
            forge=forge,
            scope=settings.access.git_credentials_url,
        )

    from_option = (forge,) if forge else ()
    forges = Forges(
        (*from_option, *known_to(environ)),
        tokens,
        certificates(settings.access.ca_file),
        reached=lambda repo: rewritten(repo, settings.transport.rewrite_url),
        log=lambda line: log("debug", line),
        warn=lambda sentence: log("warning", sentence),
    )
    return opened.enter_context(closing(forges))

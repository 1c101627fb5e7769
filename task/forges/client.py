"""What all forges share: their Protocol, the HTTP client, and the steps that never open two requests for a branch.

A request belongs to a head branch of the repository itself: requests from forks may bear any branch's name, and
never count. Whatever fails here, the pushed branch stays, and running again completes the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import urljoin

from task import shutdown
from task.errors import Outpaced, TaskError, UnreachableError
from task.forges.address import ForgeAddress
from task.forges.comments import CommentApi
from task.forges.content import overtaken
from task.forges.deployments import DeploymentApi
from task.forges.proposal import described
from task.forges.refusal import STAYS, limited, refused, unanswered, words
from task.git.remote_url import RemoteUrl
from task.http import Http, Limits, Login, NoAnswerError, Response
from task.model import Proposal, Proposed
from task.secret import Secret
from task.urls import origin

LONGEST_WAIT = 30.0  # seconds that a limit is waited out; a longer one is an error
# Anybody may name a forge by an Application's repoURL. A page of a hundred requests with long texts has 10 MB at most.
LIMITS = Limits(total=60.0, size=16 * 1024 * 1024, values=1_000_000, slow=600.0)
_TURNS = 3
_RACES = 5
_MOVED = (301, 307, 308)


class ForgeApi(Protocol):
    """One repository on its forge."""

    def find(self, base: str, head: str) -> Proposed | None:
        """The open request from `head` into `base`, else the newest closed or merged one; None if there was none.

        Its state is "gone" where the forge has closed it because its branch was deleted, as far as the forge tells.
        """

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """Open the request, or bring the open one up to date; there is never a second one.

        `found` is what `find` said before the push: nobody has to look again. Raises `Outpaced` if the request was
        merged meanwhile: what is left to propose has to be decided on the new tip.
        """

    def state(self, number: str) -> Proposed:
        """How one request is doing: open, merged (with its merge commit) or closed."""

    def close(self) -> None:
        """Connections are closed."""


@dataclass(frozen=True)
class ForgeToken:
    """A token for the API. `source` says where it was given, for messages."""

    secret: Secret = Secret("")
    user: str = ""  # of a login that is a pair (Bitbucket, Azure); "" is a bare token
    source: str = ""  # "IMAGE_UPDATE_FORGE_TOKEN", "--forge-token-file", …


@dataclass(frozen=True)
class Reach:
    """How one repository's forge is reached; every forge is made from this alone."""

    place: ForgeAddress
    token: ForgeToken
    ca_file: str = ""
    log: Callable[[str], None] = lambda _line: None
    limits: Limits = LIMITS
    warn: Callable[[str], None] = lambda _sentence: None  # what people should know: the repository has moved


@dataclass(frozen=True)
class ForgeKind:
    """All that is known of one forge. Its file ends with it, and `task.forges.table` names it."""

    name: str  # as --forge names it
    client: Callable[[Reach], ForgeApi]
    comments: Callable[[Reach], CommentApi]
    # A repository's URL, and where the forge's web begins → the repository's place; the host is filled in later.
    place: Callable[[RemoteUrl, str], ForgeAddress]
    aliases: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # public ones
    host_ends: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # in the name of a host that it runs on: gitlab.example.com, my-gitea.example.com
    # An address that it answers to anybody, below its root, and whether an answer is its own.
    question: tuple[str, Callable[[Response], bool]] | None = None
    # {0} is the repository's page, {1} the base branch, {2} the head branch; of `commit` {1} the commit.
    compare: str = "{0}/compare/{1}...{2}"
    commit: str = "{0}/commit/{1}"
    deployments: Callable[[Reach], DeploymentApi] | None = None  # None: none are shown there


class Steps(Protocol):
    """What `settle` asks of a forge."""

    def find(self, base: str, head: str) -> Proposed | None:
        """As `ForgeApi.find`."""

    def create(self, proposal: Proposal) -> Proposed:
        """Open a request with everything. Raises `AlreadyThere` where the forge says that one is open."""

    def read(self, number: str) -> tuple[Proposed, Any]:
        """One request as it is now, and what the forge says of it."""

    def update(self, said: Any, proposal: Proposal) -> Proposed:
        """Give the open request this content; what is right already is not written again.

        `said` is the second half of what `read` gave. Raises `Overtaken` where it is open no longer.
        """

    def tip(self, head: str) -> str:
        """The commit that the head branch has now; "" if the forge does not say."""


class Overtaken(Exception):
    """Others changed the request since it was found: look again. Never leaves `settle`."""


class AlreadyThere(Exception):
    """The forge says that a request for this branch is open already. Never leaves `settle`."""

    def __init__(self, found: Proposed | None = None) -> None:
        super().__init__()
        self.found = found  # that request, where the forge names it


class Limited(Exception):
    """Why there is no answer: nothing was done, and asking again would not help."""


class Client:
    """One forge's API: waits out short limits, and answers with JSON or one of our named errors."""

    def __init__(
        self,
        reach: Reach,
        login: Login,
        needs: str,
        headers: dict[str, str] | None = None,
        repository: str = "",
        stays: str = STAYS,
    ) -> None:
        """`repository` is the path of the repository itself.

        For messages: `needs` is the permission that a token needs, `stays` what is done although a request failed.
        """
        self.reach = reach
        self.moved_to = ""  # the repository's page, where the forge says that it has another name by now
        self._needs, self._stays = needs, stays
        self._repository = repository
        self._moved: tuple[str, str] | None = None  # the beginnings of its addresses: as we know them, as they are
        self._http = Http(
            reach.place.api, login=login, ca_file=reach.ca_file, headers=headers, limits=reach.limits, log=reach.log
        )

    def ask(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: dict[str, Any] | None = None,
        json: Any = None,
        fine: tuple[int, ...] = (),
        again: bool | None = None,
    ) -> Response:
        """The answer to one request; `what` ends the sentence "could not …". `again`: as `Http.ask` takes it.

        A status of 300 and above, unless in `fine`, is raised as what `refused` makes of it.
        """
        shutdown.check()
        answer = self._patient(method, path, what, params=params, json=json, again=again)
        if answer.status < 300 or answer.status in fine:
            return answer
        raise self.refused(answer, what) from (None if limited(answer) is None else Limited())

    def json(self, method: str, path: str, what: str, **more: Any) -> Any:
        """As `ask`, and its JSON. Raises `UnreachableError` for an answer that is not JSON."""
        return self.parsed(self.ask(method, path, what, **more), what)

    def parsed(self, answer: Response, what: str) -> Any:
        """The answer's JSON. Raises `UnreachableError` for anything else."""
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise UnreachableError(
                f"{self.reach.place.host} answers with something that is not JSON: could not {what}",
                hint="check that this is the address of the Git host, then run it again",
            ) from None

    def refused(self, answer: Response, what: str) -> TaskError:
        """The error that an answer means."""
        place, token = self.reach.place, self.reach.token.secret
        return refused(
            answer, what, host=place.host, needs=self._needs, token=token, stays=self._stays, forge=place.forge
        )

    def words(self, answer: Response) -> str:
        """What the forge says in it, as a message may show it."""
        return words(answer, self.reach.token.secret)

    def close(self) -> None:
        """Connections are closed."""
        self._http.close()

    def _patient(self, method: str, path: str, what: str, **more: Any) -> Response:
        for turn in range(_TURNS):
            try:
                answer = self._redirected(method, path, **more)
            except NoAnswerError as error:
                raise unanswered(error, what, self._stays) from error
            wait = limited(answer)
            if wait is None or wait > LONGEST_WAIT or turn == _TURNS - 1:
                return answer
            shutdown.sleep(wait)
        raise AssertionError  # pragma: no cover - the last turn returns

    def _redirected(self, method: str, path: str, **more: Any) -> Response:
        """The answer, asked for at the repository's present address.

        A forge redirects requests for a repository that was renamed. Gitea answers POST and PATCH like that, too, with
        301 (GitHub: 307); GitLab refuses them (405). So what a redirect tells is kept for all that is asked later.
        """
        url = path if path.startswith("http") else f"{self.reach.place.api}{path}"
        if self._moved and url.startswith(self._moved[0]):
            url = f"{self._moved[1]}{url.removeprefix(self._moved[0])}"
        answer = self._http.ask(method, url, **more)
        if answer.status in _MOVED and self._learns(url, urljoin(url, answer.headers.get("Location", ""))):
            return self._redirected(method, path, **more)
        self._learns(url, answer.url)
        return answer

    def _learns(self, url: str, target: str) -> bool:
        """Whether a redirect says that the repository has another name: the same address but for its beginning."""
        url, target = url.partition("?")[0], target.partition("?")[0]
        if self._moved or url == target or origin(url) != origin(target):
            return False
        old, new = url.split("/"), target.split("/")
        while old and new and old[-1] == new[-1]:
            old.pop()
            new.pop()
        before, after = "/".join(old), "/".join(new)
        if before == url or not before.startswith(f"{self.reach.place.api}/"):
            return False
        self._moved = before, after
        self._tell_where()
        return True

    def _tell_where(self) -> None:
        """Say once where the repository is now. Addresses of an API may hold numbers: its page is asked for."""
        place = self.reach.place
        try:
            answer = self._redirected("GET", self._repository)
            shown = answer.json() if self._repository and answer.status == 200 else {}
            self.moved_to = str(shown.get("html_url") or shown.get("web_url") or "")
        except (NoAnswerError, ValueError, AttributeError):
            self.moved_to = ""
        where = self.moved_to or "another address"
        self.reach.warn(f"{place.web} has moved to {where}: write its present URL (repoURL, git-repository)")


def settle(steps: Steps, proposal: Proposal, found: Proposed | None) -> Proposed:
    """Open or update the request, while other runs may do the same: one request, with the text of its newest commit.

    `found`: what `find` said before the push. A request whose branch has moved on is left to the run that moved it;
    `head_commit` of the answer tells. Raises `Outpaced` if the request was merged since.
    """
    before = found
    for turn in range(_RACES):
        if found and found.state == "merged":  # the one that was to be updated, or one with the commit that is proposed
            was_open = before is not None and before.state == "open" and before.number == found.number
            if was_open or described(found.body) == described(proposal.body) != "":
                raise Outpaced(f"{found.url} was merged meanwhile")
        try:
            if found is not None and found.state == "open":
                return _brought_up_to_date(steps, found, proposal)
            return steps.create(proposal)
        except Overtaken:
            found = None
        except AlreadyThere as there:
            found = there.found
            shutdown.sleep(0.2 * turn)  # a list may lag behind
        except UnreachableError as error:  # whether it was opened is unknown: look, and try once more
            known = isinstance(error.__cause__, Limited) or (found is not None and found.state == "open")
            if known or turn or shutdown.code():
                raise
            found = None
        found = found or steps.find(proposal.base, proposal.head)
    raise UnreachableError(
        f"others keep changing the request for {proposal.head}, or the forge does not show it",
        hint="run it again: the branch stays",
    )


def _brought_up_to_date(steps: Steps, found: Proposed, proposal: Proposal) -> Proposed:
    ours = described(proposal.body)
    now, said = steps.read(found.number)
    if now.state != "open" or overtaken(found, now, proposal):
        raise Overtaken
    # Forges take their time to see a push, and some show twelve letters of a commit: only where a request does not
    # show ours, the branch itself is asked for.
    shown = now.head_commit != "" and ours.startswith(now.head_commit)
    if not shown and (newer := _moved(steps, ours, proposal.head)):
        return replace(found, head_commit=newer, note=MOVED)
    done = steps.update(said, proposal)
    if not (newer := _moved(steps, ours, proposal.head)):
        return replace(done, head_commit=ours or done.head_commit)
    if described(now.body) == newer:  # we wrote over the text of a newer commit: put it back
        done = steps.update(steps.read(found.number)[1], replace(proposal, title=now.title, body=now.body))
    return replace(done, head_commit=newer, note=MOVED)


MOVED = "a newer build was pushed to the branch meanwhile, and describes itself"


def _moved(steps: Steps, ours: str, head: str) -> str:
    """The branch's tip where it is no longer the commit that we describe; "" if it is, or nobody knows."""
    tip = steps.tip(head) if ours else ""
    return tip if tip != ours else ""

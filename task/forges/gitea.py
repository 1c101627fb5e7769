"""Pull requests on Gitea and Forgejo (API reference: /swagger.v1.json, /api/swagger)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from task.errors import ForgeError, RepositoryError, TaskError
from task.forges.client import Client, ForgeAddress, names_none, web_below
from task.forges.github import GitHubComments
from task.forges.host import AlreadyThere, Comment, ForgeKind, Host, Notes, missing
from task.forges.proposal import described, settled, wish
from task.forges.protection import listed, open_on_gitea
from task.git.hosts import RemoteUrl
from task.http import Response, basic
from task.model import Proposal, Proposed
from task.plain_data import dig, mappings
from task.retry import until
from task.urls import path_part

# Title prefixes of drafts: the first two are the default, the others are used if an instance is
# configured so.
DRAFTS = ("WIP:", "[WIP]", "Draft:", "[Draft]")
COLOR = "#5b6b7b"  # the color of labels that we create
_PAGE = 20
_PAGES = 25  # a request takes about 12 KB in a list, because it includes both repositories
_LABEL_PAGE = 50
_LABEL_PAGES = 10
_PAUSES = (
    0.5,
    1.0,
    2.0,
    4.0,
)  # seconds between attempts while Gitea is still checking for conflicts
_AT_ONCE = 1  # seconds between closing a request and deleting its branch, if the deletion closed it
_STYLES = (
    ("merge", "allow_merge_commits"), ("squash", "allow_squash_merge"), ("rebase", "allow_rebase"),
    ("rebase-merge", "allow_rebase_explicit"), ("fast-forward-only", "allow_fast_forward_only_merge"),
)  # fmt: skip


class GiteaClient(Client):
    """A client for Gitea's API."""

    repository = "/repos/{}/{}"
    page = ("html_url",)

    def login(self) -> Mapping[str, str]:
        """Like `Client.login`.

        Gitea does not accept a password as a token. With a username, it accepts both.
        """
        token = self.reach.token
        if token.user:
            return basic(token.user, token.secret)
        return {"Authorization": f"token {token.secret.reveal()}"}


class Gitea(Host):
    """A repository on Gitea or Forgejo."""

    connect = GiteaClient
    needs = (
        "use a token with write:repository and write:issue, from a user with write access to the"
        " repository"
    )
    auto_merge_after_push = "again"

    def newest(self, base: str, head: str) -> Proposed | None:
        """Like `Host.newest`.

        Gitea can return the request for a base and a head (since 1.22), but it may be any of
        several requests, usually the oldest. If there is none, or it is open, that is the result.
        Otherwise there may be a newer one: the list cannot be filtered by head, so search its
        newest 500 requests for ours. Also search for a base with a slash, because some proxies
        reject a slash in a path segment (Apache, without AllowEncodedSlashes).
        """
        what = f"find the pull request for {head}"
        path = f"{self._path}/pulls/{path_part(base)}/{quote(head)}"
        answer = self._client.json("GET", path, what, fine=(404,))
        pull = answer if _is_ours(answer, base, head) else None
        if pull is None and "/" not in base:
            return None
        if pull is None or pull["state"] != "open":
            params = {"state": "all", "base_branch": base}  # newest first
            for listed_pull in self._pages(f"{self._path}/pulls", what, params, _PAGE, _PAGES):
                if pull and dig(listed_pull, "number") == dig(pull, "number"):
                    break  # all others are older
                if _is_ours(listed_pull, base, head):
                    pull = listed_pull
                    break
        if pull is None:
            return None
        request = self.proposed(pull)
        is_branch_deleted = dig(pull, "head", "ref") != head
        if request.state == "closed" and is_branch_deleted and self._closed_by_gitea(pull):
            return replace(request, state="gone")
        return request

    def checked(self, number: str) -> Proposed:
        """Like `Host.checked`.

        A request also "cannot be merged" while Gitea is checking for conflicts, so wait for the
        check.
        """
        ask = partial(self.ask, number)
        pull = until(lambda request: not _is_stuck(request), ask(), ask, _PAUSES[:-1])
        stuck = _is_stuck(pull)
        note = f"it conflicts with {pull['base']['ref']}" if stuck else ""
        return replace(self.proposed(pull), conflicts=stuck, note=note)

    def ask(self, number: str) -> Any:
        """Like `Host.ask`."""
        return self._client.json("GET", f"{self._path}/pulls/{number}", "read the pull request")

    def proposed(self, pull: Any) -> Proposed:
        """Like `Host.proposed`."""
        merged = bool(pull.get("merged"))
        is_open = pull["state"] == "open"
        return Proposed(
            url=str(pull["html_url"]),
            number=str(pull["number"]),
            state="merged" if merged else ("open" if is_open else "closed"),
            title=str(pull["title"]).removeprefix(_draft_word(pull)),
            body=str(pull.get("body") or "").replace("\r\n", "\n"),
            head_commit=dig(pull, "head", "sha"),
            merge_commit=str(pull.get("merge_commit_sha") or "") if merged else "",
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Like `Host.branches`."""
        return dig(pull, "base", "ref"), dig(pull, "head", "label") or dig(pull, "head", "ref")

    def create(self, proposal: Proposal) -> Any:
        """Like `Host.create`."""
        draft_word = f"{DRAFTS[0]} " if proposal.draft else ""
        body = {
            "title": f"{draft_word}{proposal.title}",
            "body": proposal.body,
            "head": proposal.head,
            "base": proposal.base,
        }
        what = "open the pull request"
        answer = self._client.ask(
            "POST",
            f"{self._path}/pulls",
            what,
            json=body,
            fine=(409,),
        )
        if answer.status == 409:
            conflict = re.search(r"already exists .*\bissue_id: (\d+)", self._client.words(answer))
            if conflict:
                raise AlreadyThere(self.proposed(self.ask(conflict[1])))
            raise self._client.refused(answer, what)
        return self._client.parsed(answer, what)

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Like `Host.change`."""
        text = {"title": f"{_draft_word(pull)}{title}", "body": body}
        return self._write(str(pull["number"]), "update the pull request", text)

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Like `Host.complete`."""
        number = str(pull["number"])
        present_labels = (label["name"] for label in pull.get("labels") or ())
        labels = missing(proposal.labels, present_labels)
        if labels:
            with notes.tried("labels", "label", *labels):
                self._set_labels(number, labels)
        present_assignees = [user["login"] for user in pull.get("assignees") or ()]
        self._assign(number, proposal.assignees, present_assignees, notes)
        self._ask_reviewers(pull, proposal.reviewers, notes)
        request = self.proposed(pull)
        if proposal.auto_merge:
            with notes.tried("auto-merge", "auto-merge"):
                self._auto_merge(pull, request, proposal, notes)
        return request, pull

    def shut(self, pull: Any, body: str) -> None:
        """Like `Host.shut`."""
        self._write(
            str(pull["number"]),
            "close the pull request",
            {"body": body, "state": "closed"},
        )

    def is_open(self, name: str) -> bool:
        """Like `Host.is_open`."""
        path = f"{self._path}/branch_protections"
        found = self._client.json("GET", path, "read the branch protections")
        return open_on_gitea(listed(found), name)

    def tip(self, head: str) -> str:
        """Like `Host.tip`."""
        path = f"{self._path}/branches/{quote(head)}"
        branch = self._client.json("GET", path, "read the branch", fine=(403, 404))
        return dig(branch, "commit", "id")

    def _write(self, number: str, what: str, fields: Mapping[str, Any]) -> Any:
        """Change these fields of a request, and return Gitea's new data about it."""
        return self._client.json(
            "PATCH",
            f"{self._path}/pulls/{number}",
            what,
            json=fields,
            again=True,
        )

    def _pages(
        self,
        path: str,
        what: str,
        params: Mapping[str, Any],
        rows_each: int,
        pages: int,
        fine: tuple[int, ...] = (),
    ) -> Iterator[Any]:
        """Return the items of several pages.

        An instance may return shorter pages than requested; a header has the total.
        """
        received = 0
        for page in range(1, pages + 1):
            answer = self._client.ask(
                "GET",
                path,
                what,
                params={
                    **params,
                    "page": page,
                    "limit": rows_each,
                },
                fine=fine,
            )
            items = mappings(self._client.parsed(answer, what)) if answer.status < 300 else []
            yield from items
            received += len(items)
            if not items or str(received) == answer.headers.get("X-Total-Count"):
                return

    def _closed_by_gitea(self, pull: Mapping[str, Any]) -> bool:
        """Return whether Gitea closed a request because its branch was deleted, not because a
        person closed it.

        In that case, the request's timeline has both events, one right after the other, by the same
        person. There is no other sign: the request looks as if a person had closed it, and a push
        that deletes a branch later does not create an event.
        """
        path = f"{self._path}/issues/{pull['number']}/timeline"
        params = {"since": pull["closed_at"]}
        events = self._client.json(
            "GET",
            path,
            "read the request's timeline",
            params=params,
            fine=(403, 404),
        )
        endings = [
            event
            for event in mappings(events)
            if dig(event, "type") in ("close", "reopen", "delete_branch")
        ]
        last_two = endings[-2:]
        if [dig(event, "type") for event in last_two] != ["close", "delete_branch"]:
            return False
        closing, deletion = last_two
        if dig(closing, "user", "login") != dig(deletion, "user", "login"):
            return False
        closed_at = datetime.fromisoformat(dig(closing, "created_at"))
        deleted_at = datetime.fromisoformat(dig(deletion, "created_at"))
        return (deleted_at - closed_at).total_seconds() <= _AT_ONCE

    def _set_labels(self, number: str, names: list[str]) -> None:
        """Set labels by name, which also finds the organization's labels without permission to read
        them. Missing labels are created.

        Gitea silently ignores unknown names and names in a different case, and creating a label
        again creates a duplicate.
        """
        ignored = missing(names, self._add_labels(number, names))
        if not ignored:
            return
        known = self._known_labels(f"{self._path}/labels", ())
        known |= self._known_labels(f"/orgs/{path_part(self.place.project[0])}/labels", (403, 404))
        for name in ignored:
            if name.lower() not in known:
                label = {"name": name, "color": COLOR}
                self._client.ask("POST", f"{self._path}/labels", "create a label", json=label)
        self._add_labels(number, [known.get(name.lower(), name) for name in ignored])

    def _add_labels(self, number: str, names: list[str]) -> list[str]:
        """Add these labels to a request, and return the names of all its labels."""
        path = f"{self._path}/issues/{number}/labels"
        labels = self._client.json(
            "POST",
            path,
            "set labels",
            json={"labels": names},
            again=True,
        )
        return [dig(label, "name") for label in mappings(labels)]

    def _known_labels(self, path: str, fine: tuple[int, ...]) -> dict[str, str]:
        """Return the names of existing labels by their lowercase form."""
        labels = self._pages(path, "read the labels", {}, _LABEL_PAGE, _LABEL_PAGES, fine)
        return {dig(label, "name").lower(): dig(label, "name") for label in labels}

    def _assign(
        self,
        number: str,
        names: Iterable[str],
        present: Sequence[str],
        notes: Notes,
    ) -> None:
        """Add these names to the assignees. Gitea replaces the whole list each time."""
        assigned = list(present)

        def assign(more: list[str]) -> None:
            self._write(number, "assign people", {"assignees": [*assigned, *more]})
            assigned.extend(more)

        for name, error in _send_and_yield_rejected(missing(names, present), assign):
            notes.add(f"assignee {name}: {error.message}", "assignee", name)

    def _ask_reviewers(self, pull: Mapping[str, Any], names: Iterable[str], notes: Notes) -> None:
        """Request reviews from those who have not been requested yet. Teams are
        `organization/team`.
        """
        path = f"{self._path}/pulls/{pull['number']}/requested_reviewers"
        already_asked = [user["login"] for user in pull.get("requested_reviewers") or ()]
        already_asked += [team["name"] for team in pull.get("requested_reviewers_teams") or ()]

        def ask(reviewers: list[str]) -> None:
            body: dict[str, list[str]] = {}
            people = [name for name in reviewers if "/" not in name]
            if people:
                body["reviewers"] = people
            teams = [name.rpartition("/")[2] for name in reviewers if "/" in name]
            if teams:
                body["team_reviewers"] = teams
            self._client.ask("POST", path, f"ask {', '.join(reviewers)} to review", json=body)

        # Gitea returns a team's name without its organization
        wanted = [
            name
            for name in dict.fromkeys(names)
            if missing([name.rpartition("/")[2]], already_asked)
        ]
        for name, error in _send_and_yield_rejected(wanted, ask):
            notes.add(error.message, "reviewer", name)

    def _auto_merge(
        self,
        pull: Mapping[str, Any],
        request: Proposed,
        proposal: Proposal,
        notes: Notes,
    ) -> None:
        """Have Gitea merge the request once its checks pass, or a moment later if there are none.

        Gitea 1.26 accepts a commit id only for an immediate merge. A scheduled merge is for the
        branch's commit at the time the checks pass, and survives a newer push. So schedule it again
        for each build, unless a person has canceled it, and log the result.
        """
        repo = pull["base"].get("repo") or {}
        allowed = [style for style, setting in _STYLES if repo.get(setting)]
        style = repo.get("default_merge_style") or "merge"
        body = {
            "Do": style if style in allowed or not allowed else allowed[0],
            "merge_when_checks_succeed": True,
            "head_commit_id": described(proposal.body) or request.head_commit,
            "delete_branch_after_merge": self.ours_to_delete(proposal),
        }
        host = self.place.host
        path = f"{self._path}/pulls/{request.number}/merge"
        what = "turn on auto-merge"
        fine = (403, 404, 405, 409, 422)
        again = wish("auto-merge") in settled(request.body)
        if again:
            canceled = self._client.ask("DELETE", path, "set auto-merge again", fine=(404,))
            if canceled.status == 404:  # a person has canceled it before
                return
        ask = partial(self._client.ask, "POST", path, what, json=body, fine=fine)
        # Gitea returns "try again later" while it is still checking for conflicts.
        answer = until(
            lambda answer: b"try again later" not in answer.body.lower(),
            ask(),
            ask,
            _PAUSES,
        )
        if answer.status >= 300 and b"already scheduled" not in answer.body:
            notes.add(
                f"{host} cannot merge it automatically: {self._client.words(answer)}",
                "auto-merge",
            )
        elif again:
            notes.add(
                f"auto-merge was set again; {host} merges the branch's latest commit when its"
                " checks pass"
            )


class GiteaComments(GitHubComments):
    """Comments on Gitea and Forgejo pull requests, which are written as on GitHub."""

    connect = GiteaClient
    needs = (
        "use a token with write:issue and read:user, from a user with write access to the"
        " repository"
    )

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Like `Comments.marked`. Gitea returns all comments at once, oldest first."""
        path = f"{self._path}/issues/{request}/comments"
        for comment in reversed(mappings(self._client.json("GET", path, "find the comment"))):
            if (
                self.holds(dig(comment, "body"), mark)
                and dig(comment, "user", "id") == self._client.me
            ):
                yield Comment(
                    dig(comment, "id"),
                    dig(comment, "body"),
                    dig(comment, "html_url"),
                )


def _is_ours(pull: Any, base: str, head: str) -> bool:
    """Return whether the head branch is in the repository itself. A fork's branch may have any
    name. After the branch is deleted, `head.ref` is `refs/pull/N/head`, and only `head.label` has
    the branch's name (Gitea 1.26).
    """
    repository = dig(pull, "base", "repo_id")
    if repository == "" or dig(pull, "head", "repo_id") != repository:
        return False
    head_names = (dig(pull, "head", "ref"), dig(pull, "head", "label"))
    return head in head_names and dig(pull, "base", "ref") == base


def _is_stuck(pull: Mapping[str, Any]) -> bool:
    """Return whether a request cannot be merged now: it conflicts with its base, or Gitea has not
    checked it yet.
    """
    return pull["state"] == "open" and pull.get("mergeable") is False and not pull.get("draft")


def _draft_word(pull: Mapping[str, Any]) -> str:
    """Return the title's draft prefix with the spaces after it, or "" if the request is not a
    draft.
    """
    if not pull.get("draft"):
        return ""
    title = str(pull["title"])
    for word in DRAFTS:
        if title.lower().startswith(word.lower()):
            rest = title[len(word) :].lstrip()
            return title[: len(title) - len(rest)]
    return ""


def _send_and_yield_rejected(
    names: list[str],
    send: Callable[[list[str]], None],
) -> Iterator[tuple[str, TaskError]]:
    """Send all names at once, or one by one if that fails: Gitea rejects all names if one is
    unknown. Yield each rejected name with its error.
    """
    if len(names) > 1:
        with suppress(ForgeError, RepositoryError):
            send(names)
            return
    for name in names:
        try:
            send([name])
        except (ForgeError, RepositoryError) as error:
            yield name, error


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Return the two parts of a project. Anything before these parts is Gitea's own path."""
    if len(remote.parts) < 2:
        raise names_none("Gitea", "https://gitea.example.com/owner/repository")
    root = web_below(root, remote.parts[:-2])
    return ForgeAddress(
        "gitea",
        "",
        f"{root}/api/v1",
        remote.parts[-2:],
        web_below(root, remote.parts[-2:]),
    )


def _is_it(answer: Response) -> bool:
    """Recognize a Gitea that requires sign-in (REQUIRE_SIGNIN_VIEW) by its error message."""
    data = answer.mapping()
    if answer.status in (401, 403):
        return str(data.get("message")).startswith("Only signed in user is allowed to call APIs")
    return answer.status == 200 and isinstance(data.get("version"), str)


KIND = ForgeKind(
    name="gitea",
    aliases=("forgejo",),
    hosts=("gitea.com", "codeberg.org"),
    words=("gitea", "forgejo"),
    client=Gitea,
    place=_place,
    question=("/api/v1/version", _is_it),
    comments=GiteaComments,
)

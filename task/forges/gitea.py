"""Pull requests on Gitea and Forgejo (API reference: /swagger.v1.json, /api/swagger)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

from task.errors import ForgeError, RepositoryError, TaskError
from task.forges.client import Client, ForgeAddress, no_repository_error, web_below
from task.forges.github import GitHubComments
from task.forges.host import AlreadyThere, Comment, ForgeKind, Host, Notes, missing
from task.forges.proposal import applied_wishes, described, wish_key
from task.forges.protection import open_on_gitea, rules_in
from task.git.hosts import RemoteUrl
from task.http import Response, basic
from task.model import Proposal, Proposed
from task.plain_data import dig, mappings
from task.retry import until
from task.urls import path_part

# Title prefixes that mark drafts. The first two are the defaults; an instance may be configured to
# use the others.
DRAFTS = ("WIP:", "[WIP]", "Draft:", "[Draft]")
COLOR = "#5b6b7b"  # the color of labels that we create
_PAGE = 20
_PAGES = 25  # each request in a list takes about 12 KB, because it includes both repositories
_LABEL_PAGE = 50
_LABEL_PAGES = 10
# seconds between attempts while Gitea is still checking for conflicts
_PAUSES = (0.5, 1.0, 2.0, 4.0)
_AT_ONCE = 1  # maximum seconds from closing to deletion if the deletion closed the request
_STYLES = (
    ("merge", "allow_merge_commits"), ("squash", "allow_squash_merge"), ("rebase", "allow_rebase"),
    ("rebase-merge", "allow_rebase_explicit"), ("fast-forward-only", "allow_fast_forward_only_merge"),
)  # fmt: skip


class GiteaClient(Client):
    """A client for Gitea's API."""

    repository = "/repos/{}/{}"
    page = ("html_url",)

    def login(self) -> Mapping[str, str]:
        """Return the authentication header: Basic with a username, else the token.

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
        """Return the open pull request from the branch `head` into the branch `base`. If there is
        none, return the newest closed or merged one. If there is no request at all, return None.

        The request's state is "gone" if Gitea closed it because its branch was deleted.
        """
        pull = self._newest_pull(base, head)
        if pull is None:
            return None
        request = self.to_proposed(pull)
        # After a branch is deleted, Gitea reports `refs/pull/N/head` instead of the branch's name.
        is_branch_deleted = dig(pull, "head", "ref") != head
        if request.state == "closed" and is_branch_deleted and self._closed_by_gitea(pull):
            return replace(request, state="gone")
        return request

    def _newest_pull(self, base: str, head: str) -> Any:
        """Return Gitea's data about the open pull request from `head` into `base`. If there is
        none, return the data about the newest closed or merged one. If there is no request at all,
        return None.
        """
        # Gitea can return a request by its base and head (since 1.22). If there are several such
        # requests, it returns one of them, usually the oldest.
        what = f"find the pull request for {head}"
        path = f"{self._path}/pulls/{path_part(base)}/{quote(head)}"
        response = self._client.json("GET", path, what, expected=(404,))
        pull = response if _is_ours(response, base, head) else None
        # If Gitea found no request, there is none, so do not search the list. But if the base
        # contains a slash, a proxy may have rejected the query (Apache, without
        # AllowEncodedSlashes).
        if pull is None and "/" not in base:
            return None
        if pull is not None and pull["state"] == "open":
            return pull

        # There may be a newer request. The list cannot be filtered by head, so search its newest
        # 500 requests.
        params = {"state": "all", "base_branch": base}  # newest first
        for listed_pull in self._pages(f"{self._path}/pulls", what, params, _PAGE, _PAGES):
            if pull and dig(listed_pull, "number") == dig(pull, "number"):
                return pull  # the rest of the list is older
            if _is_ours(listed_pull, base, head):
                return listed_pull
        return pull

    def read_completely(self, number: str) -> Proposed:
        """Return a pull request, with `conflicts` set if it conflicts with its base."""
        # While Gitea is still checking a request for conflicts, the request appears to conflict, so
        # wait for the result. If the check takes longer than the pauses, treat the request as
        # conflicting.
        fetch_again = partial(self.fetch, number)
        pull = until(
            lambda latest: not _cannot_be_merged(latest),
            fetch_again(),
            fetch_again,
            _PAUSES[:-1],
        )
        conflicts = _cannot_be_merged(pull)
        note = f"it conflicts with {pull['base']['ref']}" if conflicts else ""
        return replace(self.to_proposed(pull), conflicts=conflicts, note=note)

    def fetch(self, number: str) -> Any:
        """Return Gitea's data about the pull request with this number."""
        return self._client.json("GET", f"{self._path}/pulls/{number}", "read the pull request")

    def to_proposed(self, pull: Any) -> Proposed:
        """Convert Gitea's pull request data to our format: the title without its draft prefix, and
        the text with our line endings.
        """
        state: Literal["open", "merged", "closed"]
        state = "open" if pull["state"] == "open" else "closed"
        merge_commit = ""
        if pull.get("merged"):
            state = "merged"
            merge_commit = str(pull.get("merge_commit_sha") or "")
        return Proposed(
            url=str(pull["html_url"]),
            number=str(pull["number"]),
            state=state,
            title=str(pull["title"]).removeprefix(_draft_word(pull)),
            body=str(pull.get("body") or "").replace("\r\n", "\n"),
            head_commit=dig(pull, "head", "sha"),
            merge_commit=merge_commit,
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Return the base and head branches from Gitea's pull request data."""
        return dig(pull, "base", "ref"), dig(pull, "head", "label") or dig(pull, "head", "ref")

    def create(self, proposal: Proposal) -> Any:
        """Open a pull request, and return Gitea's data about it.

        Raises `AlreadyThere` if this branch already has an open pull request.
        """
        title = proposal.title
        if proposal.draft:
            title = f"{DRAFTS[0]} {title}"
        body = {
            "title": title,
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
            expected=(409,),
        )
        if answer.status != 409:
            return self._client.parse(answer, what)
        conflict = re.search(r"already exists .*\bissue_id: (\d+)", self._client.message_in(answer))
        if conflict:
            number = conflict[1]  # despite its name, `issue_id` is the request's number
            raise AlreadyThere(self.to_proposed(self.fetch(number)))
        raise self._client.error_for(answer, what)

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Change a pull request's title and text, and return the updated data from Gitea. A draft,
        which Gitea marks in the title, remains a draft.
        """
        return self._write(
            str(pull["number"]),
            "update the pull request",
            {"title": f"{_draft_word(pull)}{title}", "body": body},
        )

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Add the proposal's labels, assignees, and reviewers that the pull request lacks, and set
        auto-merge if the proposal requests it. Return the request both in our format and as Gitea's
        data.

        Failures become notes (sentences shown with the request).
        """
        number = str(pull["number"])
        present_labels = (label["name"] for label in pull.get("labels") or ())
        labels = missing(proposal.labels, present_labels)
        if labels:
            with notes.on_failure("labels", "label", *labels):
                self._set_labels(number, labels)

        present_assignees = [user["login"] for user in pull.get("assignees") or ()]
        self._assign(number, proposal.assignees, present_assignees, notes)
        self._ask_reviewers(pull, proposal.reviewers, notes)

        request = self.to_proposed(pull)
        if proposal.auto_merge:
            with notes.on_failure("auto-merge", "auto-merge"):
                self._auto_merge(pull, request, proposal, notes)
        return request, pull

    def close_request(self, pull: Any, body: str) -> None:
        """Close the open pull request, and replace its text with `body`."""
        self._write(
            str(pull["number"]),
            "close the pull request",
            {"body": body, "state": "closed"},
        )

    def others_may_push(self, name: str) -> bool:
        """Return whether other users may push a branch with this name."""
        rules = self._client.json(
            "GET",
            f"{self._path}/branch_protections",
            "read the branch protections",
        )
        return open_on_gitea(rules_in(rules), name)

    def tip(self, head: str) -> str:
        """Return the commit of the branch `head`, or "" if Gitea does not report it."""
        branch = self._client.json(
            "GET",
            f"{self._path}/branches/{quote(head)}",
            "read the branch",
            expected=(403, 404),
        )
        return dig(branch, "commit", "id")

    def _write(self, number: str, what: str, fields: Mapping[str, Any]) -> Any:
        """Change these fields of a pull request, and return the updated data from Gitea. `what`
        completes the sentence "could not …".
        """
        return self._client.json(
            "PATCH",
            f"{self._path}/pulls/{number}",
            what,
            json=fields,
            repeatable=True,
        )

    def _pages(
        self,
        path: str,
        what: str,
        params: Mapping[str, Any],
        rows_each: int,
        pages: int,
        expected: tuple[int, ...] = (),
    ) -> Iterator[Any]:
        """Yield the items of a paginated API list: at most `pages` pages with `rows_each` items
        each.

        Also stop at a page whose response has an error status listed in `expected`.
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
                expected=expected,
            )
            if answer.status >= 300:
                return
            items = mappings(self._client.parse(answer, what))
            yield from items
            received += len(items)
            # an instance may return shorter pages than requested, so compare with the total
            is_last_page = str(received) == answer.headers.get("X-Total-Count")
            if not items or is_last_page:
                return

    def _closed_by_gitea(self, pull: Mapping[str, Any]) -> bool:
        """Return whether a pull request was closed not by a person, but by Gitea itself, because
        the request's branch was deleted.

        If so, the last two events in the request's timeline are its closing and the branch's
        deletion, within a second and by the same person. Gitea gives no other indication.
        """
        events = self._client.json(
            "GET",
            f"{self._path}/issues/{pull['number']}/timeline",
            "read the request's timeline",
            params={"since": pull["closed_at"]},
            expected=(403, 404),
        )
        relevant_types = ("close", "reopen", "delete_branch")
        relevant = [event for event in mappings(events) if dig(event, "type") in relevant_types]
        last_two = relevant[-2:]
        if [dig(event, "type") for event in last_two] != ["close", "delete_branch"]:
            return False
        closing, deletion = last_two
        if dig(closing, "user", "login") != dig(deletion, "user", "login"):
            return False
        closed_at = datetime.fromisoformat(dig(closing, "created_at"))
        deleted_at = datetime.fromisoformat(dig(deletion, "created_at"))
        return (deleted_at - closed_at).total_seconds() <= _AT_ONCE

    def _set_labels(self, number: str, names: list[str]) -> None:
        """Add these labels to a pull request. Labels that do not exist are created."""
        # First add the labels without looking them up. This also adds the organization's labels,
        # which the token may not be allowed to list. Gitea silently ignores names that are unknown
        # or differ in case.
        labels_now_set = self._add_labels(number, names)
        ignored = missing(names, labels_now_set)
        if not ignored:
            return

        # Create the unknown ones. Gitea would also create a label that differs from an existing one
        # only in case, so look for those: lowercase name → the existing label's name.
        owner, _repository = self.place.project
        existing_names = self._known_labels(f"{self._path}/labels", ())
        existing_names |= self._known_labels(f"/orgs/{path_part(owner)}/labels", (403, 404))
        for name in ignored:
            if name.lower() not in existing_names:
                label = {"name": name, "color": COLOR}
                self._client.ask("POST", f"{self._path}/labels", "create a label", json=label)
        self._add_labels(number, [existing_names.get(name.lower(), name) for name in ignored])

    def _add_labels(self, number: str, names: list[str]) -> list[str]:
        """Add these labels to a request, and return the names of all its labels."""
        labels = self._client.json(
            "POST",
            f"{self._path}/issues/{number}/labels",
            "set labels",
            json={"labels": names},
            repeatable=True,
        )
        return [dig(label, "name") for label in mappings(labels)]

    def _known_labels(self, path: str, expected: tuple[int, ...]) -> dict[str, str]:
        """Return the names of the labels listed at this API path, keyed by lowercase name. If the
        response has an error status listed in `expected`, there are no labels.
        """
        labels = self._pages(path, "read the labels", {}, _LABEL_PAGE, _LABEL_PAGES, expected)
        names = (dig(label, "name") for label in labels)
        return {name.lower(): name for name in names}

    def _assign(
        self,
        number: str,
        names: Iterable[str],
        present: Sequence[str],
        notes: Notes,
    ) -> None:
        """Add these names to a pull request's assignees. `present` are the current assignees.
        Rejected names become notes.
        """
        assigned = list(present)  # grows with each call of `assign`

        def assign(new_names: list[str]) -> None:
            """Add these names to the assignees. Gitea replaces the whole list, so send all
            of it.
            """
            self._write(number, "assign people", {"assignees": [*assigned, *new_names]})
            assigned.extend(new_names)

        for name, error in _send_and_yield_rejected(missing(names, present), assign):
            notes.add(f"assignee {name}: {error.message}", "assignee", name)

    def _ask_reviewers(self, pull: Mapping[str, Any], names: Iterable[str], notes: Notes) -> None:
        """Request reviews of a pull request from the people and teams (`organization/team`) that
        have not been asked yet. Names that Gitea rejects become notes.
        """
        path = f"{self._path}/pulls/{pull['number']}/requested_reviewers"
        # people's names, and team names without the organization
        already_asked = [user["login"] for user in pull.get("requested_reviewers") or ()]
        already_asked += [team["name"] for team in pull.get("requested_reviewers_teams") or ()]

        def ask(reviewers: list[str]) -> None:
            """Request reviews from these people and teams with a single HTTP request."""
            body: dict[str, list[str]] = {}
            people = [name for name in reviewers if "/" not in name]
            if people:
                body["reviewers"] = people
            teams = [_without_organization(name) for name in reviewers if "/" in name]
            if teams:
                body["team_reviewers"] = teams
            self._client.ask("POST", path, f"ask {', '.join(reviewers)} to review", json=body)

        lowercase_asked = {asked.lower() for asked in already_asked}
        new_reviewers = [
            name
            for name in dict.fromkeys(names)
            if _without_organization(name).lower() not in lowercase_asked
        ]
        for name, error in _send_and_yield_rejected(new_reviewers, ask):
            notes.add(error.message, "reviewer", name)

    def _auto_merge(
        self,
        pull: Mapping[str, Any],
        request: Proposed,
        proposal: Proposal,
        notes: Notes,
    ) -> None:
        """Have Gitea merge the pull request once its checks pass, or a moment later if there are
        none. This is called a scheduled merge. If Gitea refuses, the reason becomes a note.

        A scheduled merge survives a newer push: it merges whichever commit the branch is at when
        the checks pass. (Gitea 1.26 accepts a commit id only for an immediate merge.) So the merge
        is scheduled again for each build, with a note, unless a person has canceled it.
        """
        path = f"{self._path}/pulls/{request.number}/merge"
        body = {
            "Do": _merge_style(pull),
            "merge_when_checks_succeed": True,
            "head_commit_id": described(proposal.body) or request.head_commit,
            "delete_branch_after_merge": self.ours_to_delete(proposal),
        }

        # The request's text records whether an earlier run has scheduled a merge. A scheduled merge
        # has to be canceled before it can be scheduled again.
        was_set_before = wish_key("auto-merge") in applied_wishes(request.body)
        if was_set_before:
            cancellation = self._client.ask("DELETE", path, "set auto-merge again", expected=(404,))
            if cancellation.status == 404:  # a person has canceled it, so leave it canceled
                return

        schedule = partial(
            self._client.ask,
            "POST",
            path,
            "turn on auto-merge",
            json=body,
            expected=(403, 404, 405, 409, 422),
        )
        # Gitea returns "try again later" while it is still checking for conflicts.
        answer = until(
            lambda latest: b"try again later" not in latest.body.lower(),
            schedule(),
            schedule,
            _PAUSES,
        )

        host = self.place.host
        if answer.status >= 300 and b"already scheduled" not in answer.body:
            notes.add(
                f"{host} cannot merge it automatically: {self._client.message_in(answer)}",
                "auto-merge",
            )
        elif was_set_before:
            notes.add(
                f"auto-merge was set again; {host} merges the branch's latest commit when its"
                " checks pass"
            )


class GiteaComments(GitHubComments):
    """Comments on Gitea and Forgejo pull requests. They are written through the same API as on
    GitHub.
    """

    connect = GiteaClient
    needs = (
        "use a token with write:issue and read:user, from a user with write access to the"
        " repository"
    )

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Yield our own comments that contain the mark (a hidden line) on a pull request, newest
        first.
        """
        # in Gitea's API, every pull request is also an issue with the same number
        path = f"{self._path}/issues/{request}/comments"
        response = self._client.json("GET", path, "find the comment")
        for comment in reversed(mappings(response)):  # Gitea returns all comments, oldest first
            body = dig(comment, "body")
            if self.holds(body, mark) and dig(comment, "user", "id") == self._client.me:
                yield Comment(number=dig(comment, "id"), body=body, url=dig(comment, "html_url"))


def _is_ours(pull: Any, base: str, head: str) -> bool:
    """Return whether a pull request is from `head` into `base`, with both branches in the
    repository itself. A fork's branch may have the same name.
    """
    repository = dig(pull, "base", "repo_id")
    if repository == "" or dig(pull, "head", "repo_id") != repository:
        return False
    # After the branch is deleted, `head.ref` is `refs/pull/N/head`, and only `head.label` contains
    # the branch's name (Gitea 1.26).
    head_names = (dig(pull, "head", "ref"), dig(pull, "head", "label"))
    return head in head_names and dig(pull, "base", "ref") == base


def _without_organization(reviewer: str) -> str:
    """Return a team's name without its organization, or a username unchanged."""
    return reviewer.rpartition("/")[2]


def _merge_style(pull: Mapping[str, Any]) -> str:
    """Return the repository's default merge style. If it is not allowed, return the first style
    that is.
    """
    repository = pull["base"].get("repo") or {}
    default: str = repository.get("default_merge_style") or "merge"
    allowed = [style for style, setting in _STYLES if repository.get(setting)]
    if allowed and default not in allowed:
        return allowed[0]
    return default


def _cannot_be_merged(pull: Mapping[str, Any]) -> bool:
    """Return whether a pull request cannot be merged now: it conflicts with its base, or Gitea has
    not checked it yet.
    """
    return pull["state"] == "open" and pull.get("mergeable") is False and not pull.get("draft")


def _draft_word(pull: Mapping[str, Any]) -> str:
    """Return the draft prefix of a pull request's title, including the spaces after it, such as
    `WIP: `, or "" if the request is not a draft.
    """
    if not pull.get("draft"):
        return ""
    title = str(pull["title"])
    for word in DRAFTS:
        if title.lower().startswith(word.lower()):
            title_without_word = title[len(word) :].lstrip()
            return title.removesuffix(title_without_word)  # as spelled in the title
    return ""


def _send_and_yield_rejected(
    names: list[str],
    send: Callable[[list[str]], None],
) -> Iterator[tuple[str, TaskError]]:
    """Call `send` with all names at once, or, if that fails, with one name at a time. Yield each
    rejected name with its error.
    """
    # Gitea rejects all names if one is unknown
    if len(names) > 1:
        with suppress(ForgeError, RepositoryError):
            send(names)
            return  # all names were accepted
    for name in names:
        try:
            send([name])
        except (ForgeError, RepositoryError) as error:
            yield name, error


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Return a repository's address on Gitea, without the host. `remote` contains the parts of the
    repository's URL, and `root` is the root URL of the host's web pages.
    """
    project = remote.parts[-2:]  # owner and repository
    if len(project) < 2:
        raise no_repository_error("Gitea", "https://gitea.example.com/owner/repository")
    gitea_path = remote.parts[:-2]
    root = web_below(root, gitea_path)
    return ForgeAddress(
        forge="gitea",
        host="",
        api=f"{root}/api/v1",
        project=project,
        web=web_below(root, project),
    )


def _is_it(answer: Response) -> bool:
    """Return whether a response is from Gitea, including one that requires sign-in
    (REQUIRE_SIGNIN_VIEW).
    """
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

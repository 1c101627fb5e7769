"""GitHub and GitHub Enterprise Server: pull requests, comments, deployments (docs.github.com/rest;
GraphQL).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from task.errors import Outpaced, RepositoryError, TaskError
from task.forges.client import Client, ForgeAddress, Reach, names_none, numbered, web_below
from task.forges.deployment import CommitStatus, Deployment
from task.forges.github_auto_merge import AutoMerge, graphql
from task.forges.host import (
    PAGES,
    AlreadyThere,
    Comment,
    Comments,
    Deployments,
    ForgeKind,
    Host,
    Notes,
    missing,
    thrown_out,
)
from task.forges.proposal import described, settled, wish
from task.forges.protection import listed, open_on_github
from task.git.hosts import RemoteUrl
from task.http import Response
from task.model import Proposal, Proposed
from task.plain_data import dig, mappings, value_at
from task.text import one_line, shortened
from task.urls import path_part, split, web_page

COMMENTS = (
    "query($owner: String!, $name: String!, $number: Int!, $before: String) "
    "{ repository(owner: $owner, name: $name) { pullRequest(number: $number) "
    "{ comments(last: 100, before: $before) { pageInfo { hasPreviousPage startCursor } "
    "nodes { fullDatabaseId body url viewerDidAuthor } } } } }"
)
PROTECTED = (
    "query($owner: String!, $name: String!, $query: String!) { repository(owner: $owner, name:"
    ' $name) { refs(refPrefix: "refs/heads/", query: $query, first: 20) { nodes { name'
    " refUpdateRule { pattern } } } } }"
)
TASK = "image-update"  # GitHub itself uses "deploy" for jobs with an `environment`
LONGEST = 140  # characters of a description


class GitHubClient(Client):
    """A client for GitHub's API."""

    repository = "/repos/{}/{}"
    headers: ClassVar[Mapping[str, str]] = {
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    page = ("html_url",)


class GitHub(Host):
    """A repository on GitHub."""

    connect = GitHubClient
    needs = (
        'grant the token "Pull requests: write" and "Contents: write" (a classic token: repo); in'
        " GitHub Actions, set permissions: pull-requests: write, contents: write, and turn on the"
        " setting that allows Actions to create pull requests"
    )
    without_drafts = "it is not a draft: this repository does not support drafts"

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        self._owner, self._repo = reach.place.project
        self._auto_merge = AutoMerge(self._client, self._owner, self._repo)

    def newest(self, base: str, head: str) -> Proposed | None:
        """Like `Host.newest`.

        The owner is part of the query, so query again if the owner has been renamed.
        """
        found = self._requests(base, head)
        # the new page ends with owner/repository
        owner = self._client.moved_to.rpartition("/")[0].rpartition("/")[2]
        if not found and owner and owner.lower() != self._owner.lower():
            self._owner = owner
            found = self._requests(base, head)
        ours = [pull for pull in found if self._is_ours(pull, base, head)]
        ours.sort(
            key=lambda request: (request["state"] == "open", request["number"]),
            reverse=True,
        )
        return self._in_its_queue(ours[0]) if ours else None

    def ask(self, number: str) -> Any:
        """Like `Host.ask`."""
        return self._client.json("GET", f"{self._path}/pulls/{number}", "read the pull request")

    def proposed(self, pull: Any) -> Proposed:
        """Like `Host.proposed`."""
        merged = bool(pull.get("merged_at"))
        is_open = pull["state"] == "open"
        conflicts = is_open and pull.get("mergeable") is False
        return Proposed(
            url=str(pull["html_url"]),
            number=str(pull["number"]),
            state="merged" if merged else ("open" if is_open else "closed"),
            title=str(pull["title"]),
            body=(pull["body"] or "").replace("\r\n", "\n"),
            head_commit=str(pull["head"]["sha"]),
            # for an open request, this is only a test merge
            merge_commit=str(pull.get("merge_commit_sha") or "") if merged else "",
            conflicts=conflicts,
            note=f"it conflicts with {pull['base']['ref']}" if conflicts else "",
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Like `Host.branches`."""
        return dig(pull, "base", "ref"), dig(pull, "head", "ref")

    def create(self, proposal: Proposal) -> Any:
        """Like `Host.create`."""
        what = "open the pull request"
        answer = self._open(proposal, what, draft=proposal.draft)
        if proposal.draft and answer.status == 422 and b"draft" in answer.body.lower():
            answer = self._open(proposal, what, draft=False)
        if answer.status == 422 and b"pull request already exists" in answer.body.lower():
            raise AlreadyThere
        if answer.status == 422 and b"no commits between" in answer.body.lower():
            raise Outpaced(f"{proposal.base} already contains everything in {proposal.head}")
        if answer.status != 201:
            raise self._client.refused(answer, what)
        return self._client.parsed(answer, what)

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Like `Host.change`."""
        path = f"{self._path}/pulls/{pull['number']}"
        text = {"title": title, "body": body}
        return self._client.json(
            "PATCH",
            path,
            "update the pull request",
            json=text,
            again=True,
        )

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Like `Host.complete`."""
        issue = f"{self._path}/issues/{pull['number']}"
        labels = missing(proposal.labels, (label["name"] for label in pull["labels"]))
        if labels:
            with notes.tried("labels", "label", *labels):
                self._client.ask(
                    "POST",
                    f"{issue}/labels",
                    "set labels",
                    json={"labels": labels},
                    again=True,
                )
        assigned = (user["login"] for user in pull["assignees"] or ())
        people = missing(proposal.assignees, assigned)
        if people:
            with notes.tried("assignees", "assignee", *people):
                response = self._client.json(
                    "POST",
                    f"{issue}/assignees",
                    "assign people",
                    json={"assignees": people},
                    again=True,
                )
                # GitHub silently ignores people whom it does not accept.
                accepted = (user["login"] for user in response.get("assignees") or ())
                ignored = missing(people, accepted)
                if ignored:
                    notes.add(
                        f"not assigned, because they do not have push access: {', '.join(ignored)}",
                        "assignee",
                        *ignored,
                    )
        with notes.tried("reviewers", "reviewer", *proposal.reviewers):
            self._ask_reviewers(pull, proposal, notes)
        request = self.proposed(pull)
        if proposal.auto_merge and not pull.get("auto_merge"):
            with notes.tried("auto-merge", "auto-merge"):
                commit = described(proposal.body) or request.head_commit
                request = self._auto_merge.switch_on(pull, request, commit, notes)
        return request, pull

    def shut(self, pull: Any, body: str) -> None:
        """Like `Host.shut`."""
        path = f"{self._path}/pulls/{pull['number']}"
        text = {"body": body, "state": "closed"}
        self._client.ask(
            "PATCH",
            path,
            "close the pull request",
            json=text,
            again=True,
        )

    def is_open(self, name: str) -> bool:
        """Like `Host.is_open`. Everyone with read access can see rulesets, but only some of the
        older branch protections.
        """
        path = f"{self._path}/rules/branches/{quote(name)}"
        rules = self._client.json("GET", path, "read the rules for branches")
        return open_on_github(listed(rules)) and not self._protected_otherwise(name)

    def tip(self, head: str) -> str:
        """Like `Host.tip`."""
        path = f"{self._path}/git/ref/heads/{quote(head)}"
        found = self._client.json("GET", path, "read the branch", fine=(403, 404, 409))
        return "" if found is None else str(found["object"]["sha"])

    def _in_its_queue(self, pull: Mapping[str, Any]) -> Proposed:
        """Return the request. If its merge queue removed it, `thrown_out` has the reason."""
        request = self.proposed(pull)
        is_set = wish("auto-merge") in settled(request.body)
        if request.state != "open" or pull.get("auto_merge") or not is_set:
            return request
        return thrown_out(request, self._auto_merge.thrown_out(request.number))

    def _protected_otherwise(self, name: str) -> bool:
        """Return whether an existing branch has an older branch protection. The list of protections
        is not available.
        """
        variables = {
            "owner": self._owner,
            "name": self._repo,
            "query": name.partition("/")[0],
        }
        body = {"query": PROTECTED, "variables": variables}
        what = "read the branch protections"
        response = self._client.json("POST", graphql(self.place.api), what, json=body)
        if not isinstance(value_at(response, "data"), dict):
            return True  # unknown, so do not claim that others may push
        refs = mappings(value_at(response, "data", "repository", "refs"), "nodes")
        return any(dig(ref, "refUpdateRule", "pattern") for ref in refs)

    def _requests(self, base: str, head: str) -> list[Any]:
        """Return this head's newest requests.

        Each request takes about 25 KB, because it includes both repositories.
        """
        params = {
            "head": f"{self._owner}:{head}",
            "base": base,
            "state": "all",
            "sort": "created",
            "direction": "desc",
            "per_page": 10,
        }
        path = f"{self._path}/pulls"
        return mappings(self._client.json("GET", path, "find the pull request", params=params))

    def _is_ours(self, pull: Mapping[str, Any], base: str, head: str) -> bool:
        """Return whether the head branch is in the repository itself.

        A fork's branch may have any name.
        """
        if self.branches(pull) != (base, head):
            return False
        head_repository = dig(pull, "head", "repo", "full_name").lower()
        if head_repository == "":
            return False
        # the repository may have been renamed, so also compare with the base's
        base_repository = dig(pull, "base", "repo", "full_name").lower()
        return head_repository in (f"{self._owner}/{self._repo}".lower(), base_repository)

    def _open(self, proposal: Proposal, what: str, *, draft: bool) -> Response:
        """Return the response to a new request. A status of 422 is returned, not raised."""
        body = {
            "title": proposal.title,
            "body": proposal.body,
            "head": proposal.head,
            "base": proposal.base,
            "draft": draft,
        }
        return self._client.ask(
            "POST",
            f"{self._path}/pulls",
            what,
            json=body,
            fine=(422,),
        )

    def _ask_reviewers(self, pull: Mapping[str, Any], proposal: Proposal, notes: Notes) -> None:
        """Request reviews from people and teams.

        If GitHub rejects a reviewer, still request the others.
        """
        people = [name for name in proposal.reviewers if "/" not in name]
        teams = {name.rpartition("/")[2]: name for name in proposal.reviewers if "/" in name}
        users = missing(people, (user["login"] for user in pull["requested_reviewers"] or ()))
        slugs = missing(teams, (team["slug"] for team in pull["requested_teams"] or ()))
        path = f"{self._path}/pulls/{pull['number']}/requested_reviewers"
        if len(users) + len(slugs) > 1:
            everyone = {"reviewers": users, "team_reviewers": slugs}
            if self._request_reviews(path, everyone) is None:
                return
        for name in users:
            error = self._request_reviews(path, {"reviewers": [name]})
            if error:
                notes.add(f"{name} was not asked to review: {error.message}", "reviewer", name)
        for slug in slugs:
            error = self._request_reviews(path, {"team_reviewers": [slug]})
            if error:
                message = f"{slug} was not asked to review: {error.message}"
                notes.add(message, "reviewer", teams[slug])

    def _request_reviews(self, path: str, who: Mapping[str, list[str]]) -> TaskError | None:
        """Request reviews. Return the error, or None if GitHub accepted all of them."""
        what = "request reviews"
        answer = self._client.ask(
            "POST",
            path,
            what,
            json=who,
            fine=(403, 404, 422),
            again=True,
        )
        return None if answer.status == 201 else self._client.refused(answer, what)


class GitHubComments(Comments):
    """Comments on GitHub pull requests.

    Our comments are found with GraphQL, because REST does not identify the token's owner, and
    written with REST.
    """

    connect: ClassVar[type[Client]] = GitHubClient
    needs = (
        'grant the token "Pull requests: write" (a classic token: repo); in GitHub Actions, set'
        " permissions: pull-requests: write. The token of a run for a fork's pull request is"
        " read-only"
    )

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Like `Comments.marked`."""
        before: str | None = None
        for _page in range(PAGES):
            page = self._page(request, before)
            for comment in reversed(mappings(page, "nodes")):
                if comment.get("viewerDidAuthor") is True and self.holds(
                    dig(comment, "body"),
                    mark,
                ):
                    yield Comment(
                        dig(comment, "fullDatabaseId"),
                        dig(comment, "body"),
                        dig(comment, "url"),
                    )
            before = dig(page, "pageInfo", "startCursor")
            if page["pageInfo"]["hasPreviousPage"] is not True or not before:
                return

    def add(self, request: str, body: str) -> str:
        """Like `Comments.add`."""
        path = f"{self._path}/issues/{request}/comments"
        response = self._client.json("POST", path, "post the comment", json={"body": body})
        return dig(response, "html_url")

    def change(self, request: str, comment: Comment, body: str) -> str | None:  # noqa: ARG002 - GitHub numbers all of them
        """Like `Comments.change`."""
        path = f"{self._path}/issues/comments/{comment.number}"
        response = self._client.json(
            "PATCH",
            path,
            "edit the comment",
            json={"body": body},
            again=True,
        )
        return dig(response, "html_url")

    def _page(self, request: str, before: str | None) -> Mapping[str, Any]:
        """Return the newest hundred comments, or the hundred before `before`.

        Errors also have status 200.
        """
        owner, name = self.place.project
        variables = {
            "owner": owner,
            "name": name,
            "number": int(request),
            "before": before,
        }
        body = {"query": COMMENTS, "variables": variables}
        what = "find the comment"
        answer = self._client.ask(
            "POST",
            graphql(self.place.api),
            what,
            json=body,
            again=True,
        )
        data = self._client.parsed(answer, what).get("data") or {}
        repository = data.get("repository") or {}
        pull = repository.get("pullRequest")
        if pull:
            return pull["comments"]  # type: ignore[no-any-return]
        words = self._client.words(answer) or "no reason was given"
        raise RepositoryError(
            f"GitHub did not return the pull request: could not {what}: {words}",
            hint=self.needs,
        )


class GitHubDeployments(Deployments):
    """GitHub's deployments and commit statuses (docs.github.com/rest/deployments,
    /rest/commits/statuses).
    """

    connect = GitHubClient
    needs = (
        'grant the token "Deployments: write" (a classic token: repo_deployment); in GitHub Actions,'
        " set permissions: deployments: write"
    )
    statuses_need = (
        'grant the token "Commit statuses: write" (a classic token: repo:status); in GitHub Actions,'
        " set permissions: statuses: write"
    )

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        self._statuses = GitHubClient(reach, self.statuses_need, self.stays)

    def create(self, deployment: Deployment) -> str:
        """Like `Deployments.create`.

        Without `required_contexts`, GitHub would wait for all of the commit's checks.
        """
        body = {
            "ref": deployment.commit,
            "environment": deployment.environment,
            "task": TASK,
            "auto_merge": False,
            "required_contexts": [],
            "description": _short_description(deployment.description),
        }
        what = f"report the deployment to {deployment.environment}"
        response = self._client.json("POST", f"{self._path}/deployments", what, json=body)
        number = numbered(dig(response, "id"), self.place.host, "a deployment")
        self.change(number, deployment)
        return number

    def find(self, deployment: Deployment) -> str:
        """Like `Deployments.find`; the newest comes first."""
        params = {
            "sha": deployment.commit,
            "environment": deployment.environment,
            "task": TASK,
            "per_page": 1,
        }
        what = f"find the deployment to {deployment.environment}"
        found = self._client.json("GET", f"{self._path}/deployments", what, params=params)
        return dig(mappings(found), 0, "id")

    def change(self, number: str, deployment: Deployment) -> None:
        """Like `Deployments.change`."""
        body = {
            "state": deployment.state,
            "description": _short_description(deployment.description),
            "log_url": web_page(deployment.run),
            "environment_url": web_page(deployment.page),
        }
        path = f"{self._path}/deployments/{path_part(number)}/statuses"
        what = f"report the deployment to {deployment.environment}"
        self._client.ask("POST", path, what, json=_only_given(body), again=True)

    def sum_up(self, status: CommitStatus) -> None:
        """Like `Deployments.sum_up`."""
        body = {
            "state": status.state,
            "context": status.context,
            "description": _short_description(status.description),
            "target_url": web_page(status.run),
        }
        path = f"{self._path}/statuses/{path_part(status.commit)}"
        self._statuses.ask(
            "POST",
            path,
            "set the commit's status",
            json=_only_given(body),
            again=True,
        )

    def close(self) -> None:
        """Like `Connected.close`."""
        super().close()
        self._statuses.close()


def _short_description(text: str) -> str:
    return shortened(one_line(text), LONGEST - 1)


def _only_given(body: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in body.items() if value}


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    if len(remote.parts) != 2:
        raise names_none("GitHub", "https://github.com/owner/repository")
    host = split(root).authority
    api = f"{root}/api/v3"
    if host == "github.com" or host.endswith(".ghe.com"):
        api = f"https://api.{host}"
    return ForgeAddress("github", host, api, remote.parts, web_below(root, remote.parts))


def _is_it(answer: Response) -> bool:
    """In private mode, GitHub returns 401, but its headers still identify it."""
    return "installed_version" in answer.mapping() or "X-GitHub-Request-Id" in answer.headers


KIND = ForgeKind(
    name="github",
    hosts=("github.com",),
    host_ends=(".ghe.com",),
    words=("github",),
    client=GitHub,
    place=_place,
    question=("/api/v3/meta", _is_it),
    deployments=GitHubDeployments,
    comments=GitHubComments,
)

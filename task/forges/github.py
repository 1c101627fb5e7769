"""GitHub and GitHub Enterprise Server: pull requests, comments, deployments (docs.github.com/rest;
GraphQL).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from task.errors import Outpaced, RepositoryError, TaskError
from task.forges.client import Client, ForgeAddress, Reach, no_repository_error, numbered, web_below
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
    with_removal_from_queue,
)
from task.forges.proposal import applied_wishes, described, wish_key
from task.forges.protection import open_on_github, rules_in
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
TASK = "image-update"  # not "deploy", which GitHub itself uses for jobs with an `environment`
LONGEST = 140  # maximum length of a description, in characters


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
        """Return the open pull request from the branch `head` into the branch `base`. If there is
        none, return the newest closed or merged one. If there is no request at all, return None.
        """
        pulls = self._requests(base, head)
        # the owner is part of the query, so query again if the owner has been renamed
        new_owner = self._new_owner()
        if not pulls and new_owner:
            self._owner = new_owner
            pulls = self._requests(base, head)
        ours = [pull for pull in pulls if self._is_ours(pull, base, head)]
        if not ours:
            return None
        # an open one, else the one with the highest number
        chosen = max(ours, key=lambda pull: (pull["state"] == "open", pull["number"]))
        return self._in_its_queue(chosen)

    def _new_owner(self) -> str:
        """Return the new owner's name if GitHub has reported that the repository has moved to
        another owner, else "".
        """
        page_without_repository = self._client.moved_to.rpartition("/")[0]  # …/owner/repository
        owner = page_without_repository.rpartition("/")[2]
        return owner if owner.lower() != self._owner.lower() else ""

    def fetch(self, number: str) -> Any:
        """Return GitHub's data about the pull request with this number."""
        return self._client.json("GET", f"{self._path}/pulls/{number}", "read the pull request")

    def to_proposed(self, pull: Any) -> Proposed:
        """Convert GitHub's pull request data to our format."""
        is_open = pull["state"] == "open"
        state: Literal["open", "merged", "closed"] = "open" if is_open else "closed"
        merge_commit = ""  # an open request's `merge_commit_sha` is only a test merge
        if pull.get("merged_at"):
            state = "merged"
            merge_commit = str(pull.get("merge_commit_sha") or "")
        conflicts = is_open and pull.get("mergeable") is False
        return Proposed(
            url=str(pull["html_url"]),
            number=str(pull["number"]),
            state=state,
            title=str(pull["title"]),
            body=(pull["body"] or "").replace("\r\n", "\n"),
            head_commit=str(pull["head"]["sha"]),
            merge_commit=merge_commit,
            conflicts=conflicts,
            note=f"it conflicts with {pull['base']['ref']}" if conflicts else "",
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Return the base and head branches from GitHub's pull request data."""
        return dig(pull, "base", "ref"), dig(pull, "head", "ref")

    def create(self, proposal: Proposal) -> Any:
        """Open a pull request, and return GitHub's data about it.

        If the repository does not support drafts, open a normal pull request. Raises `AlreadyThere`
        if this branch already has an open pull request, and `Outpaced` if the branch has no
        changes.
        """
        what = "open the pull request"
        answer = self._open(proposal, what, draft=proposal.draft)
        if proposal.draft and answer.status == 422 and b"draft" in answer.body.lower():
            answer = self._open(proposal, what, draft=False)
        if answer.status == 201:
            return self._client.parse(answer, what)

        message = answer.body.lower()
        if answer.status == 422 and b"pull request already exists" in message:
            raise AlreadyThere
        if answer.status == 422 and b"no commits between" in message:
            raise Outpaced(f"{proposal.base} already contains everything in {proposal.head}")
        raise self._client.error_for(answer, what)

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Change a pull request's title and text, and return the updated data from GitHub."""
        return self._client.json(
            "PATCH",
            f"{self._path}/pulls/{pull['number']}",
            "update the pull request",
            json={"title": title, "body": body},
            repeatable=True,
        )

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Add the proposal's labels, assignees, and reviewers that the pull request lacks, and set
        auto-merge if the proposal requests it. Return the request both in our format and as
        GitHub's data.

        Failures become notes (sentences shown with the request).
        """
        # in GitHub's API, every pull request is also an issue with the same number
        issue_path = f"{self._path}/issues/{pull['number']}"
        labels = missing(proposal.labels, (label["name"] for label in pull["labels"]))
        if labels:
            with notes.on_failure("labels", "label", *labels):
                self._client.ask(
                    "POST",
                    f"{issue_path}/labels",
                    "set labels",
                    json={"labels": labels},
                    repeatable=True,
                )

        present_assignees = (user["login"] for user in pull["assignees"] or ())
        assignees = missing(proposal.assignees, present_assignees)
        if assignees:
            with notes.on_failure("assignees", "assignee", *assignees):
                self._assign(f"{issue_path}/assignees", assignees, notes)

        with notes.on_failure("reviewers", "reviewer", *proposal.reviewers):
            self._ask_reviewers(pull, proposal, notes)

        request = self.to_proposed(pull)
        if proposal.auto_merge and not pull.get("auto_merge"):
            with notes.on_failure("auto-merge", "auto-merge"):
                commit = described(proposal.body) or request.head_commit
                request = self._auto_merge.switch_on(pull, request, commit, notes)
        return request, pull

    def close_request(self, pull: Any, body: str) -> None:
        """Close the open pull request, and replace its text with `body`."""
        self._client.ask(
            "PATCH",
            f"{self._path}/pulls/{pull['number']}",
            "close the pull request",
            json={"body": body, "state": "closed"},
            repeatable=True,
        )

    def others_may_push(self, name: str) -> bool:
        """Return whether other users may push a branch with this name."""
        # this API covers rulesets, but not the older branch protections
        rules = self._client.json(
            "GET",
            f"{self._path}/rules/branches/{quote(name)}",
            "read the rules for branches",
        )
        return open_on_github(rules_in(rules)) and not self._has_older_protection(name)

    def tip(self, head: str) -> str:
        """Return the commit of the branch `head`, or "" if GitHub does not report it."""
        ref = self._client.json(
            "GET",
            f"{self._path}/git/ref/heads/{quote(head)}",
            "read the branch",
            expected=(403, 404, 409),
        )
        return "" if ref is None else str(ref["object"]["sha"])

    def _in_its_queue(self, pull: Mapping[str, Any]) -> Proposed:
        """Return the pull request in our format. If the base's merge queue has removed it,
        `thrown_out` contains the reason.
        """
        request = self.to_proposed(pull)
        if request.state != "open" or pull.get("auto_merge"):
            return request
        # query GitHub only if the request's text records that an earlier run has set auto-merge
        was_set_by_us = wish_key("auto-merge") in applied_wishes(request.body)
        if not was_set_by_us:
            return request
        return with_removal_from_queue(request, self._auto_merge.removal_reason(request.number))

    def _assign(self, path: str, names: list[str], notes: Notes) -> None:
        """Add people to the assignees through this API path. The names that GitHub ignores become a
        note.
        """
        response = self._client.json(
            "POST",
            path,
            "assign people",
            json={"assignees": names},
            repeatable=True,
        )
        # GitHub silently ignores people that it does not accept.
        accepted = (user["login"] for user in response.get("assignees") or ())
        ignored = missing(names, accepted)
        if ignored:
            notes.add(
                f"not assigned, because they do not have push access: {', '.join(ignored)}",
                "assignee",
                *ignored,
            )

    def _has_older_protection(self, name: str) -> bool:
        """Return whether an older branch protection applies to an existing branch with a similar
        name (one that contains the first part of `name`). If GitHub does not say, return True.

        Only administrators can list the protections, so inspect existing branches instead.
        """
        variables = {
            "owner": self._owner,
            "name": self._repo,
            "query": name.partition("/")[0],
        }
        response = self._client.json(
            "POST",
            graphql(self.place.api),
            "read the branch protections",
            json={"query": PROTECTED, "variables": variables},
        )
        if not isinstance(value_at(response, "data"), dict):
            return True  # this is unknown, so do not report that others may push
        branches = mappings(value_at(response, "data", "repository", "refs"), "nodes")
        return any(dig(branch, "refUpdateRule", "pattern") for branch in branches)

    def _requests(self, base: str, head: str) -> list[Any]:
        """Return GitHub's data about the ten newest pull requests from `head` into `base`.

        Each takes about 25 KB, because GitHub includes both repositories in it.
        """
        response = self._client.json(
            "GET",
            f"{self._path}/pulls",
            "find the pull request",
            params={
                "head": f"{self._owner}:{head}",
                "base": base,
                "state": "all",
                "sort": "created",
                "direction": "desc",
                "per_page": 10,
            },
        )
        return mappings(response)

    def _is_ours(self, pull: Mapping[str, Any], base: str, head: str) -> bool:
        """Return whether a pull request is from `head` into `base`, with the head branch in the
        repository itself. A fork's branch may have the same name.
        """
        if self.branches(pull) != (base, head):
            return False
        head_repository = dig(pull, "head", "repo", "full_name").lower()
        if head_repository == "":
            return False
        # the base's repository is ours, but may have a new name
        base_repository = dig(pull, "base", "repo", "full_name").lower()
        return head_repository in (f"{self._owner}/{self._repo}".lower(), base_repository)

    def _open(self, proposal: Proposal, what: str, *, draft: bool) -> Response:
        """Send the HTTP request that opens a pull request, and return the response. A status of 422
        is returned, not raised.
        """
        return self._client.ask(
            "POST",
            f"{self._path}/pulls",
            what,
            json={
                "title": proposal.title,
                "body": proposal.body,
                "head": proposal.head,
                "base": proposal.base,
                "draft": draft,
            },
            expected=(422,),
        )

    def _ask_reviewers(self, pull: Mapping[str, Any], proposal: Proposal, notes: Notes) -> None:
        """Request reviews from the proposal's people and teams (`organization/team`) that have not
        been asked yet. Names that GitHub rejects become notes.
        """
        people = [name for name in proposal.reviewers if "/" not in name]
        # team name without the organization, as GitHub expects it → with it, as the user wrote it
        teams = {name.rpartition("/")[2]: name for name in proposal.reviewers if "/" in name}
        new_people = missing(people, (user["login"] for user in pull["requested_reviewers"] or ()))
        new_teams = missing(teams, (team["slug"] for team in pull["requested_teams"] or ()))

        # Request all reviewers at once. If GitHub rejects one, it rejects all, so fall back to
        # requesting one at a time.
        path = f"{self._path}/pulls/{pull['number']}/requested_reviewers"
        if len(new_people) + len(new_teams) > 1:
            everyone = {"reviewers": new_people, "team_reviewers": new_teams}
            if self._request_reviews(path, everyone) is None:
                return
        for name in new_people:
            error = self._request_reviews(path, {"reviewers": [name]})
            if error:
                notes.add(f"{name} was not asked to review: {error.message}", "reviewer", name)
        for team in new_teams:
            error = self._request_reviews(path, {"team_reviewers": [team]})
            if error:
                message = f"{team} was not asked to review: {error.message}"
                notes.add(message, "reviewer", teams[team])

    def _request_reviews(self, path: str, who: Mapping[str, list[str]]) -> TaskError | None:
        """Request reviews through this API path. `who` contains the names of people (`reviewers`)
        and teams (`team_reviewers`). Return GitHub's error, or None if GitHub accepted all names.
        """
        what = "request reviews"
        answer = self._client.ask(
            "POST",
            path,
            what,
            json=who,
            expected=(403, 404, 422),
            repeatable=True,
        )
        return None if answer.status == 201 else self._client.error_for(answer, what)


class GitHubComments(Comments):
    """Comments on GitHub pull requests.

    Comments are written through the REST API. Our own comments are found through GraphQL, because
    REST does not identify the token's owner.
    """

    connect: ClassVar[type[Client]] = GitHubClient
    needs = (
        'grant the token "Pull requests: write" (a classic token: repo); in GitHub Actions, set'
        " permissions: pull-requests: write. The token of a run for a fork's pull request is"
        " read-only"
    )

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Yield our own comments that contain the mark (a hidden line) on a pull request, newest
        first.
        """
        before: str | None = None  # the cursor of the previous page, whose comments are newer
        for _page in range(PAGES):
            page = self._page(request, before)
            for comment in reversed(mappings(page, "nodes")):
                body = dig(comment, "body")
                if comment.get("viewerDidAuthor") is True and self.holds(body, mark):
                    number = dig(comment, "fullDatabaseId")
                    yield Comment(number=number, body=body, url=dig(comment, "url"))
            before = dig(page, "pageInfo", "startCursor")
            has_older_page = page["pageInfo"]["hasPreviousPage"] is True
            if not has_older_page or not before:
                return

    def add(self, request: str, body: str) -> str:
        """Add a comment to a pull request, and return its URL."""
        response = self._client.json(
            "POST",
            f"{self._path}/issues/{request}/comments",
            "post the comment",
            json={"body": body},
        )
        return dig(response, "html_url")

    def change(self, request: str, comment: Comment, body: str) -> str | None:  # noqa: ARG002 - GitHub numbers all of them
        """Change a comment's text, and return its URL."""
        response = self._client.json(
            "PATCH",
            f"{self._path}/issues/comments/{comment.number}",
            "edit the comment",
            json={"body": body},
            repeatable=True,
        )
        return dig(response, "html_url")

    def _page(self, request: str, before: str | None) -> Mapping[str, Any]:
        """Return a page of a pull request's comments: the newest hundred, or the hundred before the
        cursor `before`.

        Raises `RepositoryError` if the response contains no pull request. (It may contain errors
        instead, with status 200.)
        """
        owner, name = self.place.project
        variables = {
            "owner": owner,
            "name": name,
            "number": int(request),
            "before": before,
        }
        what = "find the comment"
        answer = self._client.ask(
            "POST",
            graphql(self.place.api),
            what,
            json={"query": COMMENTS, "variables": variables},
            repeatable=True,
        )
        data = self._client.parse(answer, what).get("data") or {}
        repository = data.get("repository") or {}
        pull = repository.get("pullRequest")
        if pull:
            return pull["comments"]  # type: ignore[no-any-return]
        words = self._client.message_in(answer) or "no reason was given"
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
        """Create a deployment in this state, and return its number."""
        response = self._client.json(
            "POST",
            f"{self._path}/deployments",
            f"report the deployment to {deployment.environment}",
            json={
                "ref": deployment.commit,
                "environment": deployment.environment,
                "task": TASK,
                "auto_merge": False,
                # without this, GitHub would wait for all of the commit's checks
                "required_contexts": [],
                "description": _short_description(deployment.description),
            },
        )
        number = numbered(dig(response, "id"), self.place.host, "a deployment")
        self.change(number, deployment)
        return number

    def find(self, deployment: Deployment) -> str:
        """Return the number of our newest deployment of this commit to this environment, or "" if
        there is none.
        """
        response = self._client.json(
            "GET",
            f"{self._path}/deployments",
            f"find the deployment to {deployment.environment}",
            params={
                "sha": deployment.commit,
                "environment": deployment.environment,
                "task": TASK,
                "per_page": 1,  # the newest is first
            },
        )
        return dig(mappings(response), 0, "id")

    def change(self, number: str, deployment: Deployment) -> None:
        """Set the deployment's state."""
        body = {
            "state": deployment.state,
            "description": _short_description(deployment.description),
            "log_url": web_page(deployment.run),
            "environment_url": web_page(deployment.page),
        }
        self._client.ask(
            "POST",
            f"{self._path}/deployments/{path_part(number)}/statuses",
            f"report the deployment to {deployment.environment}",
            json=_without_empty_fields(body),
            repeatable=True,
        )

    def sum_up(self, status: CommitStatus) -> None:
        """Summarize all deployments in a single status on the commit."""
        body = {
            "state": status.state,
            "context": status.context,
            "description": _short_description(status.description),
            "target_url": web_page(status.run),
        }
        self._statuses.ask(
            "POST",
            f"{self._path}/statuses/{path_part(status.commit)}",
            "set the commit's status",
            json=_without_empty_fields(body),
            repeatable=True,
        )

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._statuses.close()


def _short_description(text: str) -> str:
    return shortened(one_line(text), LONGEST - 1)


def _without_empty_fields(body: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in body.items() if value}


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Return a repository's address on GitHub. `remote` contains the parts of the repository's URL,
    and `root` is the root URL of the host's web pages.
    """
    if len(remote.parts) != 2:
        raise no_repository_error("GitHub", "https://github.com/owner/repository")
    host = split(root).authority
    api = f"{root}/api/v3"  # on Enterprise Server, the API is on the same host
    if host == "github.com" or host.endswith(".ghe.com"):
        api = f"https://api.{host}"
    return ForgeAddress(
        forge="github",
        host=host,
        api=api,
        project=remote.parts,
        web=web_below(root, remote.parts),
    )


def _is_it(answer: Response) -> bool:
    """Return whether a response is from GitHub. GitHub sends its own headers even with a 401 in
    private mode.
    """
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

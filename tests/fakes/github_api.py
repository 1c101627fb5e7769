"""A fake of GitHub's REST API, covering what pull requests need, and of the two GraphQL mutations
for auto-merge.

Every request and response is checked against GitHub's own API description
(tests/data/forges/github.json, compared on 2026-11-22). Everything else (error messages, GraphQL
responses) is from docs.github.com and from GitHub itself.
"""

from copy import deepcopy
from functools import cache
from typing import Any

from fakes.description import described
from fakes.forge_server import ForgeServer, Note, Pull, Reply, Request, Shown
from fakes.github_graphql import invalid

OWNER, REPO = "acme", "deploy"
NAME = f"{OWNER}/{REPO}"
ENABLE, ENQUEUE = "EnablePullRequestAutoMergeInput", "EnqueuePullRequestInput"
NAMES = {ENABLE: "enablePullRequestAutoMerge", ENQUEUE: "enqueuePullRequest"}
CLEAN = '["Pull request Pull request is in clean status"]'
REFUSALS = {
    "clean": CLEAN,
    "unstable": "Pull request Pull request is in unstable status",
    "no rules": "Pull request Protected branch rules not configured for this branch",
    "not allowed": "Pull request Auto merge is not allowed for this repository",
}
WAYS = {"merge": "Merge commits", "squash": "Squash merges", "rebase": "Rebase merges"}


class GitHub(ForgeServer):
    """A repository on a GitHub Enterprise Server."""

    forge, api = "github", "/api/v3"
    # the paths at which renamed repositories are found, and the path that a probe requests
    aside = ("/repositories/", "/meta")

    def __init__(self) -> None:
        super().__init__()
        self.assigned: dict[int, list[str]] = {}
        self.asked_teams: dict[int, list[str]] = {}
        self.reviewed: dict[int, list[str]] = {}
        self.author = "image-bot"
        self.settings = {
            "allow_merge_commit": True,
            "allow_squash_merge": True,
            "allow_rebase_merge": True,
        }
        self.drafts = True
        # "waiting", "ready" (the request is added to the queue at once), "silent" (success without
        # any effect), or one of REFUSALS
        self.auto_merge = "waiting"
        # the merge methods that the repository allows, whatever its settings say
        self.ways = set(WAYS)
        self.queue = False  # whether the branch accepts changes only through its merge queue
        self.queue_refuses = ""  # the queue's error for a request that it does not accept yet
        self.queued: set[int] = set()
        self.events: dict[int, list[dict[str, Any]]] = {}  # the queue's events, as in GraphQL
        self.conflicts = False
        self.old_names: set[str] = set()  # previous names of the repository, including the owner

    def answer(self, request: Request) -> Reply:
        if request.path == "/api/graphql":
            return self._graphql(request)
        path = request.path.removeprefix("/api/v3")
        for name in self.old_names:
            if path.startswith(f"/repos/{name}"):
                there = request.target.replace(f"/repos/{name}", "/repositories/1", 1)
                return Reply(
                    301 if request.method == "GET" else 307,
                    None,
                    (("Location", f"{self.url}{there}"),),
                )
        if path == "/repositories/1":
            return Reply(200, {"full_name": NAME, "html_url": f"{self.url}/{NAME}"})
        if path.startswith("/repositories/1/"):
            path = path.replace("/repositories/1", f"/repos/{NAME}", 1)
        name = described(self.forge).operation(request.method, path)
        if not name:
            return _error(404, "Not Found")
        self.require(
            request.headers.get("accept") == "application/vnd.github+json", f"{name}: Accept"
        )
        self.require(
            request.headers.get("x-github-api-version") == "2022-11-28", f"{name}: version"
        )
        reply = self._work(request, path)
        if reply.status < 300 and reply.body is not None:
            problems = (
                described(self.forge)
                .validator(name, "responses", str(reply.status))
                .iter_errors(reply.body)
            )
            self.wrong += [
                f"our answer to {name}: {one.json_path}: {one.message[:200]}" for one in problems
            ]
        return reply

    def _work(self, request: Request, path: str) -> Reply:
        ours = f"/repos/{NAME}/"
        if not path.startswith(ours):
            return _error(404, "Not Found")
        parts = path.removeprefix(ours).split("/")
        if parts[0] == "git":
            name = "/".join(parts[3:])
            tip = self.branches.get(name)
            ref = {"ref": f"refs/heads/{name}", "node_id": "R1", "url": "https://x.example",
                   "object": {"type": "commit", "sha": tip, "url": "https://x.example"}}  # fmt: skip
            return Reply(200, ref) if tip else _error(404, "Not Found")
        if parts[0] == "deployments":
            return self._deployments(request, parts[1:])
        if parts[0] == "statuses":
            self.require(
                len(request.body.get("description", "")) <= 140, "a commit status's description"
            )
            self.statuses.append((parts[1], request.body["context"], request.body["state"]))
            return Reply(
                201,
                deepcopy(described("github").examples["status"]) | {"state": request.body["state"]},
            )
        if parts[:2] == ["issues", "comments"]:
            if (note := self.note(parts[2])) is None:
                return _error(404, "Not Found")
            note.body = request.body["body"]
            return Reply(200, self._comment(note))
        if parts == ["pulls"]:
            return self._list(request) if request.method == "GET" else self._create(request)
        if (pull := self.pull(parts[1])) is None:
            return _error(404, "Not Found")
        if len(parts) == 2:
            return (
                Reply(200, self.shown(pull))
                if request.method == "GET"
                else self._change(request, pull)
            )
        return getattr(self, f"_{parts[2]}")(request, pull)  # type: ignore[no-any-return]

    def _list(self, request: Request) -> Reply:
        head, state = request.one("head"), request.one("state", "open")
        found = [
            one for one in self.pulls
            if (state == "all" or (one.state == "open") == (state == "open"))
            and request.one("base", one.base) == one.base
            and (":" not in head or (_owner(one), one.head) == tuple(head.split(":", 1)))
        ]  # fmt: skip
        if request.one("direction", "desc") == "desc":
            found.reverse()
        size, page = int(request.one("per_page", "30")), int(request.one("page", "1"))
        keep = set(described(self.forge).schemas["pull-request-simple"]["properties"])
        simple = [
            {name: value for name, value in self.shown(one).items() if name in keep}
            for one in found
        ]
        return Reply(200, simple[(page - 1) * size : page * size])

    def _create(self, request: Request) -> Reply:
        body = request.body
        head, base = body["head"], body["base"]
        if refusal := _too_long(body):
            return refusal
        if head not in self.branches:
            return _invalid(resource="PullRequest", field="head", code="invalid")
        if base not in self.branches:
            return _invalid(resource="PullRequest", field="base", code="invalid")
        if body.get("draft") and not self.drafts:
            return _error(422, "Draft pull requests are not supported in this repository.")
        if any((one.head, one.base, one.fork) == (head, base, False) for one in self.open):
            said = f"A pull request already exists for {OWNER}:{head}."
            return _invalid(resource="PullRequest", code="custom", message=said)
        if self.branches[head] == self.branches[base]:
            return _invalid(
                resource="PullRequest",
                code="custom",
                message=f"No commits between {base} and {head}",
            )
        pull = self.add(
            base=base,
            head=head,
            title=body["title"],
            body=body["body"],
            draft=body.get("draft", False),
        )
        return Reply(201, self.shown(pull))

    def _change(self, request: Request, pull: Pull) -> Reply:
        if refusal := _too_long(request.body):
            return refusal
        pull.title, pull.body = (
            request.body.get("title", pull.title),
            request.body.get("body", pull.body),
        )
        pull.state = request.body.get("state", pull.state)
        return Reply(200, self.shown(pull))

    def _labels(self, request: Request, pull: Pull) -> Reply:
        pull.labels += [one for one in request.body["labels"] if one not in pull.labels]
        return Reply(200, [_label(one) for one in pull.labels])

    def _assignees(self, request: Request, pull: Pull) -> Reply:
        """Add assignees. Unknown users are ignored."""
        self.assigned.setdefault(pull.number, []).extend(
            one for one in request.body["assignees"] if one in self.people
        )
        issue = {
            "number": pull.number,
            "assignees": [_user(one) for one in self.assigned[pull.number]],
        }
        return Reply(201, {**_issue(), **issue})

    def _requested_reviewers(self, request: Request, pull: Pull) -> Reply:
        users, teams = request.body.get("reviewers", []), request.body.get("team_reviewers", [])
        if self.author in users:
            return _error(422, "Review cannot be requested from pull request author.")
        if [one for one in users if one not in self.people] or [
            one for one in teams if one != "deployers"
        ]:
            return _error(
                422, "Reviews may only be requested from collaborators. One or more are not."
            )
        pull.reviewers += users
        self.asked_teams.setdefault(pull.number, []).extend(teams)
        keep = set(described(self.forge).schemas["pull-request-simple"]["properties"])
        return Reply(201, {name: value for name, value in self.shown(pull).items() if name in keep})

    def _reviews(self, _request: Request, pull: Pull) -> Reply:
        review = described("github").examples["review"]
        return Reply(
            200, [{**review, "user": _user(one)} for one in self.reviewed.get(pull.number, [])]
        )

    def _deployments(self, request: Request, rest: list[str]) -> Reply:
        """Handle a request for deployments.

        Without `required_contexts: []` and `auto_merge: false`, GitHub may not create a deployment
        (409 because of status checks, 202 because of a merge).
        """
        if request.method == "GET":
            found = [
                one for one in reversed(self.deployments)
                if (one.commit, one.environment) == (request.one("sha"), request.one("environment"))
                and request.one("task") in ("", "image-update" if one.ours else "deploy")
            ]  # fmt: skip
            return Reply(
                200, [self._deployment(one) for one in found[: int(request.one("per_page", "30"))]]
            )
        body = request.body
        if not rest:
            if body.get("required_contexts") != [] or body.get("auto_merge") is not False:
                return _error(409, "Conflict: Commit status checks failed for main.")
            if body["ref"] not in self.commits:
                return _error(422, f"No ref found for: {body['ref']}")
            self.require(len(body.get("description") or "") <= 140, "a deployment's description")
            return Reply(201, self._deployment(self.deploy(body["environment"], body["ref"])))
        (found_one,) = [one for one in self.deployments if str(one.number) == rest[0]]
        if len(body.get("description", "")) > 140:
            return _invalid(
                resource="DeploymentStatus", code="custom", field="description", message="too long"
            )
        found_one.states.append(body["state"])
        found_one.links += [body["environment_url"]] if body.get("environment_url") else []
        return Reply(
            201,
            deepcopy(described("github").examples["deployment status"]) | {"state": body["state"]},
        )

    def _deployment(self, one: Shown) -> dict[str, Any]:
        shown: dict[str, Any] = deepcopy(described("github").examples["deployment"])
        return shown | {
            "id": one.number,
            "sha": one.commit,
            "ref": one.commit,
            "environment": one.environment,
        }

    def _comments(self, request: Request, pull: Pull) -> Reply:
        if len(request.body["body"]) > 65_536:
            return _invalid(
                resource="IssueComment",
                code="unprocessable",
                field="data",
                message="Body is too long",
            )
        return Reply(201, self._comment(self.say(pull.number, request.body["body"])))

    def _comment(self, note: Note) -> dict[str, Any]:
        shown: dict[str, Any] = deepcopy(described("github").examples["comment"])
        page = f"https://github.example.com/{NAME}/pull/{note.request}#issuecomment-{note.number}"
        return shown | {
            "id": note.number,
            "body": note.body,
            "html_url": page,
            "user": _user(note.author),
        }

    def _found_comments(self, body: dict[str, Any]) -> Reply:
        """Return a page of comments, newest last."""
        given = body["variables"]
        self.require(set(given) == {"owner", "name", "number", "before"}, f"GraphQL: {set(given)}")
        self.require(
            type(given["number"]) is int
            and "comments(last: 100, before: $before)" in body["query"],
            "GraphQL",
        )
        pull = (
            self.pull(given["number"]) if [given["owner"], given["name"]] == [OWNER, REPO] else None
        )
        if pull is None:
            said = f"Could not resolve to a PullRequest with the number of {given['number']}."
            error = {"type": "NOT_FOUND", "path": ["repository", "pullRequest"], "message": said}
            return Reply(200, {"data": {"repository": {"pullRequest": None}}, "errors": [error]})
        found = [one for one in self.notes if one.request == pull.number]
        end = int(given["before"] or len(found))
        begin = max(0, end - 100)
        nodes = [
            {
                "fullDatabaseId": str(one.number), "body": one.body, "url": self._comment(one)["html_url"],
                "viewerDidAuthor": one.author == self.author,
            }
            for one in found[begin:end]
        ]  # fmt: skip
        page = {"hasPreviousPage": begin > 0, "startCursor": str(begin)}
        return Reply(
            200,
            {
                "data": {
                    "repository": {"pullRequest": {"comments": {"pageInfo": page, "nodes": nodes}}}
                }
            },
        )

    def _merge(self, request: Request, pull: Pull) -> Reply:
        if request.body.get("sha") != self.branches.get(pull.head):
            return _error(409, "Head branch was modified. Review and try the merge again.")
        if request.body["merge_method"] not in self.ways:
            return _error(
                405, f"{WAYS[request.body['merge_method']]} are not allowed on this repository."
            )
        if self.queue:
            return _error(
                405,
                "Repository rule violations found\n\nChanges must be made through the merge queue",
            )
        self.merge(str(pull.number))
        return Reply(
            200,
            {
                "sha": pull.merge_commit,
                "merged": True,
                "message": "Pull Request successfully merged",
            },
        )

    def _graphql(self, request: Request) -> Reply:
        self.require(set(request.body) == {"query", "variables"}, f"GraphQL: {set(request.body)}")
        wrong = invalid(request.body["query"], request.body["variables"])
        self.require(not wrong, f"GraphQL: {wrong}")
        return self._graphql_answer(request)

    def _graphql_answer(self, request: Request) -> Reply:
        if "timelineItems" in request.body["query"]:
            return self._looked_at(request.body["variables"])
        if request.body["query"].startswith("query"):
            return self._found_comments(request.body)
        what = request.body["variables"]["input"]
        pull = next(one for one in self.pulls if f"PR_{one.number}" == what["pullRequestId"])
        if what["expectedHeadOid"] != self.branches.get(pull.head):
            name = next(one for one in NAMES.values() if one in request.body["query"])
            return _objection(name, "Head sha didn't match the expected one")
        return (
            self._enqueue(pull, what)
            if ENQUEUE in request.body["query"]
            else self._enable(pull, what)
        )

    def _enable(self, pull: Pull, what: dict[str, Any]) -> Reply:
        name = NAMES[ENABLE]
        if said := REFUSALS.get(self.auto_merge, ""):
            return _objection(name, said)
        if (way := what["mergeMethod"].lower()) not in self.ways:
            return _objection(
                name, f"Merge method {WAYS[way].lower()} are not allowed on this repository"
            )
        if self.auto_merge == "waiting":
            pull.auto = {"kind": name, **what}
        elif self.auto_merge == "ready" and self.queue:
            self._join(pull, {"kind": name, **what})
        return Reply(200, {"data": {name: {"pullRequest": self._stands(pull)}}})

    def _enqueue(self, pull: Pull, what: dict[str, Any]) -> Reply:
        name = NAMES[ENQUEUE]
        if not self.queue:
            return _objection(name, "A merge queue is not enabled for this branch")
        if self.queue_refuses:
            return _objection(name, self.queue_refuses)
        self._join(pull, {"kind": name, **what})
        return Reply(200, {"data": {name: {"mergeQueueEntry": {"position": len(self.queued)}}}})

    def _join(self, pull: Pull, auto: dict[str, Any]) -> None:
        self.queued.add(pull.number)
        self.happened(pull.number, "AddedToMergeQueueEvent")
        pull.auto = auto

    def happened(self, number: int, kind: str, reason: str = "", actor: str = "") -> None:
        """Add an event about the queue or about auto-merge. An event without an actor was caused by
        GitHub's own queue.
        """
        who = {"__typename": "User" if actor else "Bot", "login": actor or "github-merge-queue"}
        event = {"__typename": kind}
        if kind == "RemovedFromMergeQueueEvent":
            self.queued.discard(number)
        if kind != "AddedToMergeQueueEvent" and (pull := self.pull(number)):
            pull.auto = None
        self.events.setdefault(number, []).append(
            event | {"reason": reason or None, "actor": who} if "Removed" in kind else event
        )

    def _looked_at(self, given: dict[str, Any]) -> Reply:
        pull = self.pull(given["number"])
        assert pull is not None
        self.require([given["owner"], given["name"]] == [OWNER, REPO], f"GraphQL: {given}")
        last = self.events.get(pull.number, [])[-1:]
        shown = self._stands(pull) | {"timelineItems": {"nodes": last}}
        return Reply(200, {"data": {"repository": {"pullRequest": shown}}})

    def _stands(self, pull: Pull) -> dict[str, Any]:
        queued = pull.number in self.queued
        on = pull.auto is not None and not queued
        return {
            "state": {"open": "OPEN", "merged": "MERGED"}.get(pull.state, "CLOSED"),
            "autoMergeRequest": {"enabledAt": "2026-11-21T06:00:00Z"} if on else None,
            "isInMergeQueue": queued,
            "isMergeQueueEnabled": self.queue,
        }

    def refusal(self, kind: str) -> Reply:
        return {
            "unauthorized": _error(401, "Bad credentials"),
            "forbidden": _error(403, "Resource not accessible by personal access token"),
            "limited": _error(
                429, "You have exceeded a secondary rate limit. Please wait a few minutes."
            ),
            "invalid": _invalid(
                resource="Issue", code="custom", field="title", message="title is too long"
            ),
            "down": Reply(503, "<html><body>Unicorn!</body></html>"),
        }[kind]

    def shown(self, pull: Pull) -> dict[str, Any]:
        """Return a pull request as the API returns it, based on GitHub's own example."""
        shown: dict[str, Any] = deepcopy(described("github").examples["pull"])
        fork = (
            {"full_name": "somebody/deploy", "name": REPO}
            if pull.fork
            else {"full_name": NAME, "name": REPO}
        )
        shown["head"].update(
            ref=pull.head,
            label=f"{_owner(pull)}:{pull.head}",
            sha=self.branches.get(pull.head, "0" * 40),
        )
        shown["head"]["repo"].update(fork)
        shown["base"].update(
            ref=pull.base, label=f"{OWNER}:{pull.base}", sha=self.branches.get(pull.base, "0" * 40)
        )
        shown["base"]["repo"].update(full_name=NAME, name=REPO, **self.settings)
        merged = pull.state == "merged"
        return shown | {
            "number": pull.number,
            "node_id": f"PR_{pull.number}",
            "html_url": f"https://github.example.com/{NAME}/pull/{pull.number}",
            "state": "open" if pull.state == "open" else "closed",
            "title": pull.title,
            "body": pull.body or None,
            "draft": pull.draft,
            "merged": merged,
            "merged_at": "2026-11-21T06:00:00Z" if merged else None,
            "closed_at": None if pull.state == "open" else "2026-11-21T06:00:00Z",
            # for an open request, this is GitHub's test merge
            "merge_commit_sha": pull.merge_commit or "f" * 40,
            "mergeable": None if pull.state != "open" else not self.conflicts,
            "labels": [_label(one) for one in pull.labels],
            "assignees": [_user(one) for one in self.assigned.get(pull.number, [])],
            "assignee": None,
            "requested_reviewers": [_user(one) for one in pull.reviewers],
            "requested_teams": [_team(one) for one in self.asked_teams.get(pull.number, [])],
            # requests in the queue do not have an auto-merge
            "auto_merge": _auto() if pull.auto and pull.number not in self.queued else None,
        }


def _objection(name: str, message: str) -> Reply:
    error = {"type": "UNPROCESSABLE", "path": [name], "message": message}
    return Reply(200, {"data": {name: None}, "errors": [error]})


def _owner(pull: Pull) -> str:
    return "somebody" if pull.fork else OWNER


def _too_long(body: dict[str, Any]) -> Reply | None:
    if len(body.get("title", "")) > 256:
        return _invalid(
            resource="Issue",
            code="custom",
            field="title",
            message="title is too long (maximum is 256)",
        )
    if len(body.get("body", "")) > 65_536:
        return _invalid(
            resource="Issue",
            code="custom",
            field="body",
            message="body is too long (maximum is 65536)",
        )
    return None


def _error(status: int, message: str, **more: Any) -> Reply:
    said = {
        "message": message,
        "documentation_url": "https://docs.github.com/rest",
        "status": str(status),
        **more,
    }
    return Reply(status, said)


def _invalid(**error: str) -> Reply:
    return _error(422, "Validation Failed", errors=[error])


def _user(name: str) -> dict[str, Any]:
    return {**described("github").examples["pull"]["user"], "login": name}


def _team(slug: str) -> dict[str, Any]:
    return {
        **described("github").examples["pull"]["requested_teams"][0],
        "slug": slug,
        "type": "organization",
        "parent": None,
    }


def _label(name: str) -> dict[str, Any]:
    return {**described("github").examples["pull"]["labels"][0], "name": name}


def _auto() -> dict[str, Any]:
    return {
        "enabled_by": _user("image-bot"),
        "merge_method": "merge",
        "commit_title": "",
        "commit_message": "",
    }


@cache
def _issue() -> dict[str, Any]:
    """Return the example of an issue in GitHub's API description."""
    return dict(described("github").examples["issue"])

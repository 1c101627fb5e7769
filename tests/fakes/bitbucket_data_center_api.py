"""A fake of Bitbucket Data Center's REST API 1.0, covering what pull requests need.

Requests match Bitbucket's API description (tests/data/forges/bitbucket-server.json, compared on
2026-11-22). The fake has never been compared with a real server. The response formats are from
developer.atlassian.com/server/bitbucket/rest/latest, "Pull Requests". `release` determines what the
server supports: auto-merge since 8.15, drafts since 8.18. The server silently ignores unknown
fields.
"""

import re
from typing import Any

from fakes.forge_server import ForgeServer, Note, Pull, Reply, Request

KEY, SLUG = "OPS", "deploy"
STATES = {"open": "OPEN", "merged": "MERGED", "closed": "DECLINED"}
LONGEST_TITLE, LONGEST_BODY = 255, 32768
_PULL = "com.atlassian.bitbucket.pull."
_CREATE = {"title", "description", "fromRef", "toRef", "reviewers", "draft"}
_CHANGE = {"version", "title", "description", "reviewers", "toRef", "draft"}


class BitbucketDataCenter(ForgeServer):
    """A repository in a project."""

    forge, api = "bitbucket-server", "/rest/api/1.0"

    def __init__(self) -> None:
        super().__init__()
        self.people = {"ann": "ann", "bob": "bob"}
        self.release = (8, 19, 3)
        self.page_size = 25
        self.auto_merge_allowed = True
        self.versions: dict[int, int] = {}  # the versions of comments
        self.all_checks_pass = False
        self.conflicts = False

    def answer(self, request: Request) -> Reply:
        if request.path == "/rest/api/1.0/application-properties":
            return Reply(
                200, {"version": ".".join(map(str, self.release)), "displayName": "Bitbucket"}
            )
        ours = f"/rest/api/1.0/projects/{KEY}/repos/{SLUG}"
        if not request.path.lower().startswith(f"{ours}/".lower()):
            return _error(
                404,
                "Repository does not exist.",
                "com.atlassian.bitbucket.repository.NoSuchRepository",
            )
        return self._in_repository(request, request.path[len(ours) + 1 :])

    def _in_repository(self, request: Request, path: str) -> Reply:
        if path == "pull-requests":
            return self._list(request) if request.method == "GET" else self._create(request)
        if path == "commits" and request.method == "GET":
            return self._commits(request)
        if match := re.fullmatch(r"pull-requests/(\d+)/(?:activities|comments(?:/(\d+))?)", path):
            pull = self.pull(match[1])
            if pull is None:
                return _error(404, "No such pull request", f"{_PULL}NoSuchPullRequestException")
            return self._comments(request, pull, match[2] or "")
        if match := re.fullmatch(r"pull-requests/(\d+)(/merge|/auto-merge|/decline|)", path):
            pull = self.pull(match[1])
            if pull is None:
                return _error(404, "No such pull request", f"{_PULL}NoSuchPullRequestException")
            return self._one(request, pull, match[2])
        self.wrong.append(f"{request.method} {request.path} is not documented")
        return _error(404, "Not found", "")

    def _comments(self, request: Request, pull: Pull, number: str) -> Reply:
        """Handle a request for comments. The newest activity comes first.

        Comments may be edited only by their authors, and the request must include the comment's
        version.
        """
        if request.method == "GET":
            found = [{"action": "COMMENTED", "commentAction": "ADDED", "comment": self._comment(one)}
                     for one in reversed(self.notes) if one.request == pull.number]  # fmt: skip
            found.append({"action": "OPENED"})
            start, size = int(request.one("start", "0")), int(request.one("limit", "25"))
            last = start + size >= len(found)
            values = found[start : start + size]
            return Reply(
                200,
                {
                    "values": values,
                    "isLastPage": last,
                    **({} if last else {"nextPageStart": start + size}),
                },
            )
        if not number:
            return Reply(201, self._comment(self.say(pull.number, request.body["text"])))
        if (note := self.note(number)) is None:
            return _error(
                404, "No such comment", "com.atlassian.bitbucket.comment.NoSuchCommentException"
            )
        if note.author != "image-bot":
            return _error(
                401, "You may not edit it", "com.atlassian.bitbucket.AuthorisationException"
            )
        if request.body["version"] != self.versions.get(note.number, 0):
            return _error(
                409, "It was changed", "com.atlassian.bitbucket.comment.CommentOutOfDateException"
            )
        note.body = request.body["text"]
        self.versions[note.number] = request.body["version"] + 1
        return Reply(200, self._comment(note))

    def _comment(self, note: Note) -> dict[str, Any]:
        return {"id": note.number, "version": self.versions.get(note.number, 0), "text": note.body}

    def _one(self, request: Request, pull: Pull, what: str) -> Reply:
        if (request.method, what) == ("GET", ""):
            return Reply(200, self.shown(pull))
        if (request.method, what) == ("PUT", ""):
            return self._change(request, pull)
        if (request.method, what) == ("POST", "/merge"):
            return self._merge(request, pull)
        if (request.method, what) == ("POST", "/decline"):
            if request.one("version") != str(pull.version):
                return _out_of_date(pull)
            self.decline(str(pull.number))
            return Reply(200, self.shown(pull))
        if (request.method, what) == ("GET", "/auto-merge"):
            return Reply(200, pull.auto) if pull.auto else Reply(204)
        self.wrong.append(f"{request.method} {request.path} is not documented")
        return _error(405, "Method not allowed", "")

    def _commits(self, request: Request) -> Reply:
        tip = self.branches.get(request.one("until").removeprefix("refs/heads/"))
        if not tip:
            return _error(
                404, "No such commit", "com.atlassian.bitbucket.commit.NoSuchCommitException"
            )
        return Reply(
            200,
            {
                "values": [{"id": tip, "displayId": tip[:11]}],
                "isLastPage": False,
                "nextPageStart": 1,
            },
        )

    def _list(self, request: Request) -> Reply:
        known = {"direction", "at", "state", "order", "start", "limit"}
        self.require(set(request.query) <= known, f"GET knows no {set(request.query) - known}")
        self.require(
            request.one("direction") == "OUTGOING",
            "a source branch is found among the outgoing ones",
        )
        self.require(request.one("at").startswith("refs/heads/"), "`at` is a full branch id")
        states = {"ALL": set(STATES), "MERGED": {"merged"}, "DECLINED": {"closed"}}
        wanted = states.get(request.one("state", "OPEN"), {"open"})
        head = request.one("at").removeprefix("refs/heads/")
        found = [one for one in self.pulls if one.head == head and one.state in wanted]
        if request.one("order", "NEWEST") == "NEWEST":
            found.reverse()
        start, size = (
            int(request.one("start", "0")),
            min(self.page_size, int(request.one("limit", "25"))),
        )
        last = start + size >= len(found)
        values = [self.shown(one) for one in found[start : start + size]]
        return Reply(
            200,
            {
                "size": len(values),
                "limit": size,
                "start": start,
                "isLastPage": last,
                "nextPageStart": None if last else start + size,
                "values": values,
            },
        )

    def _create(self, request: Request) -> Reply:
        body = request.body
        self.require(set(body) <= _CREATE, f"POST knows no {set(body) - _CREATE}")
        for side in ("fromRef", "toRef"):
            repository = body[side]["repository"]
            named = (repository["project"]["key"].lower(), repository["slug"].lower())
            self.require(named == (KEY.lower(), SLUG.lower()), f"{side} names another repository")
            self.require(body[side]["id"].startswith("refs/heads/"), f"{side} is no full branch id")
        head, base = (body[side]["id"].removeprefix("refs/heads/") for side in ("fromRef", "toRef"))
        if refusal := self._invalid(body):
            return refusal
        if head not in self.branches:
            return _error(
                404,
                f"{head} does not exist.",
                "com.atlassian.bitbucket.branch.NoSuchBranchException",
            )
        if self.branches[head] == self.branches.get(base):
            return _error(
                409,
                f"{head} is already up-to-date with {base}.",
                f"{_PULL}EmptyPullRequestException",
            )
        for pull in self.open:
            if (pull.head, pull.base, pull.fork) == (head, base, False):
                said = "Only one pull request may be open for a given source and target branch"
                reply = _error(409, said, f"{_PULL}DuplicatePullRequestException")
                reply.body["errors"][0]["existingPullRequest"] = self.shown(pull)
                return reply
        pull = self.add(
            base=base,
            head=head,
            title=body["title"],
            body=body.get("description", ""),
            draft=self.release >= (8, 18) and body.get("draft", False),
            reviewers=[one["user"]["name"] for one in body.get("reviewers", [])],
        )
        return Reply(201, self.shown(pull))

    def _change(self, request: Request, pull: Pull) -> Reply:
        body = request.body
        self.require(set(body) <= _CHANGE, f"PUT knows no {set(body) - _CHANGE}")
        self.require("version" in body, "PUT needs the version")
        if pull.state != "open":
            return _error(
                409, "This pull request is not open.", f"{_PULL}IllegalPullRequestStateException"
            )
        if body["version"] != pull.version:
            return _out_of_date(pull)
        if refusal := self._invalid(body):
            return refusal
        pull.version += 1
        pull.title, pull.body = body.get("title", pull.title), body.get("description", "")
        pull.reviewers = [
            one["user"]["name"] for one in body.get("reviewers", [])
        ]  # a request without reviewers removes all of them
        return Reply(200, self.shown(pull))

    def _invalid(self, body: dict[str, Any]) -> Reply | None:
        if not 0 < len(body["title"]) <= LONGEST_TITLE:
            return _error(
                400,
                "Please enter a valid title.",
                "com.atlassian.bitbucket.validation.Argument",
                "title",
            )
        if len(body.get("description", "")) > LONGEST_BODY:
            return _error(
                400,
                "The description is too long.",
                "com.atlassian.bitbucket.validation",
                "description",
            )
        unknown = [
            one["user"]["name"]
            for one in body.get("reviewers", [])
            if one["user"]["name"] not in self.people
        ]
        if not unknown:
            return None
        said = "Errors encountered while adding some reviewers to this pull request."
        reply = _error(409, said, f"{_PULL}InvalidPullRequestReviewersException", "reviewers")
        reply.body["errors"][0]["reviewerErrors"] = [
            {"context": name, "message": f"{name} is not a user.", "exceptionName": None}
            for name in unknown
        ]
        reply.body["errors"][0]["validReviewers"] = []
        return reply

    def _merge(self, request: Request, pull: Pull) -> Reply:
        self.require(self.release >= (8, 15), "merges at once: this release knows no auto-merge")
        self.require(request.body.get("autoMerge") is True, "merges whatever the checks say")
        if request.one("version") != str(pull.version):
            return _out_of_date(pull)
        if not self.auto_merge_allowed:
            return _error(
                403,
                "Auto-merge is not enabled for this repository.",
                f"{_PULL}AutoMergeDisabledException",
            )
        if self.all_checks_pass:
            self.merge(str(pull.number))
        else:
            pull.auto = {
                "createdDate": 1763706000000,
                "fromHash": self.branches[pull.head],
                "toRefId": pull.base,
            }
        return Reply(200, self.shown(pull))

    def shown(self, pull: Pull) -> dict[str, Any]:
        """Return a pull request as the API returns it."""
        repository = {"slug": SLUG, "project": {"key": KEY}}
        into = (
            {"slug": "upstream", "project": {"key": "UP"}} if pull.fork else repository
        )  # our repository is the fork
        draft = {"draft": pull.draft} if self.release >= (8, 18) else {}
        properties: dict[str, Any] = {
            "mergeResult": {"outcome": "CONFLICTED" if self.conflicts else "CLEAN"}
        }
        if pull.merge_commit:
            properties["mergeCommit"] = {
                "id": pull.merge_commit,
                "displayId": pull.merge_commit[:11],
            }
        return {
            "id": pull.number,
            "version": pull.version,
            "title": pull.title,
            **({"description": pull.body} if pull.body else {}),
            "state": STATES[pull.state],
            "open": pull.state == "open",
            "closed": pull.state != "open",
            "fromRef": {
                "id": f"refs/heads/{pull.head}",
                "displayId": pull.head,
                "latestCommit": self.branches.get(pull.head, "a" * 40),
                "repository": repository,
            },
            "toRef": {"id": f"refs/heads/{pull.base}", "displayId": pull.base, "repository": into},
            "reviewers": [
                {"user": {"name": name, "slug": name}, "role": "REVIEWER"}
                for name in pull.reviewers
            ],
            "links": {
                "self": [
                    {"href": f"{self.url}/projects/{KEY}/repos/{SLUG}/pull-requests/{pull.number}"}
                ]
            },
            **draft,
            "properties": properties,
        }

    def refusal(self, kind: str) -> Reply:
        if kind == "unauthorized":
            name = "com.atlassian.bitbucket.auth.IncorrectPasswordAuthenticationException"
            return _error(
                401, "Authentication failed. Please check your credentials and try again.", name
            )
        if kind == "forbidden":  # like a wrong login, this results in a 401
            name = "com.atlassian.bitbucket.AuthorisationException"
            return _error(401, "You are not permitted to access this resource", name)
        if kind == "limited":
            return _error(429, "You have been rate limited.", "com.atlassian.bitbucket.RateLimited")
        if kind == "invalid":
            return _error(
                400,
                "Please enter a valid title.",
                "com.atlassian.bitbucket.validation.Argument",
                "title",
            )
        return Reply(503, "<html><body>Bitbucket is starting up</body></html>")


def _out_of_date(pull: Pull) -> Reply:
    said = "You are attempting to modify a pull request based on out-of-date information."
    reply = _error(409, said, f"{_PULL}PullRequestOutOfDateException")
    reply.body["errors"][0]["currentVersion"] = pull.version
    return reply


def _error(status: int, message: str, name: str, context: str | None = None) -> Reply:
    return Reply(
        status, {"errors": [{"context": context, "message": message, "exceptionName": name}]}
    )

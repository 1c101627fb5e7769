"""A fake of Azure DevOps' REST API 7.1, covering what pull requests need.

Requests match those of Microsoft's own clients (tests/data/forges/azure.json, compared on
2026-11-22). The fake has never been compared with a real server. The response formats are from
learn.microsoft.com/rest/api/azure/devops/git, "Pull Requests", "Pull Request Labels", "…
Reviewers", "Refs", and "Identities". Lists truncate descriptions to 400 characters, and do not
include labels.
"""

import base64
import re
from typing import Any

from fakes.forge_server import ForgeServer, Note, Pull, Reply, Request

ORGANIZATION, PROJECT, REPOSITORY = "acme", "Web Shop", "deploy"
STATES = {"open": "active", "merged": "completed", "closed": "abandoned"}
ANN, BOB = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
PROJECT_ID = "22222222-2222-4222-8222-222222222222"
ME, REPOSITORY_ID = "99999999-9999-4999-8999-999999999999", "33333333-3333-4333-8333-333333333333"
LONGEST_BODY, LONGEST_IN_A_LIST = 4000, 400
SIGN_IN = "<html><head><title>Azure DevOps Services | Sign In</title></head></html>"
_CREATE = {"sourceRefName", "targetRefName", "title", "description", "isDraft", "reviewers"}
_CHANGE = {"title", "description", "status", "autoCompleteSetBy", "completionOptions"}


class AzureDevOps(ForgeServer):
    """A repository in a project."""

    login = "Basic " + base64.b64encode(b":good-token").decode()
    forge, api = "azure", f"/{ORGANIZATION}"

    def __init__(self) -> None:
        super().__init__()
        self.people = {"ann@example.com": ANN, "bob@example.com": BOB}
        self.version = "7.1"  # the newest API version that the server supports
        self.policies: list[dict[str, Any]] = []
        self.conflicts = False

    def answer(self, request: Request) -> Reply:
        if refusal := self._too_new(request):
            return refusal
        if request.path == f"/{ORGANIZATION}/_apis/identities":
            return self._identities(request)
        if request.path == f"/{ORGANIZATION}/{PROJECT}/_apis/git/policy/configurations":
            self.require(
                request.one("repositoryId") == REPOSITORY_ID, "policies by the repository's id"
            )
            return Reply(200, {"value": self.policies, "count": len(self.policies)})
        if request.path.startswith(f"/{ORGANIZATION}/_apis/accesscontrollists/"):
            return Reply(200, {"count": 0, "value": []})
        if request.path == f"/{ORGANIZATION}/{PROJECT}/_apis/git/repositories/{REPOSITORY}":
            return Reply(200, {"id": REPOSITORY_ID, "project": {"id": PROJECT_ID}})
        ours = f"/{ORGANIZATION}/{PROJECT}/_apis/git/repositories/{REPOSITORY}/"
        if not request.path.startswith(ours):
            said = "TF401019: The Git repository with name or identifier does not exist or you do not have permissions"
            return _error(404, said, "GitRepositoryNotFoundException")
        return self._in_repository(request, request.path.removeprefix(ours))

    def _in_repository(self, request: Request, path: str) -> Reply:
        if path == "refs" and request.method == "GET":
            wanted = f"refs/{request.one('filter')}"
            names = sorted(
                name
                for name in (f"refs/heads/{one}" for one in self.branches)
                if name.startswith(wanted)
            )
            values = [
                {"name": one, "objectId": self.branches[one.removeprefix("refs/heads/")]}
                for one in names
            ]
            return Reply(200, {"value": values, "count": len(values)})
        if path == "pullrequests":
            return self._list(request) if request.method == "GET" else self._create(request)
        if match := re.fullmatch(r"pullRequests/(\d+)/threads(?:/(\d+)/comments/(\d+))?", path):
            pull = self.pull(match[1])
            if pull is None:
                said = "TF401180: The requested pull request was not found."
                return _error(404, said, "GitPullRequestNotFoundException")
            return self._discussion(request, pull, match[2] or "")
        match = re.fullmatch(r"pull[rR]equests/(\d+)(?:/(labels|reviewers)(?:/([^/]+))?)?", path)
        pull = self.pull(match[1]) if match else None
        if match is None or pull is None:
            self.require(match, f"{request.method} {request.path} is not documented")
            return _error(
                404,
                "TF401180: The requested pull request was not found.",
                "GitPullRequestNotFoundException",
            )
        if match[2] == "labels":
            return self._labels(request, pull)
        if match[2] == "reviewers":
            return self._review(request, pull, match[3])
        return (
            Reply(200, self.shown(pull)) if request.method == "GET" else self._change(request, pull)
        )

    def _discussion(self, request: Request, pull: Pull, number: str) -> Reply:
        """Handle a request for comment threads. Azure itself starts some threads. Comments may be
        edited only by their authors.
        """
        if request.method == "GET":
            threads = [
                {"id": 1, "comments": [{"id": 1, "content": "Bob joined", "commentType": "system"}]}
            ]
            threads += [_thread(one) for one in self.notes if one.request == pull.number]
            return Reply(200, {"value": threads, "count": len(threads)})
        if not number:
            (first,) = request.body["comments"]
            return Reply(200, _thread(self.say(pull.number, first["content"])))
        if (note := self.note(number)) is None:
            return _error(
                404, "The thread was not found", "GitPullRequestCommentThreadNotFoundException"
            )
        if note.author != "image-bot":
            return _error(
                403,
                "You can edit only comments of your own.",
                "GitPullRequestCommentPermissionException",
            )
        note.body = request.body["content"]
        return Reply(200, _thread(note)["comments"][0])

    def _too_new(self, request: Request) -> Reply | None:
        version = request.one("api-version")
        self.require(
            re.fullmatch(r"\d\.\d", version), f"{request.path}: api-version is {version!r}"
        )
        if version <= self.version:
            return None
        said = f"The requested REST API version of {version} is out of range for this server. The latest REST API "
        return _error(
            400,
            f"{said}version this server supports is {self.version}.",
            "VssVersionOutOfRangeException",
        )

    def _list(self, request: Request) -> Reply:
        known = {f"searchCriteria.{name}" for name in ("sourceRefName", "targetRefName", "status")}
        self.require(
            set(request.query) <= {*known, "$top", "$skip", "api-version"},
            f"unknown: {request.query}",
        )
        status, found = request.one("searchCriteria.status", "active"), []
        for pull in reversed(self.pulls):
            shown = self.shown(pull)
            shown["description"] = shown["description"][:LONGEST_IN_A_LIST]
            del shown["labels"]
            ends = (shown["sourceRefName"], shown["targetRefName"])
            asked = (
                request.one("searchCriteria.sourceRefName"),
                request.one("searchCriteria.targetRefName"),
            )
            if ends == asked and status in ("all", shown["status"]):
                found.append(shown)
        return Reply(200, {"value": found, "count": len(found)})

    def _create(self, request: Request) -> Reply:
        body = request.body
        self.require(set(body) <= _CREATE, f"POST knows no {set(body) - _CREATE}")
        head, base = (
            body[side].removeprefix("refs/heads/") for side in ("sourceRefName", "targetRefName")
        )
        self.require(body["sourceRefName"].startswith("refs/heads/"), "sourceRefName is a full ref")
        if refusal := self._invalid(body):
            return refusal
        if head not in self.branches or base not in self.branches:
            said = "TF401398: The pull request cannot be activated because the source and/or the target branch no "
            return _error(
                400,
                f"{said}longer exists, or the requested refs are not branches",
                "GitPullRequestException",
            )
        if any((one.head, one.base, one.fork) == (head, base, False) for one in self.open):
            said = (
                "TF401179: An active pull request for the source and target branch already exists."
            )
            return _error(409, said, "GitPullRequestExistsException")
        pull = self.add(
            base=base,
            head=head,
            title=body["title"],
            body=body.get("description", ""),
            draft=body.get("isDraft", False),
            reviewers=[one["id"] for one in body.get("reviewers", [])],
        )
        return Reply(201, self.shown(pull))

    def _change(self, request: Request, pull: Pull) -> Reply:
        body = request.body
        self.require(
            request.method == "PATCH", f"{request.method} {request.path} is not documented"
        )
        self.require(set(body) <= _CHANGE, f"PATCH knows no {set(body) - _CHANGE}")
        if pull.state != "open":
            said = "TF401181: The pull request cannot be edited due to its state."
            return _error(403, said, "GitPullRequestNotEditableException")
        if refusal := self._invalid({"title": pull.title, **body}):
            return refusal
        pull.title, pull.body = body.get("title", pull.title), body.get("description", pull.body)
        self.require(body.get("status", "abandoned") == "abandoned", f"status={body.get('status')}")
        if "status" in body:
            self.decline(str(pull.number))
        if setter := body.get("autoCompleteSetBy"):
            if setter["id"] != ME or pull.draft:
                return _error(
                    400, "TF401192: Auto-complete cannot be set.", "InvalidArgumentValueException"
                )
            pull.auto = body["completionOptions"]
        return Reply(200, self.shown(pull))

    def _invalid(self, body: dict[str, Any]) -> Reply | None:
        if not body["title"]:
            return self.refusal("invalid")
        if len(body.get("description", "")) > LONGEST_BODY:
            said = "Invalid argument value. Parameter name: A description for a pull request must not be longer than 4000"
            return _error(400, f"{said} characters.", "InvalidArgumentValueException")
        return None

    def _labels(self, request: Request, pull: Pull) -> Reply:
        if request.method == "POST":
            self.require(set(request.body) == {"name"}, "a label has a name")
            pull.labels.append(request.body["name"])
        values = [{"id": f"id-{name}", "name": name, "active": True} for name in pull.labels]
        return Reply(
            200, {"value": values, "count": len(values)} if request.method == "GET" else values[-1]
        )

    def _review(self, request: Request, pull: Pull, identity: str) -> Reply:
        self.require(request.method == "PUT", f"{request.method} {request.path} is not documented")
        self.require(
            isinstance(request.body, dict) and request.body.get("vote") == 0,
            "nobody votes for others",
        )
        if identity not in (ANN, BOB):
            return _error(
                400, f"TF400898: The identity {identity} is not valid.", "InvalidIdentityException"
            )
        pull.reviewers.append(identity)
        return Reply(200, {"id": identity, "vote": 0})

    def _identities(self, request: Request) -> Reply:
        self.require(request.one("searchFilter") == "General", f"identities by {request.query}")
        wanted = request.one("filterValue").casefold()
        found = [
            {
                "id": identity,
                "providerDisplayName": address.partition("@")[0].title(),
                "properties": {
                    "Account": {"$type": "System.String", "$value": address},
                    "Mail": {"$value": address},
                },
            }
            for address, identity in self.people.items()
            if address.startswith(wanted)
        ]
        return Reply(200, {"value": found, "count": len(found)})

    def shown(self, pull: Pull) -> dict[str, Any]:
        """Return a pull request as the API returns it."""
        api = f"{self.url}/{ORGANIZATION}/_apis/git/repositories/{REPOSITORY_ID}"
        shown: dict[str, Any] = {
            "repository": {"id": REPOSITORY_ID, "name": REPOSITORY, "url": api},
            "pullRequestId": pull.number,
            "status": STATES[pull.state],
            "createdBy": {"id": ME, "displayName": "Build Service"},
            "title": pull.title,
            "description": pull.body,
            "sourceRefName": f"refs/heads/{pull.head}",
            "targetRefName": f"refs/heads/{pull.base}",
            "mergeStatus": "conflicts" if self.conflicts else "succeeded",
            "isDraft": pull.draft,
            "lastMergeSourceCommit": {"commitId": self.branches.get(pull.head, "a" * 40)},
            "lastMergeCommit": {"commitId": pull.merge_commit or "d" * 40},
            "reviewers": [{"id": one, "vote": 0} for one in pull.reviewers],
            "labels": [{"name": one} for one in pull.labels],
            "url": f"{api}/pullRequests/{pull.number}",
        }
        if pull.auto is not None:
            shown |= {"autoCompleteSetBy": {"id": ME}, "completionOptions": pull.auto}
        if pull.fork:
            shown["forkSource"] = {"name": "refs/heads/x", "repository": {"id": "fork"}}
        return shown

    def refusal(self, kind: str) -> Reply:
        if kind == "unauthorized":
            return Reply(203, SIGN_IN)
        if kind == "forbidden":
            said = "TF401027: You need the Git 'PullRequestContribute' permission to perform this action."
            return _error(403, said, "GitNeedsPermissionException")
        if kind == "limited":
            return _error(
                429,
                "TF400733: The request has been canceled: Request was blocked due to exceeding usage.",
                "",
            )
        if kind == "invalid":
            return _error(
                400,
                "TF401175: A title for the pull request is required.",
                "InvalidArgumentValueException",
            )
        return Reply(503, "<html><body>Service Unavailable</body></html>")


def _error(status: int, message: str, key: str) -> Reply:
    return Reply(
        status,
        {"$id": "1", "innerException": None, "message": message, "typeKey": key, "errorCode": 0},
    )


def _thread(note: Note) -> dict[str, Any]:
    return {"id": note.number, "comments": [{"id": 1, "content": note.body, "commentType": "text"}]}

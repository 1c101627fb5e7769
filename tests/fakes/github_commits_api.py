"""A fake of GitHub's API for commits, backed by a real bare repository: branches (REST),
`createCommitOnBranch`, and `updateRefs`.

Mutations are checked against GitHub's own schema (tests/data/forges/github.graphql, compared on
2026-11-22), and requests for branches against its API description. A stale head is rejected with
the message that GitHub used in 2025-11.
"""

import os
import subprocess
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fakes.forge_server import Reply, Request
from fakes.github_api import NAME, GitHub
from support import AUTHOR, git

from task.forges.github_commits import REPOSITORY

NODE = "R_1"  # the repository's ID in GraphQL
NOWHERE = "0" * 40
STALE = 'Expected branch to point to "{}" but it did not.  Pull and try again.'


class CommittingGitHub(GitHub):
    """A fake GitHub whose repository is in a folder. Commits are created with git's plumbing
    commands, and their author differs from that of a run.
    """

    def __init__(self, repo: Path) -> None:
        super().__init__()
        self.repo = repo
        self.refuses = (
            ""  # the message with which every commit is rejected because of the branch's rules
        )
        self.refuses_moves = ""  # the message with which moving a branch is refused

    def serve(self, request: Request) -> Reply:
        if (
            request.path == "/api/v3/app/installations/34/access_tokens"
        ):  # authenticated by the app's JWT, not by a token
            return Reply(201, {"token": self.login.removeprefix("Bearer ")})
        return super().serve(request)

    def _work(self, request: Request, path: str) -> Reply:
        refs = f"/repos/{NAME}/git/refs"
        if path == refs:
            name, oid = request.body["ref"], request.body["sha"]
            if not self._move(name, NOWHERE, oid):
                return _error(422, "Reference already exists")
            shown = {"type": "commit", "sha": oid, "url": "https://x.example"}
            return Reply(
                201, {"ref": name, "node_id": "R1", "url": "https://x.example", "object": shown}
            )
        if path.startswith(f"{refs}/"):
            name = f"refs/{path.removeprefix(f'{refs}/')}"
            if not self._at(name):
                return _error(422, "Reference does not exist")
            git(self.repo, "update-ref", "-d", name)
            return Reply(204)
        return super()._work(request, path)

    def _graphql_answer(self, request: Request) -> Reply:
        if request.body["query"] == REPOSITORY:
            return Reply(200, {"data": {"repository": {"id": NODE}}})
        given = request.body["variables"]["input"]
        if "createCommitOnBranch" in request.body["query"]:
            return self._commit(given)
        return (
            self._update(given)
            if "updateRefs" in request.body["query"]
            else super()._graphql_answer(request)
        )

    def _commit(self, given: Mapping[str, Any]) -> Reply:
        name = "createCommitOnBranch"
        if given["branch"]["repositoryNameWithOwner"] != NAME:
            text = f"Could not resolve to a Repository with the name '{given['branch']['repositoryNameWithOwner']}'."
            return _failed(name, "NOT_FOUND", text)
        if self.refuses:
            return _failed(name, "UNPROCESSABLE", self.refuses)
        ref, tip = f"refs/heads/{given['branch']['branchName']}", given["expectedHeadOid"]
        if not self._at(ref) or self._at(ref) != tip:
            return _failed(name, "STALE_DATA", STALE.format(tip))
        index = {"GIT_INDEX_FILE": str(self.repo / "api-index")}
        self._git("read-tree", tip, env=index)
        changes = given["fileChanges"]
        lines = [f"0 {NOWHERE}\t{one['path']}" for one in changes["deletions"]]
        for one in changes["additions"]:
            blob = self._git(
                "hash-object", "-w", "--stdin", stdin=b64decode(one["contents"], validate=True)
            )
            lines.append(f"100644 {blob}\t{one['path']}")
        self._git(
            "update-index",
            "-z",
            "--index-info",
            stdin="".join(f"{line}\0" for line in lines).encode(),
            env=index,
        )
        tree = self._git("write-tree", env=index)
        message = "\n\n".join(
            filter(None, (given["message"]["headline"], given["message"].get("body")))
        )
        commit = self._git("commit-tree", tree, "-p", tip, "-m", message)
        if not self._move(ref, tip, commit):
            return _failed(name, "STALE_DATA", STALE.format(tip))
        return Reply(200, {"data": {name: {"commit": {"oid": commit}}}})

    def _update(self, given: Mapping[str, Any]) -> Reply:
        if self.refuses_moves:
            return _failed("updateRefs", "UNPROCESSABLE", self.refuses_moves)
        self.require(given["repositoryId"] == NODE, f"updateRefs: {given['repositoryId']}")
        lines = ["start"]
        for one in given["refUpdates"]:
            self.require(one["name"].startswith("refs/heads/"), f"updateRefs: {one['name']}")
            before, after = (
                one.get("beforeOid") or self._at(one["name"]) or NOWHERE,
                one["afterOid"],
            )
            self.require(one.get("force") or before == NOWHERE, "updateRefs: moved without force")
            lines.append(f"update {one['name']} {after} {before}")
        try:
            self._git("update-ref", "--stdin", stdin="\n".join([*lines, "commit\n"]).encode())
        except subprocess.CalledProcessError:
            return _failed("updateRefs", "UNPROCESSABLE", "A ref could not be updated")
        return Reply(200, {"data": {"updateRefs": {"clientMutationId": None}}})

    def _at(self, ref: str) -> str:
        return git(self.repo, "for-each-ref", "--format=%(objectname)", ref)

    def _move(self, ref: str, old: str, new: str) -> bool:
        try:
            self._git("update-ref", ref, new, old)
        except subprocess.CalledProcessError:
            return False
        return True

    def _git(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        environ = {**os.environ, **AUTHOR, **(env or {})}
        done = subprocess.run(
            ["git", *args], cwd=self.repo, input=stdin, env=environ, capture_output=True, check=True
        )
        return done.stdout.decode().strip()


def _failed(name: str, kind: str, message: str) -> Reply:
    error = {
        "type": kind,
        "path": [name],
        "locations": [{"line": 1, "column": 48}],
        "message": message,
    }
    return Reply(200, {"data": {name: None}, "errors": [error]})


def _error(status: int, message: str) -> Reply:
    return Reply(
        status,
        {
            "message": message,
            "documentation_url": "https://docs.github.com/rest",
            "status": str(status),
        },
    )

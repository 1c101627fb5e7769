"""GitHub's auto-merge and merge queue, and its answers if there is neither."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from task.forges.client import Client
from task.forges.host import Notes
from task.model import Proposed
from task.text import one_line

ENABLE = (
    "mutation($input: EnablePullRequestAutoMergeInput!) "
    "{ enablePullRequestAutoMerge(input: $input) { pullRequest { state autoMergeRequest { enabledAt } } } }"
)
ENQUEUE = (
    "mutation($input: EnqueuePullRequestInput!) { enqueuePullRequest(input: $input) { mergeQueueEntry { position } } }"
)
METHODS = (("MERGE", "allow_merge_commit"), ("SQUASH", "allow_squash_merge"), ("REBASE", "allow_rebase_merge"))
# GitHub has nothing to wait for: no requirement, or none that is not met.
_READY = re.compile(r"(?:clean|unstable|has_hooks) status|protected branch rules not configured")
_METHOD = re.compile(r"merge method|(?:merge commits|squash merges|rebase merges) are not allowed")
SETTING = 'the repository\'s setting "Allow auto-merge" switches it on'


class AutoMerge:
    """One pull request that GitHub should merge once its requirements are met."""

    def __init__(self, client: Client, repository: str, pull: Mapping[str, Any], commit: str, notes: Notes) -> None:
        """`commit` is what shall be merged, and nothing that is pushed later."""
        self._client, self._repository, self._pull, self._notes = client, repository, pull, notes
        self._commit = commit
        allowed = self._pull["base"].get("repo") or {}  # GitHub shows the settings only to those who may push
        self._methods = [name for name, setting in METHODS if allowed.get(setting, True)] or ["MERGE"]

    def switch_on(self, done: Proposed) -> Proposed:
        """Turn on auto-merge, unless the request is in the queue or merged already. If that fails, notes say why."""
        if self._pull.get("auto_merge"):
            return done
        said, left = "", self._methods
        for number, method in enumerate(self._methods):
            said, left = self._mutation(ENABLE, {"mergeMethod": method}), self._methods[number:]
            if not said:
                return done
            if not _METHOD.search(said.lower()):
                break
        if _READY.search(said.lower()):
            return self._merged_now(done, left)
        hint = f" ({SETTING})" if "auto merge is not allowed" in said.lower() else ""
        self._notes.add(f"GitHub cannot merge it by itself: {said}{hint}", "auto-merge")
        return done

    def _merged_now(self, done: Proposed, methods: Sequence[str]) -> Proposed:
        """Merge it, or join the queue, because GitHub does not wait if there is nothing to wait for."""
        path, said = f"{self._repository}/pulls/{done.number}/merge", ""
        for method in methods:
            body = {"sha": self._commit, "merge_method": method.lower()}
            answer = self._client.ask("PUT", path, "merge it", json=body, fine=(403, 405, 409, 422))
            if answer.status == 200:
                self._notes.add("nothing was required of it: it is merged already")
                merged = self._client.parsed(answer, "merge it").get("sha")
                return replace(done, state="merged", merge_commit=str(merged or ""))
            said = self._client.words(answer)
            if not _METHOD.search(said.lower()):
                break
        if "merge queue" in said.lower():
            said = self._mutation(ENQUEUE, {})
        if said:
            self._notes.add(f"GitHub cannot merge it by itself: {said}", "auto-merge")
        return done

    def _mutation(self, query: str, what: Mapping[str, str]) -> str:
        """Return GitHub's objection, or "" if it is done."""
        given = {"pullRequestId": self._pull["node_id"], "expectedHeadOid": self._commit, **what}
        body = {"query": query, "variables": {"input": given}}
        answer = self._client.ask("POST", graphql(self._client.reach.place.api), "switch on auto-merge", json=body)
        return "; ".join(_errors(self._client.parsed(answer, "switch on auto-merge")))


def graphql(api: str) -> str:
    """Return the address of GraphQL. On Enterprise Server, it is one folder above that of REST."""
    return f"{api.removesuffix('/v3')}/graphql"


def _errors(said: Mapping[str, Any]) -> list[str]:
    """Return the errors of a GraphQL answer, which has status 200 even then."""
    errors = said.get("errors") or []
    found = [str(one.get("message", "")).strip('[]"') for one in errors]
    return [one_line(text)[:300] for text in found] or (["it says nothing more"] if errors else [])

"""GitHub's auto-merge and merge queue, and its answers if there is neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from task.forges.client import Client
from task.forges.notes import Notes
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
SETTING = 'the repository\'s setting "Allow auto-merge" switches it on'


class AutoMerge:
    """One pull request that GitHub should merge once its requirements are met."""

    def __init__(self, client: Client, repository: str, pull: Mapping[str, Any], notes: Notes) -> None:
        self._client, self._repository, self._pull, self._notes = client, repository, pull, notes
        allowed = self._pull["base"].get("repo") or {}  # GitHub shows the settings only to those who may push
        self._methods = [name for name, setting in METHODS if allowed.get(setting, True)] or ["MERGE"]

    def switch_on(self, done: Proposed) -> Proposed:
        """Turn on auto-merge, unless the request is in the queue or merged already. If that fails, notes say why."""
        if self._pull.get("auto_merge"):
            return done
        said = ""
        for method in self._methods:
            said = self._mutation(ENABLE, {"mergeMethod": method})
            if not said:
                return done
            if "merge method" not in said.lower():
                break
        if "clean status" in said.lower():  # GitHub does not wait if there is nothing to wait for
            return self._merged_now(done)
        hint = f" ({SETTING})" if "auto merge is not allowed" in said.lower() else ""
        self._notes.add(f"GitHub cannot merge it by itself: {said}{hint}")
        return done

    def _merged_now(self, done: Proposed) -> Proposed:
        """All requirements are met, so merge exactly the commit that was read, or join the queue."""
        path = f"{self._repository}/pulls/{done.number}/merge"
        body = {"sha": done.head_commit, "merge_method": self._methods[0].lower()}
        answer = self._client.ask("PUT", path, "merge it", json=body, fine=(403, 405, 409, 422))
        if answer.status == 200:
            self._notes.add("nothing was required of it: it is merged already")
            return replace(
                done, state="merged", merge_commit=str(self._client.parsed(answer, "merge it").get("sha") or "")
            )
        said = self._client.words(answer)
        if "merge queue" in said.lower():
            said = self._mutation(ENQUEUE, {"expectedHeadOid": done.head_commit})
        if said:
            self._notes.add(f"GitHub cannot merge it by itself: {said}")
        return done

    def _mutation(self, query: str, what: Mapping[str, str]) -> str:
        """Return GitHub's objection, or "" if it is done."""
        body = {"query": query, "variables": {"input": {"pullRequestId": self._pull["node_id"], **what}}}
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

"""Automatic merges on GitHub: through auto-merge, through the merge queue, or immediately if
nothing is pending.

GitHub may report success without enabling auto-merge, and returns `auto_merge: null` for a request
in a queue. So read the request's GraphQL fields `autoMergeRequest` and `isInMergeQueue`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from task.forges.client import Client
from task.forges.host import Notes
from task.model import Proposed
from task.plain_data import dig, mappings, value_at
from task.text import one_line

SHOWN = "state autoMergeRequest { enabledAt } isInMergeQueue isMergeQueueEnabled"
ENABLE = (
    "mutation($input: EnablePullRequestAutoMergeInput!) "
    f"{{ enablePullRequestAutoMerge(input: $input) {{ pullRequest {{ {SHOWN} }} }} }}"
)
ENQUEUE = (
    "mutation($input: EnqueuePullRequestInput!) "
    "{ enqueuePullRequest(input: $input) { mergeQueueEntry { position } } }"
)
LOOK = (
    "query($owner: String!, $name: String!, $number: Int!) "
    "{ repository(owner: $owner, name: $name) { pullRequest(number: $number) "
    f"{{ {SHOWN} timelineItems(last: 1, itemTypes: [ADDED_TO_MERGE_QUEUE_EVENT, "
    "REMOVED_FROM_MERGE_QUEUE_EVENT, AUTO_MERGE_DISABLED_EVENT]) { nodes { __typename "
    "... on RemovedFromMergeQueueEvent { reason actor { __typename login } } } } } } }"
)
METHODS = (
    ("MERGE", "allow_merge_commit"),
    ("SQUASH", "allow_squash_merge"),
    ("REBASE", "allow_rebase_merge"),
)
# GitHub's objections if there is nothing to wait for: there are no requirements, or all of them are
# met.
_READY = re.compile(r"(?:clean|unstable|has_hooks) status|protected branch rules not configured")
_METHOD = re.compile(r"merge method|(?:merge commits|squash merges|rebase merges) are not allowed")
_SILENT = "the API call succeeded, but the request has neither auto-merge nor a merge queue entry"
_MERGED = "no checks or reviews were required, so it is already merged"
_UNTOLD = "without giving a reason"


def graphql(api: str) -> str:
    """Return the GraphQL URL. On Enterprise Server, it is one path segment above the REST API."""
    return f"{api.removesuffix('/v3')}/graphql"


@dataclass(frozen=True)
class MergeState:
    """The state of a request that GitHub may merge automatically."""

    waits: bool = False  # auto-merge is on, or the request is in the merge queue
    merged: bool = False
    has_queue: bool = False  # its base branch has a merge queue


class AutoMerge:
    """Sets up automatic merges for a repository's pull requests on GitHub, and reports why the
    merge queue removed one.
    """

    def __init__(self, client: Client, owner: str, name: str) -> None:
        self._client = client
        self._owner = owner
        self._name = name

    def removal_reason(self, number: str) -> str:
        """Return the reason why the merge queue removed the pull request. Return "" if the removal
        is not the request's latest event.

        Also return "" if a person removed the request from the queue.
        """
        merge_state, event = self._look_up(number)
        if merge_state.waits or dig(event, "__typename") != "RemovedFromMergeQueueEvent":
            return ""
        # a removal by a person has the reason `manual`, or no reason and a person as its actor
        reason = one_line(dig(event, "reason"))[:100].replace("_", " ")
        by_person = "manual" in reason.lower() if reason else _is_person(event)
        if by_person:
            return ""
        return f"GitHub's merge queue removed it ({reason or _UNTOLD})"

    def switch_on(
        self,
        pull: Mapping[str, Any],
        request: Proposed,
        commit: str,
        notes: Notes,
    ) -> Proposed:
        """Turn on auto-merge for exactly this commit, or add the pull request to its merge queue,
        or merge it now if there is nothing to wait for. Return the request.

        `pull` is GitHub's data about the request. If GitHub objects, its message becomes a note.
        """
        # Try the merge methods in turn until GitHub does not object to the method itself. After the
        # loop, `methods` begins with that method.
        methods = _allowed_methods(pull)
        data: Any = None
        objection = ""
        while methods:
            data, objection = self._mutate(pull, commit, ENABLE, {"mergeMethod": methods[0]})
            if not _rejects_method(objection):
                break  # auto-merge is on, or trying another method would not help
            methods = methods[1:]

        if not objection:  # success
            merge_state = _merge_state(value_at(data, "enablePullRequestAutoMerge", "pullRequest"))
            return self._after_success(pull, request, commit, merge_state, notes)
        if _READY.search(objection.lower()):  # there is nothing to wait for
            return self._merge_now(pull, request, commit, methods, notes)

        merge_state, _event = self._look_up(request.number)
        if merge_state.waits:  # auto-merge is on, or the request is queued, despite the objection
            return request
        if merge_state.has_queue:
            objection = self._enqueue(pull, commit)
        elif "auto merge is not allowed" in objection.lower():
            objection += ' (turn on "Allow auto-merge" in the repository\'s settings)'
        _note_objection(objection, notes)
        return request

    def _after_success(
        self,
        pull: Mapping[str, Any],
        request: Proposed,
        commit: str,
        merge_state: MergeState,
        notes: Notes,
    ) -> Proposed:
        """Return the request after GitHub has reported success. That does not always mean that
        auto-merge is on: GitHub may have merged the request, or done nothing. If it has done
        nothing, add the request to the merge queue if there is one.

        `merge_state` is the request's state in GitHub's response.
        """
        if merge_state.merged:
            notes.add(_MERGED)
            merged_pull = self._client.json(
                "GET",
                f"{self._client.path}/pulls/{request.number}",
                "read the pull request",
            )
            merge_commit = dig(merged_pull, "merge_commit_sha")
            return replace(request, state="merged", merge_commit=merge_commit)
        if merge_state.waits:
            return request
        objection = self._enqueue(pull, commit) if merge_state.has_queue else _SILENT
        _note_objection(objection, notes)
        return request

    def _merge_now(
        self,
        pull: Mapping[str, Any],
        request: Proposed,
        commit: str,
        methods: Sequence[str],
        notes: Notes,
    ) -> Proposed:
        """Merge the pull request at once with the first of the `methods` that GitHub accepts, or
        add it to the merge queue if there is one. Return the request.
        """
        path = f"{self._client.path}/pulls/{request.number}/merge"
        what = "merge it"
        objection = ""
        for method in methods:
            answer = self._client.ask(
                "PUT",
                path,
                what,
                json={"sha": commit, "merge_method": method.lower()},
                expected=(403, 405, 409, 422),
            )
            if answer.status == 200:
                notes.add(_MERGED)
                merge_commit = str(self._client.parse(answer, what).get("sha") or "")
                return replace(request, state="merged", merge_commit=merge_commit)
            objection = self._client.message_in(answer)
            if not _rejects_method(objection):
                break  # another method would not help

        if "in the merge queue" in objection.lower():  # it is already queued
            return request
        if "merge queue" in objection.lower():  # the base requires the queue
            objection = self._enqueue(pull, commit)
        _note_objection(objection, notes)
        return request

    def _enqueue(self, pull: Mapping[str, Any], commit: str) -> str:
        """Add the pull request to the merge queue. Return GitHub's objection, or "" on success."""
        data, objection = self._mutate(pull, commit, ENQUEUE, {})
        if objection:
            return objection
        entry = value_at(data, "enqueuePullRequest", "mergeQueueEntry")
        return "" if isinstance(entry, dict) else _SILENT

    def _look_up(self, number: str) -> tuple[MergeState, Any]:
        """Return the pull request's state, and GitHub's data about its latest merge-queue or
        auto-merge event. Without such an event, the data is None.

        An Enterprise Server without merge queues returns errors instead of the data. In that case,
        all fields of the state are false.
        """
        variables = {
            "owner": self._owner,
            "name": self._name,
            "number": int(number),
        }
        response = self._client.json(
            "POST",
            graphql(self._client.reach.place.api),
            "check whether it merges automatically",
            json={"query": LOOK, "variables": variables},
        )
        pull = value_at(response, "data", "repository", "pullRequest")
        events = mappings(value_at(pull, "timelineItems"), "nodes")
        last_event = events[-1] if events else None
        return _merge_state(pull), last_event

    def _mutate(
        self,
        pull: Mapping[str, Any],
        commit: str,
        mutation: str,
        more_input: Mapping[str, str],
    ) -> tuple[Any, str]:
        """Run a GraphQL mutation (a change) for the pull request. GitHub rejects it unless the
        request is still at this commit.

        Return the data in GitHub's response, and GitHub's objection ("" on success). A response
        with an objection also has status 200.
        """
        input_fields = {
            "pullRequestId": pull["node_id"],
            "expectedHeadOid": commit,
            **more_input,
        }
        response = self._client.json(
            "POST",
            graphql(self._client.reach.place.api),
            "turn on auto-merge",
            json={"query": mutation, "variables": {"input": input_fields}},
        )
        data = value_at(response, "data")
        errors = mappings(response, "errors")
        if not errors:
            return data, ""
        messages = [one_line(dig(error, "message").strip('[]"'))[:300] for error in errors]
        return data, "; ".join(messages) or "no reason was given"


def _allowed_methods(pull: Mapping[str, Any]) -> list[str]:
    """Return the merge methods that the repository allows. GitHub shows them only to users who can
    push. For all other users, every method counts as allowed.
    """
    repository = pull["base"].get("repo") or {}
    allowed = [method for method, setting in METHODS if repository.get(setting, True)]
    return allowed or ["MERGE"]


def _merge_state(pull: Any) -> MergeState:
    """Return the state that the GraphQL fields `SHOWN` describe."""
    on = isinstance(value_at(pull, "autoMergeRequest"), dict)
    queued = value_at(pull, "isInMergeQueue") is True
    return MergeState(
        waits=on or queued,
        merged=dig(pull, "state") == "MERGED",
        has_queue=value_at(pull, "isMergeQueueEnabled") is True,
    )


def _rejects_method(objection: str) -> bool:
    """Return whether GitHub's objection is to the merge method. If so, another method may work."""
    return _METHOD.search(objection.lower()) is not None


def _is_person(event: Any) -> bool:
    return dig(event, "actor", "__typename") == "User"


def _note_objection(objection: str, notes: Notes) -> None:
    if objection:
        notes.add(f"GitHub cannot merge it automatically: {objection}", "auto-merge")

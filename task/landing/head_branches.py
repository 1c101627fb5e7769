"""The head branches that a run affects: their names, lists, current files, and requests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from task.deciding.decide import (
    Identity,
    changed_files,
    decide_one,
    own_states,
    places,
    reading,
    state_path,
)
from task.deciding.job import Ask, Intent, Job, Move, Terms
from task.deciding.weigh import Facts, key_of
from task.editors.state_file import write_state
from task.errors import Exit, Malformed, TargetError, TaskError, Trouble
from task.forges.host import Host
from task.git.names import PREFIX, has_our_prefix, memory_branch, short_hash
from task.landing.before_deciding import CONFIG, Gather, with_all_keys, with_more
from task.landing.ports import Batch, Repository, World
from task.landing.states import without_rollbacks
from task.landing.waiting_builds import (
    Decided,
    overtaken,
    places_of,
    subscription_of,
    updated_list,
    withdrawn,
)
from task.landing.waiting_list import (
    BuildKey,
    DeclinedBuild,
    HeadCommit,
    KnownRequest,
    ListedBuild,
    WaitingList,
    is_list_path,
    key_of_entry,
    list_of,
    list_path,
    read_list,
)
from task.model import (
    File,
    Files,
    Head,
    Hold,
    Meant,
    Memory,
    Place,
    Problem,
    Proposed,
    Snapshot,
    State,
    Subscription,
    Verdict,
    Wishes,
    Written,
)
from task.policy.builds import alike, commits, hold_text, merged, why_older
from task.policy.strategies import rules_of
from task.repository_config.config import PATH, agreed, also_limited, governed, keys_named
from task.repository_config.reading import config_in, of_config
from task.templates import branch_name
from task.templates.change import Change
from task.timestamps import epoch_seconds
from task.urls import normal_url

MOST_CLOSED = 5  # unrelated head branches that one run may close
LONGEST_PART = 60  # characters of a group's name to include in its head branch's name
MOST_PLACES = 100  # listed builds whose files are read only because they are listed
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def name_heads(moves: Sequence[Move], *, by_hand: bool = False) -> list[Move]:
    """Set the head branch of each move (the decision about one image) whose commit belongs on one:
    the branch named in the `git-branch` annotation, or the branch of a pull request.

    Moves whose commit belongs on the base branch are not changed. If the branch name is invalid,
    the move becomes an error. `by_hand` is set if the run carries out a person's command.
    """
    changes = _changes_by_application(moves)
    with_heads = []
    for move in moves:
        sub = move.subscription
        app_changes = changes.get(sub.application.key, [])
        if not _gets_head(move, app_changes, by_hand=by_hand):
            with_heads.append(move)
            continue
        base = move.decision.branch
        try:
            if sub.head_template:
                head = _name_from_template(sub, base, app_changes)
            else:
                head = request_head(sub, base)
        except Malformed as error:
            message = f"git-branch: {error.message}"
            invalid = Verdict("error", "annotation", message, error.hint, Exit.CONFIGURATION)
            with_heads.append(move.without_effect(invalid))
        else:
            with_heads.append(replace(move, decision=replace(move.decision, head=head)))
    return with_heads


def _changes_by_application(moves: Sequence[Move]) -> dict[str, list[Change]]:
    """Return the changes that the moves (decisions) make, keyed by Application, without
    duplicates.
    """
    changes: dict[str, list[Change]] = {}
    for move in moves:
        if not move.changes:
            continue
        app_changes = changes.setdefault(move.subscription.application.key, [])
        if move.change not in app_changes:
            app_changes.append(move.change)
    return changes


def _gets_head(move: Move, app_changes: Sequence[Change], *, by_hand: bool) -> bool:
    """Return whether a move's commit belongs on a head branch whose name can be determined now.

    The name may come from a template in `git-branch`, which is rendered from the Application's
    changes. If nothing changes, the template is rendered only for a deferred build or a person's
    command (`by_hand`).
    """
    sub = move.subscription
    if not move.decision.branch:  # the base is unknown
        return False
    if not sub.head_template and not sub.pull_request:
        return False
    is_template = "{{" in sub.head_template
    if not is_template:
        return True
    return by_hand or bool(app_changes) or move.decision.verdict == "defer"


def _name_from_template(sub: Subscription, base: str, changes: Sequence[Change]) -> str:
    """Return the branch name that the template in `git-branch` produces for these changes. Raises
    `Malformed` if the name is invalid, or if a pull request's head and base would be the same
    branch.
    """
    app = branch_name.AppFields(
        sub.application.name, sub.application.namespace, sub.repo, base, sub.path
    )
    head = branch_name.branch_name(sub.head_template, changes, app)
    if sub.pull_request and head == base:
        raise Malformed(
            f"a pull request cannot merge {head} into itself",
            "use another branch after the colon, or omit it",
        )
    return head


def request_head(sub: Subscription, base: str) -> str:
    """Return the name of the branch for a pull request, such as `image-update/web-1a2b3c4d`.

    All updates in a group share one request. A group is one image, unless the repository's config
    groups by application, project, or repository. There is no `/` after the prefix, because Git
    rejects a branch `a/b` next to `a`.
    """
    repo = normal_url(sub.repo)
    app = sub.application
    group = sub.wishes.group or "image"
    # When grouped by Application, each one has a single request, no matter which of its images were
    # built. Two Argo CD instances may contain Applications with the same name.
    group_names = {
        "repository": repo,
        "project": app.project,
        "application": f"{app.key} {sub.home}",
    }
    full_name = group_names.get(group, sub.entry.image.identity)
    short_name = app.name if group == "application" else full_name.rpartition("/")[2]

    flat_name = NOT_IN_A_NAME.sub("-", short_name).strip("-")
    shortened = flat_name[:LONGEST_PART].strip("-")
    readable_part = shortened or group  # if no characters are left
    prefix = sub.wishes.branch_prefix or PREFIX
    return f"{prefix}/{readable_part}-{short_hash(repo, base, group, full_name)}"


@dataclass(frozen=True)
class Request:
    """The state of a head branch's pull request before the run changes anything."""

    forge: Host
    newest: Proposed | None = None
    error: TaskError | None = None  # set if the Git host could not be queried


def requests_of(
    decided: Sequence[Decided], base: Snapshot, job: Job, world: World
) -> tuple[dict[str, Request], list[Move]]:
    """Find the newest pull request for each head branch that has one or may need one.

    `decided` contains the run's asks with their moves (the decisions). Return the requests by head
    branch, and the moves. A move becomes an error if its branch needs a request but the Git host is
    unknown. The `plan` command does not query the host.
    """
    requests: dict[str, Request] = {}
    errors_of_host: dict[str, TaskError] = {}  # keyed by head branch
    moves = [move for _, move in decided]
    repo = moves[0].subscription.repo if moves else ""
    for head in _heads_with_requests(decided, base, job.intent):
        try:
            if job.dry:
                world.check_forge(repo)  # raises the same error as `forge`
                continue
            forge = world.forge(repo)
        except TaskError as error:
            errors_of_host[head] = error
            continue
        requests[head] = _request_at(forge, base, head)

    moves_or_errors = []
    for move in moves:
        error_of_host = errors_of_host.get(move.decision.head)
        if error_of_host and move.changes:
            moves_or_errors.append(move.failed(error_of_host))
        else:
            moves_or_errors.append(move)
    return requests, moves_or_errors


def _request_at(forge: Host, base: Snapshot, head: str) -> Request:
    """Return the newest pull request of a head branch, or the Git host's error.

    After an error, the branch can still be pushed, so no change is lost. The next run opens the
    request.
    """
    try:
        return Request(forge, _newest_request(forge, base, head))
    except TaskError as error:
        return Request(forge, error=error)


def _heads_with_requests(
    decided: Sequence[Decided], base: Snapshot, intent: Intent | None
) -> dict[str, None]:
    """Return the names of the head branches that have a pull request or may get one, as the keys of
    a dictionary, in order.

    `decided` contains the run's asks with their moves (the decisions). The branches of the moves
    that use pull requests come first. Other branches that the run affects follow if their list of
    waiting builds has a request, or contains a build of an image that uses requests.
    """
    moves_with_request = [move for _, move in decided if move.subscription.pull_request]
    heads: dict[str, None] = {}
    for move in moves_with_request:
        is_head_branch = move.decision.head not in ("", base.branch)
        if is_head_branch:
            heads[move.decision.head] = None

    affected_heads = touched_heads(decided, base, intent)
    keys_with_request = {key_of_entry(move.subscription) for move in moves_with_request}
    for stored_list in lists_in(base.memory_files):
        if stored_list.head not in affected_heads:
            continue
        uses_requests = any(build.key in keys_with_request for build in stored_list.builds)
        if stored_list.request or uses_requests:
            heads.setdefault(stored_list.head)
    return heads


def _newest_request(forge: Host, base: Snapshot, head: str) -> Proposed | None:
    """Return the newest pull request from a head branch to the base branch, or None.

    If the base was renamed, its closed and merged requests still refer to the base's old name. (Git
    hosts only retarget open ones.)
    """
    newest = forge.find(base.branch, head)
    was_renamed = bool(base.renamed_from)
    if newest or not was_renamed:
        return newest
    of_old_name = forge.find(base.renamed_from, head)
    if of_old_name is None or of_old_name.state == "open":
        return None
    return of_old_name


@dataclass(frozen=True)
class HeadBranch:
    """A head branch that the run affects, as it was before the run."""

    stored_list: WaitingList  # as stored on the memory branch
    waiting_list: WaitingList  # the same list, with only the builds that are still waiting
    branch: Head | None = None
    files: Files = field(default_factory=dict)  # the files of someone else's branch
    request: Request | None = None
    ours: bool = True  # whether the run may create or replace it
    unnamed: bool = False  # it matches the list, but no Application that was read uses its name
    merged: bool = False  # whether its builds are now on the base
    # the head branch that took over its builds, because the base or the group was renamed
    instead: str = ""

    @property
    def name(self) -> str:
        """The branch's name."""
        return self.stored_list.head

    @property
    def newest_request(self) -> Proposed | None:
        """The branch's newest request."""
        return self.request.newest if self.request else None

    @property
    def merged_builds(self) -> tuple[ListedBuild, ...]:
        """The builds that were merged since the last run."""
        return self.stored_list.builds if self.merged else ()

    @property
    def tip(self) -> str:
        """The branch's commit, or "" if the branch does not exist."""
        return self.branch.tip if self.branch else ""

    @property
    def as_listed(self) -> bool:
        """Whether the branch's tip is the commit that the list records."""
        recorded = self.waiting_list.commit
        at_tip = HeadCommit(self.branch.tree, self.branch.parent) if self.branch else None
        return recorded is not None and recorded == at_tip


def touched_heads(
    decided: Sequence[Decided], base: Snapshot, intent: Intent | None
) -> dict[str, None]:
    """Return the names of the head branches (the branches of pull requests) that these decisions
    affect, as the keys of a dictionary, in order.

    These are the branches that receive commits. A person's hold or rollback also affects every
    other branch where a build of the image is waiting. If the source of a promotion now has a
    different version, the branches where the promotion is waiting are affected too.
    """
    heads: dict[str, None] = {}
    for _, move in decided:
        is_head_branch = move.decision.head not in ("", base.branch)
        if is_head_branch and move.decision.verdict != "error":
            heads[move.decision.head] = None

    keys_by_hand: set[BuildKey] = set()
    if intent is not None and intent.verb != "release":  # a release only affects its own branch
        keys_by_hand = {key_of_entry(ask.subscription) for ask, _ in decided}
    for stored_list in lists_in(base.memory_files):
        for build in stored_list.builds:
            # `withdrawn` returns the reason why a waiting promotion is obsolete, or ""
            if build.key in keys_by_hand or withdrawn(build, decided):
                heads.setdefault(stored_list.head)
                break
    return heads


def lists_in(memory_files: Files) -> list[WaitingList]:
    """Return the lists of waiting builds that are stored on the memory branch, one for each head
    branch.

    Unreadable lists are left out; the code that needs one of them reports the error.
    """
    lists = []
    for path, file in sorted(memory_files.items()):
        if not is_list_path(path):
            continue
        with suppress(TaskError):
            stored_list = read_list(file.text)
            if list_path(stored_list.head) == path:  # otherwise, it is in the wrong file
                lists.append(stored_list)
    return lists


def memory_branch_warnings(base: Snapshot) -> list[Problem]:
    """Return the warnings about the memory branch, which stores a base branch's holds (orders to
    keep a version) and its lists of waiting builds.

    There is a warning if no known key has signed the memory branch, one if the config changes its
    name, and one for each memory branch left over from a deleted base branch.
    """
    own = memory_branch(base.repo, base.branch, base.prefix)  # this base's own memory branch
    problems: list[Problem] = []
    if base.unsigned:
        hint = (
            "find out who can push to that branch; to accept keys other than the run's own, set"
            " memorySigners in the config"
        )
        message = f"{own}: {base.unsigned}"
        problems.append(Problem(Trouble.warning("signature", message, hint)))
    if base.inherited and not base.renamed_from:
        old_name, _tip = base.inherited
        message = f"the memory moves from {old_name} to {own} because of branchPrefix in the config"
        problems.append(Problem(Trouble.warning("target", message)))
    hint = (
        "delete the memory branch; if its base was renamed, set the holds again first. The memory"
        " is kept only if the default branch is renamed"
    )
    for name, deleted_base in base.orphaned:
        message = (
            f"{name} has holds or waiting builds for {deleted_base}, which no longer exists: they"
            f" do not apply to {base.branch}"
        )
        problems.append(Problem(Trouble.warning("target", message, hint)))
    return problems


def read_heads(
    batch: Batch, base: Snapshot, moves: Sequence[Move], job: Job, world: World
) -> tuple[dict[str, HeadBranch], list[Move]]:
    """Read the head branches (the branches of pull requests) that the run affects, along with their
    lists of waiting builds and their pull requests.

    `moves` contains one move (decision) for each of `batch.asks`, in the same order. Return the
    head branches by name, and the moves. A move becomes an error if no request can be opened for
    it, or if the list of its head branch cannot be read.
    """
    decided_at_first = list(zip(batch.asks, moves, strict=True))
    requests, moves = requests_of(decided_at_first, base, job, world)
    decided = list(zip(batch.asks, moves, strict=True))  # now including the Git host's errors
    heads: dict[str, HeadBranch] = {}
    errors_of_lists: dict[str, TaskError] = {}  # keyed by head branch
    for name in touched_heads(decided, base, job.intent):
        try:
            stored_list = list_of(base.memory_files, name)
        except TaskError as error:
            errors_of_lists[name] = error
            continue
        head = _read_head(stored_list, batch, base, requests.get(name))
        if not head.ours:
            head = _foreign_branch_with_files(head, batch, moves)
        heads[name] = head

    # other branches that need an update
    heads |= _heads_to_close(heads, batch, base, job, world)
    heads |= _renamed_heads(heads, batch, base, job, world)
    heads |= _outdated_heads(heads, batch, base, job, world)

    moves_or_errors = []
    for move in moves:
        error_of_list = errors_of_lists.get(move.decision.head)
        moves_or_errors.append(move.failed(error_of_list) if error_of_list else move)
    return heads, moves_or_errors


def _read_head(
    stored_list: WaitingList, batch: Batch, base: Snapshot, request: Request | None
) -> HeadBranch:
    """Read a head branch from Git, and drop the builds that are no longer waiting (merged or
    declined) from its list.

    The branch is ours if its commit has the tree and the parent that the list records. So it
    remains ours if someone signs the commit or rewords its message. A branch that does not exist or
    has no commit of its own also counts as ours.
    """
    name = stored_list.head
    branch = batch.repository.head(name)
    newest = request.newest if request else None

    # Whose branch is it? The run only replaces its own branches.
    has_our_commit = branch is not None and stored_list.is_our_commit(branch.tree, branch.parent)
    is_unnamed = has_our_commit and not _may_be_ours(stored_list, batch, base)
    # it has our name, but no commit of its own
    is_empty = branch is not None and branch.tip == base.tip and has_our_prefix(name, base.prefix)
    is_ours = branch is None or is_empty or (has_our_commit and not is_unnamed)

    is_merged = _is_merged(stored_list, branch, newest, batch.repository, base)
    request_now = KnownRequest(newest.number, newest.url, newest.state) if newest else None
    waiting_list = updated_list(
        stored_list, absent=branch is None, merged=is_merged, request=request_now
    )
    head = HeadBranch(
        stored_list=stored_list,
        waiting_list=waiting_list,
        branch=branch,
        request=request,
        ours=is_ours,
        unnamed=is_unnamed,
        merged=is_merged,
    )
    if waiting_list.arrived or not head.as_listed:
        return head
    # An earlier run could not tell whether its commit had arrived. It had.
    return replace(head, waiting_list=replace(waiting_list, arrived=True, replaces=None))


def _may_be_ours(stored_list: WaitingList, batch: Batch, base: Snapshot) -> bool:
    """Return whether the head branch of a list of waiting builds can be ours: its name has our
    prefix, or an Application that was read names it in `git-branch`.

    Without this check, anyone who can push to the memory branch could have any branch replaced or
    deleted by recording its tree in a list.
    """
    name = stored_list.head
    if name == base.branch:
        return False
    if has_our_prefix(name, base.prefix):
        return True
    subs = asked_subscriptions(batch)
    for app in {build.application for build in stored_list.builds}:
        subs += batch.look(app, ask=False)
    return any(_may_be_named(name, sub.head_template) for sub in subs)


def _may_be_named(name: str, template: str) -> bool:
    """Return whether a template such as `update-{{ .Name }}-x` can render this branch name, such as
    `update-web-x`.

    Each action in braces can match any text. The template is not turned into a regular expression,
    because many actions in an annotation would make it very slow.
    """
    prefix, *after_actions = re.split(r"\{\{.*?\}\}", template)
    if not after_actions:  # the template has no actions
        return bool(template) and name == template
    if not name.startswith(prefix):
        return False
    *middle_parts, suffix = after_actions
    position = len(prefix)
    for part in middle_parts:
        part_start = name.find(part, position)
        if part_start < 0:
            return False
        position = part_start + len(part)
    # the suffix must not overlap with the parts found before it
    return name.endswith(suffix) and position + len(suffix) <= len(name)


def asked_subscriptions(batch: Batch) -> list[Subscription]:
    """Return the subscriptions of a batch's asks and their siblings."""
    return [sub for ask in batch.asks for sub in (ask.subscription, *ask.siblings)]


def unnamed_heads(heads: Mapping[str, HeadBranch]) -> list[Problem]:
    """Return a warning for each head branch that matches its list of waiting builds but may belong
    to someone else, because no Application uses its name.
    """
    hint = "delete the branch if it is an old head branch; otherwise, find out who wrote the list"
    problems = []
    for name, head in heads.items():
        if head.unnamed:
            message = (
                f"{name} was not changed: no Application that this run read has it in git-branch"
            )
            problems.append(Problem(Trouble.warning("target", message, hint)))
    return problems


def _heads_to_close(
    heads: Mapping[str, HeadBranch], batch: Batch, base: Snapshot, job: Job, world: World
) -> dict[str, HeadBranch]:
    """Return the head branches whose pull request an earlier run wanted to close but could not. No
    builds are waiting there.

    `heads` are the branches that have already been read. At most `MOST_CLOSED` are returned.
    """
    unclosed: dict[str, HeadBranch] = {}
    for stored_list in lists_in(base.memory_files):
        name = stored_list.head
        if name in heads:
            continue
        if not stored_list.closing or stored_list.proposes_anything:
            continue
        if not _may_be_ours(stored_list, batch, base):
            continue
        if len(unclosed) == MOST_CLOSED:
            break
        with suppress(TaskError):  # without a token for the Git host, leave this to another run
            unclosed[name] = _head_with_request(stored_list, batch, base, job, world)
    return unclosed


def _renamed_heads(
    heads: Mapping[str, HeadBranch], batch: Batch, base: Snapshot, job: Job, world: World
) -> dict[str, HeadBranch]:
    """Move builds from head branches with an old name to those with the new name.

    The name changes if the base was renamed, or if the config now groups the images differently.
    `heads` are the branches that have already been read. Return the changed branches by name: each
    old branch, and its heir (the branch with the new name), which now contains the builds of both.
    """
    new_names = _request_heads_by_entry(batch, base)
    renamed: dict[str, HeadBranch] = {}
    for stored_list in lists_in(base.memory_files):
        old_name = stored_list.head
        if old_name in heads or not has_our_prefix(old_name, base.prefix):
            continue
        names_of_builds = {new_names.get(build.key, "") for build in stored_list.builds}
        if len(names_of_builds) != 1:  # there are no builds, or they now belong to several branches
            continue
        new_name = names_of_builds.pop()  # "" if this run does not know the images
        # an earlier round of this loop may already have added builds to it
        heir = renamed.get(new_name) or heads.get(new_name)
        if heir is None:  # this run does not affect that branch
            continue
        old_head = _head_with_request(stored_list, batch, base, job, world)
        if not old_head.ours or not heir.ours:
            continue
        merged_list = _with_entries_of(heir.waiting_list, old_head.waiting_list)
        renamed[new_name] = replace(heir, waiting_list=merged_list)
        renamed[old_name] = replace(old_head, instead=new_name)
    return renamed


def _request_heads_by_entry(batch: Batch, base: Snapshot) -> dict[BuildKey, str]:
    """Return the name that each image's head branch (the branch of a pull request) has under the
    current config. Images whose branch is named by `git-branch` are left out.
    """
    names: dict[BuildKey, str] = {}
    for ask in batch.asks:
        if not ask.subscription.pull_request:
            continue
        for sub in (ask.subscription, *ask.siblings):
            if not sub.head_template:
                names[key_of_entry(sub)] = request_head(sub, base.branch)
    return names


def _with_entries_of(heir: WaitingList, old_list: WaitingList) -> WaitingList:
    """Return the new branch's list (`heir`) with the entries from the old branch's list added. If
    both lists have a build of the same image, the heir's build is kept.
    """
    keys_of_heir = {build.key for build in heir.builds}
    added_builds = [build for build in old_list.builds if build.key not in keys_of_heir]
    releases = dict.fromkeys((*heir.releases, *old_list.releases))
    return replace(heir, builds=(*heir.builds, *added_builds), releases=tuple(releases))


def _outdated_heads(
    heads: Mapping[str, HeadBranch], batch: Batch, base: Snapshot, job: Job, world: World
) -> dict[str, HeadBranch]:
    """Return other head branches (branches of pull requests) where an outdated build is waiting:
    the base branch already has that build or a newer one.

    `heads` are the branches that have already been read. At most `MOST_CLOSED` are returned.
    """
    subs_of_run = {key_of_entry(sub): sub for sub in asked_subscriptions(batch)}

    def known_subscription(build: ListedBuild) -> Subscription | None:
        """Return a build's subscription, if its Application has been read."""
        already_read = batch.look(build.application, ask=False)
        looked_up = {key_of_entry(sub): sub for sub in already_read}
        return subs_of_run.get(build.key) or looked_up.get(build.key)

    outdated: dict[str, HeadBranch] = {}
    for stored_list in lists_in(base.memory_files):
        name = stored_list.head
        if name in heads or len(outdated) == MOST_CLOSED:
            continue
        subs = [known_subscription(build) for build in stored_list.builds]
        builds_with_subs = zip(stored_list.builds, subs, strict=True)
        any_outdated = any(overtaken(base, build, sub) for build, sub in builds_with_subs)
        if not any_outdated:
            continue
        uses_requests = any(sub and sub.pull_request for sub in subs)
        has_our_name = has_our_prefix(name, base.prefix)
        may_have_request = stored_list.request is not None or has_our_name or uses_requests
        with suppress(TaskError):  # without a token for the Git host, leave this to another run
            if may_have_request:
                outdated[name] = _head_with_request(stored_list, batch, base, job, world)
            else:  # a branch named by `git-branch`, so the Git host may be unknown
                outdated[name] = _read_head(stored_list, batch, base, None)
    return outdated


def places_of_lists(memory_files: Files, repo: str, branch: str) -> list[Place]:
    """Return the places (files or folders) on a base branch that show whether it already has the
    builds that are waiting on its head branches.

    `memory_files` contains the lists of those builds. Only the first `MOST_PLACES` builds count.
    """
    builds: list[ListedBuild] = []
    for stored_list in lists_in(memory_files):
        builds += stored_list.builds
    unread_base = Snapshot(repo, branch, tip="", files={})  # only the names are needed here
    wanted_places: list[Place] = []
    for build in builds[:MOST_PLACES]:
        with suppress(TaskError):  # reported if the build is decided
            wanted_places += places_of(subscription_of(build, unread_base))
    return list(dict.fromkeys(wanted_places))


def _head_with_request(
    stored_list: WaitingList, batch: Batch, base: Snapshot, job: Job, world: World
) -> HeadBranch:
    """Return the head branch that a list of waiting builds belongs to, along with its pull request.
    `plan` does not query the Git host.
    """
    request = None
    if not job.dry:
        forge = world.forge(batch.asks[0].subscription.repo)
        request = _request_at(forge, base, stored_list.head)
    return _read_head(stored_list, batch, base, request)


def _is_merged(
    stored_list: WaitingList,
    branch: Head | None,
    newest: Proposed | None,
    repository: Repository,
    base: Snapshot,
) -> bool:
    """Return whether a head branch, including the builds in its list, was merged since the last
    run. The base may have changed since the merge.

    `branch` is None if the branch no longer exists. `newest` is its newest pull request, or None if
    it has none.
    """
    if not stored_list.proposes_anything:
        return False
    if branch and branch.parent == base.tip:  # it is still ahead of the base
        return False

    # If the last run already saw the request closed or merged, the builds were listed later.
    was_open = stored_list.request is None or stored_list.request.state == "open"
    if newest and newest.state == "merged" and was_open:
        # Commits pushed after the merge are not part of it. "" means that the commit is unknown.
        return branch is None or newest.head_commit in ("", branch.tip)
    if newest is not None or branch is None:  # the request decides, or there is no commit to find
        return False
    # Without a request, someone may have merged the branch with git.
    return branch.tip == base.tip or repository.merged(base.branch, branch.tip)


def _foreign_branch_with_files(head: HeadBranch, batch: Batch, moves: Sequence[Move]) -> HeadBranch:
    """Return a head branch that someone else has pushed to, along with its files.

    These are the files needed to decide its asks (this run's new builds) and its waiting builds, as
    well as its config and the public keys that the config names. `moves` contains the decision
    about each of `batch.asks`, in the same order.
    """
    if head.branch is None:
        return head
    first_move = moves[0]  # all moves are for the same repository and base
    repo = first_move.subscription.repo
    unread_base = Snapshot(repo, first_move.decision.branch, tip="", files={})
    wanted_places = list(CONFIG)
    for ask, move in zip(batch.asks, moves, strict=True):
        if move.decision.head == head.name:
            wanted_places += places(ask)
    for build in head.waiting_list.builds:
        with suppress(TaskError):  # reported when the build is decided
            wanted_places += places_of(subscription_of(build, unread_base))
    unread_branch = Snapshot(repo, head.name, head.tip, files={})
    branch = with_more(unread_branch, wanted_places, batch.repository)

    # The keys are only known after the config has been read.
    with suppress(TargetError):  # reported where the config is applied
        config = config_in(branch.files)
        wishes_of_rules = [rule.wishes for rule in config.rules]
        key_paths = keys_named([config.wishes, *wishes_of_rules])
        branch = with_more(branch, map(Place, key_paths), batch.repository)
    return replace(head, files=branch.files)


def decided_on_foreign_branch(
    head: HeadBranch,
    base: Snapshot,
    decided: Sequence[Decided],
    terms: Terms,
    facts: Facts,
    gather: Gather,
) -> dict[Identity, Move]:
    """Decide these asks (images with new builds) again, on a head branch that someone else has
    pushed to.

    `decided` contains each ask for the branch, with its decision on the base. An image's current
    version is its version on the head branch, but the holds and the config rules of both branches
    apply. Return the new decisions by ask. Asks whose decision was already an error are left out.
    """
    view = _view_of_foreign_branch(head, base, [ask for ask, _ in decided])
    moves: dict[Identity, Move] = {}
    governed_asks: list[Decided] = []  # with the config of both branches applied
    for ask, move in decided:
        if move.decision.verdict == "error":
            continue
        try:
            governed_asks.append((_also_governed(ask, head, base, view, terms), move))
        except TaskError as error:
            moves[ask.key] = _on_head(move.failed(error), move, base, view)

    facts_on_view = _with_facts_of(view, governed_asks, facts, gather)
    for ask, move in governed_asks:
        move_on_view = decide_one(view, ask, terms, facts_on_view)
        moves[ask.key] = _on_head(move_on_view, move, base, view)
    return moves


def _on_head(on_view: Move, on_base: Move, base: Snapshot, view: Snapshot) -> Move:
    """Combine two decisions about the same ask: the one on someone else's head branch (`on_view`,
    decided on the files in `view`), and the one on the base branch (`on_base`).

    The verdict comes from the head branch, and the current version from the base.
    """
    judged = on_view.decision.judged
    if judged.verdict == "unchanged":
        judged = replace(judged, because=f"{view.branch} already has it")
    decision = replace(
        on_view.decision,
        branch=base.branch,
        head=view.branch,
        current=on_base.decision.current,
        judged=judged,
    )
    return replace(on_view, decision=decision)


def decided_after_merge(
    merged_base: Snapshot, decided: Sequence[Decided], terms: Terms, facts: Facts, gather: Gather
) -> dict[Identity, Move]:
    """Decide these asks (images with new builds) again for a head branch. `merged_base` is the base
    branch as it will be after the merge, without the holds that the merge ends.

    `decided` contains each ask for the branch, with its earlier decision. Return the new decisions
    by ask. Asks whose decision was already an error are left out.
    """
    facts_after_merge = _with_facts_of(merged_base, decided, facts, gather)
    moves = {}
    for ask, earlier_move in decided:
        if earlier_move.decision.verdict == "error":
            continue
        move = decide_one(merged_base, ask, terms, facts_after_merge)
        decision = replace(move.decision, head=earlier_move.decision.head)
        moves[ask.key] = replace(move, decision=decision)
    return moves


def _with_facts_of(
    view: Snapshot, decided: Sequence[Decided], facts: Facts, gather: Gather
) -> Facts:
    """Return `facts` (the earlier lookups, such as registry responses), extended with the facts
    that are needed to decide these asks on the files in `view`.
    """
    more = gather(view, [ask for ask, _ in decided])
    return replace(
        facts,
        ancestry={**more.ancestry, **facts.ancestry},
        answers={**more.answers, **facts.answers},
    )


def without_finished_rollbacks(
    heads: Iterable[HeadBranch], base: Snapshot, decided: Sequence[Decided]
) -> tuple[Files, list[Problem]]:
    """End the holds of rollbacks whose pull request a person has closed or merged.

    A rollback also sets a hold (an order to keep the version), so that no new build undoes it.
    While the rollback is waiting on a head branch, its hold is on the memory branch. After the
    merge, the hold is on the base, where people can end it.

    Return the memory branch's files without the ended holds, and a warning for each rollback whose
    request was closed.
    """
    waiting_rollbacks = _waiting_rollbacks(heads)
    subs: dict[BuildKey, Subscription] = {}
    for ask, _ in decided:
        for sub in (ask.subscription, *ask.siblings):
            subs[key_of_entry(sub)] = sub

    finished: dict[str, set[str]] = {}  # image keys, by state file
    problems: dict[Problem, None] = {}  # a dictionary, to avoid duplicates
    for entry, sub in subs.items():
        head, build = waiting_rollbacks.get(entry, (None, None))
        path = state_path(sub)
        for file, state in own_states(base.memory_files, path).items():
            memory = state.images.get(key_of(sub), Memory())
            rollback = memory.rollback
            hold = memory.hold or state.hold
            if not hold or not rollback:
                continue
            # the head branch of this rollback; a later rollback of the image may be waiting instead
            proposing_head = head if _proposes(build, rollback) else None
            if proposing_head and _is_declined(proposing_head, sub):
                problems[_warn_of_declined(proposing_head, sub, hold)] = None
                is_finished = True
            else:
                is_finished = _is_on_base(base, sub, file, rollback, proposing_head)
            if is_finished:  # otherwise, it is still waiting, and its hold remains
                finished.setdefault(path, set()).add(key_of(sub))
    return without_rollbacks(base.memory_files, finished), list(problems)


def _waiting_rollbacks(
    heads: Iterable[HeadBranch],
) -> dict[BuildKey, tuple[HeadBranch, ListedBuild]]:
    """Return the head branch and the build of each rollback that was waiting when the run began,
    keyed by the image's entry.
    """
    rollbacks = {}
    for head_branch in heads:
        for listed in head_branch.stored_list.builds:
            if listed.rollback:
                rollbacks[listed.key] = (head_branch, listed)
    return rollbacks


def _proposes(build: ListedBuild | None, rollback: Meant) -> bool:
    """Return whether the waiting build, if any, is this rollback (a change back to an older
    version).
    """
    waiting_rollback = build.rollback if build else None
    return waiting_rollback is not None and alike(rollback, waiting_rollback)


def _warn_of_declined(head: HeadBranch, sub: Subscription, hold: Hold) -> Problem:
    """Return the warning that a hold ends because a person has declined its rollback."""
    url = head.newest_request.url if head.newest_request else ""
    message = f"{key_of(sub)}: its rollback was declined ({url}); no longer {hold_text(hold)}"
    return Problem(Trouble.warning("held", message), application=sub.application.key)


def _is_declined(head: HeadBranch, sub: Subscription) -> bool:
    """Return whether a person has closed the head branch's request while it contained a build of
    this image.
    """
    key = (sub.application.key, sub.entry.alias, sub.entry.image.identity)
    return any(declined.key == key for declined in head.waiting_list.declined)


def _is_on_base(
    base: Snapshot, sub: Subscription, file: str, rollback: Meant, head: HeadBranch | None
) -> bool:
    """Return whether a rollback (a change back to an older version) was merged into the base
    branch.

    `head` is the head branch where it was waiting, if known, and `file` is the write-back file. The
    rollback was merged if that branch was merged. It was also merged if the base has its version,
    and either the base's state file has the rollback or the head branch no longer exists.
    """
    if head is not None and head.merged:
        return True
    try:
        version_on_base = reading(base, sub, Terms()).version
        states_on_base = own_states(base.files, state_path(sub))
    except TaskError:
        return False
    if version_on_base != rollback.version:
        return False
    state = states_on_base.get(file, State())
    memory = state.images.get(key_of(sub), Memory())
    if memory.rollback == rollback:
        return True
    return head is not None and head.branch is None


def declined_in(memory_files: Files, heads: Mapping[str, HeadBranch]) -> list[DeclinedBuild]:
    """Return all builds that people have declined by closing a pull request.

    The lists of all head branches count, because a branch may have had a different name when its
    request was closed.
    """
    lists = {stored_list.head: stored_list for stored_list in lists_in(memory_files)}
    lists |= {name: head.waiting_list for name, head in heads.items()}
    declined_builds: list[DeclinedBuild] = []
    for waiting_list in lists.values():
        declined_builds += waiting_list.declined
    return declined_builds


def unless_declined(move: Move, declined: Iterable[DeclinedBuild], world: World) -> Move:
    """Return the move (the decision about one image), or a refusal if it would propose a build that
    a person has declined by closing its pull request, or an even older build.
    """
    sub = move.subscription
    key = (sub.application.key, sub.entry.alias, sub.entry.image.identity)
    for build in declined:
        if not move.updates:  # there is nothing to refuse, or an earlier round has refused it
            return move
        if build.key == key:
            move = _unless_older(move, build, world)
    return move


def _unless_older(move: Move, declined: DeclinedBuild, world: World) -> Move:
    """Return the move (the decision about one image), or a refusal if its build is the declined
    build or an older one. A build is declined if a person closes its pull request.
    """
    policy = move.subscription.policy
    candidate = move.decision.candidate
    declined_build = declined.written
    new_build = Written(candidate.tag, candidate.digest, move.build)
    if new_build.version == declined_build.version:
        because = (
            f"{declined.url}: a person closed the request for this build;"
            " a newer build will open another request"
        )
        return move.without_effect(Verdict("refuse", "superseded", because))

    ancestry: dict[tuple[str, str, str], str] = {}  # which of two source commits is newer
    # Ordered tags decide without the source commits, unless the tags are the same.
    tags_decide = rules_of(policy).ordered and new_build.tag != declined_build.tag
    if not tags_decide:
        pair = commits(new_build.build, declined_build.build)
        if pair:
            ancestry[pair] = world.ancestry(*pair)
    reason = why_older(new_build, declined_build, policy, ancestry)
    if not reason:  # it is newer, or the order is unknown
        return move
    because = f"{declined.url}: a person closed the request for {declined_build.version}: {reason}"
    return move.without_effect(Verdict("refuse", "superseded", because))


def _also_governed(
    ask: Ask,
    head: HeadBranch,
    base: Snapshot,
    view: Snapshot,
    terms: Terms,
) -> Ask:
    """Apply the configs of both branches to an ask (an image with a new build) whose commit belongs
    on a head branch that someone else has pushed to. For each file that changes there, the stricter
    setting wins.

    `view` contains the files of the head branch. Raises `TargetError` if the head branch's config
    is invalid or requires a pull request.
    """
    asked_sub = ask.subscription
    name = head.name

    def changed(sub: Subscription) -> Collection[str]:
        """Return the paths of the files that an update changes on the head branch."""
        return changed_files(view, sub, terms)

    (by_head,) = governed([asked_sub], config_in(head.files), terms.now, changed)
    if by_head.pull_request and not asked_sub.pull_request:
        message = f"the config on {name} requires a pull request"
        hint = f"use {name} before the colon in git-branch, as the pull request's base"
        raise TargetError(message, hint=hint, subject=PATH)
    governed_by_base = governed([asked_sub], config_in(base.files), terms.now, changed)
    (by_base,) = also_limited(governed_by_base, config_in(base.default), changed)

    # `asked_sub` already has the base's demands. If the base demands more for a file that only
    # this branch has, the edit is refused later (`refuse_stricter`).
    with of_config():
        demands = (*asked_sub.demands, *with_all_keys(by_head, head.files).demands)
    strictest = _with_strictest_settings(asked_sub, by_base, by_head)
    return replace(ask, subscription=replace(strictest, demands=tuple(dict.fromkeys(demands))))


def _with_strictest_settings(
    asked: Subscription, by_base: Subscription, by_head: Subscription
) -> Subscription:
    """Return a subscription with the strictest settings from its three versions: as it was
    (`asked`), with the base's config, and with the head branch's config.
    """
    versions = (asked, by_base, by_head)
    freezes = [sub.freeze for sub in versions if sub.freeze]
    longest_freeze = max(freezes, key=lambda freeze: epoch_seconds(freeze.until), default=None)
    policy = replace(
        by_head.policy,
        pin_digest=any(sub.policy.pin_digest for sub in versions),
        minimum_age=max(sub.policy.minimum_age for sub in versions),
    )
    wishes = asked.wishes
    if by_head.wishes != Wishes():
        wishes = agreed([wishes, by_head.wishes], wishes)
    writes = (*asked.writes, *by_base.writes, *by_head.writes)
    return replace(
        asked,
        wishes=wishes,
        policy=policy,
        freeze=longest_freeze,
        writes=tuple(dict.fromkeys(writes)),
    )


def _view_of_foreign_branch(head: HeadBranch, base: Snapshot, asks: Collection[Ask]) -> Snapshot:
    """Return a snapshot of a head branch that someone else has pushed to.

    It contains the files of that branch. Its memory files are the state files of these asks (holds,
    and the newest written builds), merged from the base and the memory branch.
    """
    memory_files = dict(base.memory_files)
    for path in {state_path(ask.subscription) for ask in asks}:
        on_base = own_states(base.files, path)
        on_memory_branch = own_states(base.memory_files, path)
        merged_states: dict[str, State] = {}  # keyed by write-back file
        for file in (*on_base, *on_memory_branch):
            state_on_base = on_base.get(file, State())
            state_on_memory_branch = on_memory_branch.get(file, State())
            merged_states[file] = merged(state_on_base, state_on_memory_branch)
        memory_files[path] = File(write_state("", merged_states))
    return replace(
        base, branch=head.name, tip=head.tip, files=head.files, memory_files=memory_files
    )

"""Pure code that turns moves (decisions with their changes) into commits: one for each branch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from task.annotations.write_back import refuse_files
from task.deciding.cautions import cut_loose, file_cautions
from task.deciding.job import AUTHOR, Move, Terms, Wording, failed
from task.deciding.target import target_of
from task.deciding.weigh import key_of
from task.editors import EDITORS, helm_values
from task.editors.file_text import refuse_executable
from task.errors import NotPermittedError, TargetError, TaskError
from task.image import parse_image
from task.landing.head_branches import HeadBranch
from task.landing.releases import files_without, hold_of, release_reason, with_files
from task.landing.states import changed_states, new_holds
from task.landing.waiting_builds import NO_FATES, FatesOnHead, Undecided
from task.landing.waiting_list import ListedBuild, ListedRelease, key_of_entry
from task.model import (
    Changeset,
    Commit,
    Decision,
    Edit,
    File,
    Files,
    Person,
    Problem,
    Snapshot,
    Subscription,
    Target,
    Verdict,
    Wishes,
)
from task.repository_config.config import RepositoryConfig, agreed, refuse_stricter
from task.templates.change import AppChanges, Change, merged_changes
from task.templates.commit_message import Message, commit_message, hold_message, subject
from task.text import differ

SHORT = 4  # up to this length, a misspelled word may differ in only one character


@dataclass(frozen=True)
class PreparedCommit:
    """One changeset (a commit's files and message), and the decisions that it implements."""

    changeset: Changeset
    decisions: tuple[Decision, ...]
    done: tuple[Move, ...] = ()  # everything that is written, including builds that were waiting
    warning: str = ""
    apps: tuple[AppChanges, ...] = ()  # everything that the commit changes
    # changes from earlier runs on a branch that a person has pushed to; they are merged too
    earlier_changes: tuple[AppChanges, ...] = ()
    # changes back to an older version, requested by a person
    rollbacks: tuple[AppChanges, ...] = ()
    # the command for the title; "rollback" or "hold" if a change of that kind was already waiting
    command: str = "run"
    asked: str = ""  # a person's request, in a few words: `hold web`; "" for a new image
    ending: tuple[str, ...] = ()  # the holds on the base that the commit ends, as strings
    leaving: tuple[str, ...] = ()  # builds that are no longer waiting on the head branch, and why
    cautions: tuple[Problem, ...] = ()
    templated: bool = False  # whether the message was rendered from a custom template
    wishes: Wishes = Wishes()  # settings from the config for the pull request
    frozen: bool = False  # whether a freeze covers part of the commit

    def with_updates_as(self, verdict: Verdict) -> tuple[Decision, ...]:
        """Return the decisions, with each "update" replaced by this verdict."""
        return tuple(
            replace(decision, judged=verdict) if decision.verdict == "update" else decision
            for decision in self.decisions
        )

    def reported(self, commit: str) -> Commit:
        """Return the report's entry for this commit, without the files.

        `commit` is the commit's id, or "" if the commit is only predicted.
        """
        changeset = self.changeset
        apps = {decision.subscription.application.key for decision in self.decisions}
        return Commit(
            repo=changeset.repo,
            branch=changeset.base,
            head=changeset.head,
            commit=commit or None,
            tree="",
            files=(),
            applications=tuple(sorted(apps)),
            notes=self.command == "failed",
        )


@dataclass(frozen=True)
class Prepared:
    """The commits that a batch is going to write."""

    commits: tuple[PreparedCommit, ...] = ()
    without_commit: tuple[Decision, ...] = ()  # decisions that don't need a commit
    unwritten: Mapping[str, tuple[Undecided, ...]] = field(
        default_factory=dict
    )  # builds that could not be written, by head branch


@dataclass(frozen=True)
class Edited:
    """The result of making the edits for one commit."""

    files: dict[str, File]
    done: list[Move]
    failed: list[Move]  # moves whose edit failed
    same: list[Move]  # moves that don't change anything
    cautions: list[Problem]


def prepare_commits(
    snapshot: Snapshot,
    moves: Sequence[Move],
    terms: Terms,
    wording: Wording,
    heads: Mapping[str, HeadBranch] = MappingProxyType({}),
    head_fates: Mapping[str, FatesOnHead] = MappingProxyType({}),
) -> Prepared:
    """Make the edits that the decisions (`moves`) call for, and return one commit for each branch
    that changes.

    A commit is made on the base branch or on a head branch (the branch of a pull request). `heads`
    contains the affected head branches, and `head_fates` records what became of the builds that
    were waiting there. A move becomes `unchanged` if its edit doesn't change anything, and `error`
    if its edit fails. If one edit is not permitted, none of the Application's edits are made.
    """
    moves_by_branch = _moves_by_branch(snapshot, moves, head_fates)
    commits: list[PreparedCommit] = []
    unwritten: dict[str, tuple[Undecided, ...]] = {}  # keyed by head branch
    without_commit: list[Decision] = []
    for move in moves:
        is_in_commit = move in moves_by_branch.get(move.decision.head, ())
        if not is_in_commit and not move.kept:  # kept builds are reported separately
            without_commit.append(move.decision)

    for name, moves_of_branch in moves_by_branch.items():
        head = heads.get(name)
        of_head = head_fates.get(name, NO_FATES)
        parent = _base_of_commit(snapshot, head)

        # the write-back files
        edited = _edit_files(parent.files, moves_of_branch, terms, wording.config)
        without_commit += _decisions_of((*edited.failed, *edited.same))
        unwritten[name] = _unwritten_builds(edited, of_head)

        # the state files: minus the holds that this commit ends, plus what the moves add
        files_without_holds = files_without(parent, of_head.releases)
        parent_without_holds = with_files(parent, files_without_holds)
        is_head_branch = name != snapshot.branch
        states = changed_states(parent_without_holds, edited.done, aside=is_head_branch)

        files = edited.files | files_without_holds | states
        if not files:
            without_commit += _decisions_of(edited.done)
            continue
        commit_place = CommitPlace(parent=parent, name=name, head=head, releases=of_head.releases)
        commit = replace(
            _prepare(commit_place, files, edited.done, wording),
            cautions=tuple(edited.cautions),
            earlier_changes=_changes_on_foreign_branch(of_head),
            leaving=of_head.leaving,
        )
        commits.append(commit)

    # If one edit was refused, the Application's other updates are refused too. Some of the prepared
    # commits may contain those updates, so all commits are prepared again.
    permitted = _without_refused_moves(moves, without_commit)
    if permitted != list(moves):
        return prepare_commits(snapshot, permitted, terms, wording, heads, head_fates)
    return Prepared(tuple(commits), tuple(without_commit), unwritten)


def _decisions_of(moves: Iterable[Move]) -> list[Decision]:
    """Return these moves' decisions for the report. Decisions about waiting builds (`kept`) are
    left out, because the report lists them separately.
    """
    return [move.decision for move in moves if not move.kept]


def _moves_by_branch(
    snapshot: Snapshot,
    moves: Sequence[Move],
    head_fates: Mapping[str, FatesOnHead],
) -> dict[str, list[Move]]:
    """Return the moves (decisions with their changes) that need a commit, keyed by the commit's
    branch: the base branch, or the head branch of a pull request.

    On a head branch, these are the moves that write an update or end a hold. Other changes to the
    memory (what a state file remembers about an image) are stored on the memory branch instead. A
    branch that needs no new commit is left out.
    """
    # branches whose merge ends a hold; they may need a commit even without a move
    releasing_branches = {name for name, of_head in head_fates.items() if of_head.releases}
    branches: dict[str, list[Move]] = {name: [] for name in releasing_branches}
    for move in moves:
        branch = move.decision.head
        ends_hold = move.released and branch in releasing_branches
        changes_base = move.changes and branch == snapshot.branch
        if move.updates or ends_hold or changes_base:
            branches.setdefault(branch, []).append(move)

    # A branch is left out if all its moves only rewrite waiting builds, and nothing about those
    # builds has changed.
    needed: dict[str, list[Move]] = {}
    for branch, moves_of_branch in branches.items():
        is_altered = branch in head_fates and head_fates[branch].altered
        has_new_moves = any(not move.kept for move in moves_of_branch)
        if is_altered or has_new_moves:
            needed[branch] = moves_of_branch
    return needed


def _base_of_commit(snapshot: Snapshot, head: HeadBranch | None) -> Snapshot:
    """Return the parent of a commit, with its files: the base's tip, or, if someone else has pushed
    to the head branch, that branch's tip. `head` is None for a commit on the base.
    """
    if head is None or head.ours:
        return snapshot
    return replace(snapshot, tip=head.tip, files={**snapshot.files, **head.files})


def _unwritten_builds(edited: Edited, of_head: FatesOnHead) -> tuple[Undecided, ...]:
    """Return the builds that were waiting on a head branch but can no longer be written because
    their edit fails. They remain in the branch's list.
    """
    listed_builds = {fate.listed.key: fate.listed for fate in of_head.fates}
    unwritten_builds = []
    for move in edited.failed:
        if not move.kept:  # a new build, which is not in the list
            continue
        build = listed_builds.get(key_of_entry(move.subscription))
        if build:
            verdict = move.decision.judged
            error = TargetError(verdict.because, hint=verdict.hint)
            unwritten_builds.append(Undecided(build, error))
    return tuple(unwritten_builds)


def _changes_on_foreign_branch(of_head: FatesOnHead) -> tuple[AppChanges, ...]:
    """Return the changes made by waiting builds that are still on a branch that a person has pushed
    to.
    """
    on_branch = [fate.listed for fate in of_head.fates if fate.on_foreign_branch]
    changes = [_listed_change(listed) for listed in on_branch]
    return tuple(merged_changes(changes))


def _listed_change(listed: ListedBuild) -> AppChanges:
    """Return the change that a listed build (one waiting on a head branch) makes to its
    Application.
    """
    namespace, _, name = listed.application.partition("/")
    change = Change(
        image=parse_image(listed.image),
        alias=listed.alias,
        old_tag=listed.base.tag,
        new_tag=listed.tag,
        old_digest=listed.base.digest,
        new_digest=listed.digest,
        build=listed.build,
        promoted_from=listed.promoted_from,
        proof=listed.proof,
        event=listed.event,
        why=listed.admitted,
    )
    return AppChanges(namespace, name, (change,))


def _without_refused_moves(moves: Sequence[Move], without_commit: Sequence[Decision]) -> list[Move]:
    """Return the moves (decisions). If one edit for an Application was not permitted, its other
    updates are refused for the same reason, except for builds that were already waiting (`kept`).
    """
    refusals: dict[str, Verdict] = {}  # keyed by Application
    for decision in without_commit:
        if decision.rule == NotPermittedError.rule:
            refusals[decision.subscription.application.key] = decision.judged
    permitted = []
    for move in moves:
        refusal = refusals.get(move.subscription.application.key)
        if refusal and move.updates and not move.kept:
            permitted.append(move.without_effect(refusal))
        else:
            permitted.append(move)
    return permitted


def _edit_files(
    files: Files, moves: Sequence[Move], terms: Terms, config: RepositoryConfig
) -> Edited:
    """Make the edits for one commit: write the version chosen by each move (decision) to its
    Application's files.

    `files` are the files of the commit's parent. A move fails if it would overwrite an earlier
    move's version, because a commit cannot contain two versions in the same place.
    """
    files_so_far: dict[str, File] = dict(files)  # including the edits of earlier moves
    # the decision that wrote the current version, keyed by the edited file and key
    writers: dict[tuple[str, str], tuple[Decision, Target]] = {}
    edited = Edited(files={}, done=[], failed=[], same=[], cautions=[])
    for move in moves:
        decision = move.decision
        if not move.updates or decision.kind is None:  # there is nothing to edit
            edited.done.append(move)
            continue

        # 1. Write the version to the files.
        target = target_of(decision.subscription, decision.kind, carry=terms.carry)
        try:
            changed_files, edits, already_written = _write_version(
                move, target, files, files_so_far, edited, terms, config
            )
            _refuse_overwriting(edits, writers, {**files_so_far, **changed_files})
        except TaskError as error:
            edited.failed.append(replace(move, decision=failed(decision, error)))
            continue
        changes_anything = bool(edits or changed_files or already_written)
        if not changes_anything:
            verdict = Verdict("unchanged", "same", f"Git already has {decision.candidate.version}")
            edited.same.append(replace(move, decision=replace(decision, judged=verdict)))
            continue

        # 2. Record the edits, and anything that people should know about them.
        decision = _as_edited(decision, target, files_so_far, changed_files, edits)
        if decision.kind == "kustomization" and edits:
            edited.cautions.extend(cut_loose(files_so_far, decision.subscription, target))
        files_so_far.update(changed_files)
        edited.files.update(changed_files)
        edited.done.append(replace(move, decision=decision))
        if move.kept:
            # a new build may overwrite this waiting build, whose cautions were reported when it was
            # added to the list
            continue
        for edit in edits:
            writers[edit.path, edit.key] = (decision, target)
        edited.cautions.extend(
            file_cautions(
                files_so_far, decision.subscription, target.kind, decision.candidate, terms
            )
        )
    return edited


def _write_version(
    move: Move,
    target: Target,
    files: Files,
    files_so_far: Files,
    edited: Edited,
    terms: Terms,
    config: RepositoryConfig,
) -> tuple[Files, Sequence[Edit], Files]:
    """Write the version chosen by one move (a decision) to its target.

    `files` are the files of the commit's parent, and `files_so_far` also include the commit's
    earlier edits. Neither is modified. Return the files that this move changes, the edits in them,
    and the files that already contain the version because of an earlier move in this commit. Raises
    `TaskError` if the edit fails or is not permitted.
    """
    decision = move.decision
    sub = decision.subscription
    editor = EDITORS[target.kind]
    changed_files, edits = editor.write(files_so_far, target, decision.candidate)
    already_written: Files = {}
    changes_nothing = not edits and not changed_files
    if edited.files and changes_nothing:
        # An earlier move may have written the same version. Find out what this move would change on
        # its own.
        already_written, _ = editor.write(files, target, decision.candidate)

    refuse_files(sub, {**already_written, **changed_files}, decision.head)
    refuse_stricter(sub, changed_files, config)
    if terms.through == "github":
        refuse_executable(changed_files)
    return changed_files, edits, already_written


def _refuse_overwriting(
    edits: Sequence[Edit],
    writers: Mapping[tuple[str, str], tuple[Decision, Target]],
    files: Files,
) -> None:
    """Raise `TargetError` if an edit overwrites the version of an earlier edit in this commit with
    a different version.

    `writers` maps the file and key of each earlier edit to its decision and target. `files` are the
    files after these edits.
    """
    for edit in edits:
        earlier = writers.get((edit.path, edit.key))
        if earlier is None:
            continue
        earlier_decision, earlier_target = earlier
        version = EDITORS[earlier_target.kind].read(files, earlier_target).version
        if version != earlier_decision.candidate.version:
            raise _overwriting_error(edit, earlier_decision)


def _as_edited(
    decision: Decision,
    target: Target,
    files_so_far: Files,
    changed_files: Files,
    edits: Sequence[Edit],
) -> Decision:
    """Return the decision with notes about an edit to a Helm values file: whether the file is new,
    and whether a key may be misspelled or is shared with others. For any other kind of file, the
    decision is returned unchanged.

    `files_so_far` are the files before the edit, and `changed_files` are the files that it changes.
    """
    if decision.kind != "helmvalues":
        return decision
    new_paths = [path for path in changed_files if path not in files_so_far]
    misspelled = None
    adds_key = any(not edit.old for edit in edits)
    if adds_key:
        misspelled = _misspelled_key(files_so_far, decision)
    return replace(
        decision,
        misspelled=misspelled,
        created=new_paths[0] if new_paths else "",
        shared=helm_values.shared(files_so_far, target),
    )


def _misspelled_key(files: Files, decision: Decision) -> tuple[str, str] | None:
    """Return a key that is missing from the Helm values, and an existing key with almost the same
    spelling, such as `image.tag` and `imge.tag`. Return None if there is no such pair.
    """
    target = target_of(decision.subscription, "helmvalues")
    for missing_key, existing_keys in helm_values.beside(files, target):
        for existing_key in existing_keys:
            # Compare the first words that differ (`image` and `imge` for `image.tag` and
            # `imge.tag`).
            pairs = zip(missing_key.split("."), existing_key.split("."), strict=False)
            different_words = [(word, other) for word, other in pairs if word != other]
            if not different_words:
                continue
            word, other = different_words[0]
            is_short = min(len(word), len(other)) <= SHORT
            most_differences = 1 if is_short else 2  # characters
            enough_to_reject = most_differences + 1  # `differ` stops counting here
            if differ(word, other, enough_to_reject) < enough_to_reject:
                return missing_key, existing_key
    return None


def _overwriting_error(edit: Edit, first: Decision) -> TargetError:
    """Return the error for an edit to a key that the commit has already set to a different version,
    chosen by the earlier decision `first`.
    """
    entry = first.subscription.entry
    app = first.subscription.application.key
    return TargetError(
        f"the same commit sets {edit.key} to {first.candidate.version} for {entry.text!r} in {app}",
        hint=(
            "use separate keys or files, or the same rules if both entries are for the same image"
        ),
        subject=edit.path,
    )


def agreed_wording(from_options: Wording, subs: Sequence[Subscription]) -> Wording:
    """Return the wording for a commit that updates the images of these subscriptions: its author,
    message template, trailers, and push options.

    Each setting is taken from the command line (`from_options`), from the repository's config, or
    from the defaults, in that order.
    """
    from_config = agreed([sub.wishes for sub in subs], from_options.common)
    author = Person(
        from_options.author.name or from_config.author_name or AUTHOR.name,
        from_options.author.email or from_config.author_email or AUTHOR.email,
    )
    template = from_options.template
    if template is None:  # the config contains the template's path, and the file was already read
        template = from_options.templates.get(from_config.template or "")

    # a trailer on the command line replaces the config's trailer with the same key
    trailers = list(from_options.trailers)
    given_keys = {key.lower() for key, _value in trailers}
    for key, value in from_config.trailers or ():
        if key.lower() not in given_keys:
            trailers.append((key, value))
    signs_off = from_config.sign_off if from_options.sign_off is None else from_options.sign_off
    if signs_off:
        trailers.append(("Signed-off-by", f"{author.name} <{author.email}>"))
    return replace(
        from_options,
        author=author,
        template=template,
        trailers=tuple(trailers),
        push_options=from_options.push_options or from_config.push_options or (),
    )


@dataclass(frozen=True)
class CommitPlace:
    """A commit's branch and parent."""

    parent: Snapshot
    name: str  # the branch's name
    head: HeadBranch | None  # None for the base
    releases: tuple[ListedRelease, ...] = ()  # the holds that the commit ends

    @property
    def on_top(self) -> bool:
        """Whether the commit is made on top of someone else's branch."""
        return self.head is not None and not self.head.ours

    @property
    def head_commit(self) -> str | None:
        """The head branch's tip ("" if the branch does not exist), or None for the base."""
        if self.name == self.parent.branch:
            return None
        return self.head.tip if self.head else ""


@dataclass(frozen=True)
class CommitWords:
    """A commit message and its parts."""

    message: Message
    command: str  # the command in the subject
    asked: str  # a person's request in a few words, or ""
    changed: tuple[AppChanges, ...]  # the Applications with an image that changes
    rollbacks: tuple[AppChanges, ...]


def _prepare(
    commit_place: CommitPlace,
    files: Mapping[str, File],
    moves: Sequence[Move],
    wording: Wording,
) -> PreparedCommit:
    """Return a commit with these changed files and its message.

    `moves` are the decisions that the commit implements, including those that rewrite builds that
    were already waiting.
    """
    subs = [move.subscription for move in moves]
    wording = agreed_wording(wording, subs)
    words = _words_of_commit(commit_place, files, moves, wording)
    changeset = Changeset(
        repo=commit_place.parent.repo,
        base=commit_place.parent.branch,
        head=commit_place.name,
        tip=commit_place.parent.tip,
        files=files,
        message=words.message.text,
        author=wording.author,
        head_commit=commit_place.head_commit,
        on_top=commit_place.on_top,
        # push options are only needed if an image changes
        push_options=wording.push_options if words.changed else (),
    )
    return PreparedCommit(
        changeset=changeset,
        decisions=tuple(move.decision for move in moves if not move.kept),
        done=tuple(moves),
        warning=words.message.warning,
        apps=words.changed,
        rollbacks=words.rollbacks,
        command=words.command,
        asked=words.asked,
        ending=tuple(map(hold_of, commit_place.releases)),
        templated=wording.template is not None,
        wishes=agreed([sub.wishes for sub in subs], wording.common),
        frozen=any(sub.freeze for sub in subs),
    )


# These commands write new builds. Any other command is a person's request.
_BRING_BUILDS = ("run", "scan", "promote")


def _words_of_commit(
    commit_place: CommitPlace,
    files: Mapping[str, File],
    moves: Sequence[Move],
    wording: Wording,
) -> CommitWords:
    """Write the message for a commit with these changed files. `moves` are the decisions that the
    commit implements.

    A person's request becomes the subject, even if it was already waiting on the head branch:
    reviewers should see it first.
    """
    # On a head branch, a `hold` counts as a `run`: its commit contains only the builds that are
    # still waiting there. The hold itself is stored on the memory branch.
    is_head_branch = commit_place.name != commit_place.parent.branch
    is_hold_on_head = wording.command == "hold" and is_head_branch
    run_command = "run" if is_hold_on_head else wording.command

    rollbacks = tuple(_named_apps([move for move in moves if move.rolled_back]))
    holds = new_holds(commit_place.parent.files, files, moves)
    released_apps = dict.fromkeys(release.app for release in commit_place.releases)
    command = _command_of_subject(run_command, moves, rollbacks, holds, released_apps)
    apps = _with_released(_named_apps(moves), released_apps)
    changed = tuple(app for app in apps if app.changes)

    if changed and command in _BRING_BUILDS:
        deferred = [move for move in moves if move.decision.verdict == "defer"]
        sentences = tuple(_sentences(deferred, ()))
        message = commit_message(wording.template, changed, wording.trailers, sentences)
        return CommitWords(message, command, "", changed, rollbacks)

    why = _common_reason(moves)
    if command in _BRING_BUILDS:  # nobody asked for it: the run only holds a build back
        build = moves[0].decision.candidate.version if moves else ""
        line = subject(command, apps, build, why)
        request = ""
    else:
        line, request = _subject_by_hand(
            command, run_command, apps, holds, rollbacks, released_apps, why
        )
    reasons = [*holds, *map(release_reason, commit_place.releases)]
    sentences = tuple(_sentences(moves, reasons))
    message = hold_message(line, wording.template, apps, sentences, wording.trailers)
    return CommitWords(message, command, request, changed, rollbacks)


def _subject_by_hand(
    command: str,
    run_command: str,
    all_apps: Sequence[AppChanges],
    holds: Sequence[tuple[tuple[str, str], str, str]],
    rollbacks: Sequence[AppChanges],
    released_apps: Collection[tuple[str, str]],
    why: str,
) -> tuple[str, str]:
    """Return the subject for a commit that a person requested, and the request in a few words.

    `command` is the command for the subject, and `run_command` is this run's own command. The
    subject names the Applications that the request is about: those with a rollback or a new hold
    and, in a run that brings new builds, those whose hold ends (`released_apps`). If there are
    none, it names all Applications in the commit (`all_apps`). `holds` are the new holds:
    (Application, what is held, reason). `why` is the reason for the holds.
    """
    requested_apps = {_key(app) for app in rollbacks}
    requested_apps.update(app for app, _what, _reason in holds)
    if run_command in _BRING_BUILDS:
        requested_apps.update(released_apps)
    apps = [app for app in all_apps if _key(app) in requested_apps] or all_apps
    without_changes = [replace(app, changes=()) for app in apps]
    any_change = any(app.changes for app in apps)
    # in a title, the changes follow the request and replace the reason
    request = subject(command, without_changes, why="" if any_change else why)
    return subject(command, apps, why=why), request


def _command_of_subject(
    run_command: str,
    moves: Sequence[Move],
    rollbacks: Collection[AppChanges],
    holds: Collection[object],
    released_apps: Collection[object],
) -> str:
    """Return the command to use in a commit's subject, such as "run", "rollback", or "failed". A
    person's request takes precedence.

    `run_command` is this run's own command. The rollbacks, the new holds, and the holds that end
    (`released_apps`) may be requests from earlier runs.
    """
    if moves and all(move.remember and move.remember.notes for move in moves):
        return "failed"  # the commit only records versions whose rollout failed
    if rollbacks:
        return "rollback"
    if run_command not in _BRING_BUILDS:
        return run_command
    if holds:
        return "hold"
    return "release" if released_apps else run_command


def _with_released(
    apps: list[AppChanges], released_apps: Collection[tuple[str, str]]
) -> list[AppChanges]:
    """Return these Applications, plus those whose hold ends (`released_apps`), even if nothing else
    changes for them.
    """
    already_named = {(app.namespace, app.name) for app in apps}
    with_released = list(apps)
    for namespace, name in released_apps:
        if (namespace, name) not in already_named:
            with_released.append(AppChanges(namespace, name, ()))
    return with_released


def _key(app: AppChanges) -> tuple[str, str]:
    return app.namespace, app.name


def _common_reason(moves: Sequence[Move]) -> str:
    """Return the reason shared by all holds (orders to keep a version), or "" if their reasons
    differ.
    """
    reasons = {move.hold.reason for move in moves if move.hold}
    return reasons.pop() if len(reasons) == 1 else ""


def _named_apps(moves: Sequence[Move]) -> list[AppChanges]:
    """Return the Applications that a commit affects, with the image changes of each. An Application
    has no image changes if only its state file changes.
    """
    changes_by_app: dict[tuple[str, str], list[Change]] = {}
    for move in moves:
        app = move.subscription.application
        changes = changes_by_app.setdefault((app.namespace, app.name), [])
        if move.updates:
            changes.append(move.change)
    return [
        AppChanges(namespace, name, tuple(changes))
        for (namespace, name), changes in changes_by_app.items()
    ]


def _sentences(
    moves: Sequence[Move],
    reasons: Sequence[tuple[tuple[str, str], str, str]],
) -> list[str]:
    """Return a sentence about each image, with the reason for its decision, for a commit message.

    `reasons` are the reasons for starting or ending holds: (Application, what is held, reason). A
    reason that no other sentence mentions is added as a separate sentence.
    """
    sentences = []
    for move in moves:
        name = move.subscription.application.name
        because = move.decision.because
        sentences.append(f"{name} ({key_of(move.subscription)}): {because}")

    missing_reasons = []
    for (_namespace, name), what, why in reasons:
        is_mentioned = any(why in sentence for sentence in sentences)
        if not is_mentioned:
            missing_reasons.append(f"{name} ({what}): {why}")
    return list(dict.fromkeys([*sentences, *missing_reasons]))

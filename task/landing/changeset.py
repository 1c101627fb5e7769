"""Pure code that turns moves into commits: one changeset for each head branch."""

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

SHORT = 4  # words of at most this many characters are different words if two characters differ


@dataclass(frozen=True)
class PreparedCommit:
    """One changeset and the decisions behind it."""

    changeset: Changeset
    decisions: tuple[Decision, ...]
    done: tuple[Move, ...] = ()  # everything that it writes, including builds already waiting
    warning: str = ""
    apps: tuple[AppChanges, ...] = ()  # everything that the commit changes
    # changes of earlier runs on a person's branch: they are merged too
    earlier_changes: tuple[AppChanges, ...] = ()
    # changes that return to an older version because a person asked for it
    rollbacks: tuple[AppChanges, ...] = ()
    # for the title; also "rollback" or "hold" if such a change was already waiting
    command: str = "run"
    asked: str = ""  # a person's request, in a few words: `hold web`; "" for a new image
    ending: tuple[str, ...] = ()  # the base's holds that it ends, as strings
    leaving: tuple[str, ...] = ()  # the builds that are no longer waiting there, and why
    cautions: tuple[Problem, ...] = ()
    templated: bool = False  # whether the message comes from the author's own template
    wishes: Wishes = Wishes()  # the repository's config, for the pull request
    frozen: bool = False  # whether a freeze covers a part of it

    def with_updates_as(self, verdict: Verdict) -> tuple[Decision, ...]:
        """Return the decisions. Updates get this verdict instead."""
        return tuple(
            replace(decision, judged=verdict) if decision.verdict == "update" else decision
            for decision in self.decisions
        )

    def reported(self, commit: str) -> Commit:
        """Return the commit for the report.

        `commit` is its id, or "" if it is only predicted.
        """
        changeset = self.changeset
        apps = {decision.subscription.application.key for decision in self.decisions}
        return Commit(
            changeset.repo,
            changeset.base,
            changeset.head,
            commit or None,
            "",
            (),
            tuple(sorted(apps)),
            notes=self.command == "failed",
        )


@dataclass(frozen=True)
class Prepared:
    """The commits that a batch is going to write."""

    commits: tuple[PreparedCommit, ...] = ()
    without_commit: tuple[Decision, ...] = ()  # decisions that don't need a commit
    unwritten: Mapping[str, tuple[Undecided, ...]] = field(
        default_factory=dict
    )  # not written, by head


@dataclass(frozen=True)
class Edited:
    """The edits of one commit."""

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
    """Return changesets for the branches that change, and the decisions without a changeset.

    `heads` are the affected head branches, and `head_fates` contains what became of their builds. A
    move becomes `unchanged` if its edit doesn't change anything, and `error` if its edit fails. If
    one edit is not permitted, none of the Application's edits are made.
    """
    branches = _by_branch(snapshot, moves, head_fates)
    commits: list[PreparedCommit] = []
    unwritten: dict[str, tuple[Undecided, ...]] = {}
    without_commit = [
        move.decision
        for move in moves
        if not move.kept and move not in branches.get(move.decision.head, ())
    ]
    for name, members in branches.items():
        head = heads.get(name)
        of_head = head_fates.get(name, NO_FATES)
        parent = _base_of_commit(snapshot, head)
        edited = _edit(parent.files, members, terms, wording.config)
        without_commit += _decisions_of((*edited.failed, *edited.same))
        unwritten[name] = _unwritten_builds(edited, of_head)
        released = files_without(parent, of_head.releases)
        parent_released = with_files(parent, released)
        states = changed_states(parent_released, edited.done, aside=name != snapshot.branch)
        files = edited.files | released | states
        if not files:
            without_commit += _decisions_of(edited.done)
            continue
        at = CommitPlace(parent, name, head, of_head.releases)
        commits.append(
            replace(
                _prepare(at, files, edited.done, wording),
                cautions=tuple(edited.cautions),
                earlier_changes=_changes_on_foreign_branch(of_head),
                leaving=of_head.leaving,
            )
        )
    permitted = _without_refused_moves(moves, without_commit)
    if permitted != list(moves):  # again, because some of these commits contain refused moves
        return prepare_commits(snapshot, permitted, terms, wording, heads, head_fates)
    return Prepared(tuple(commits), tuple(without_commit), unwritten)


def _decisions_of(moves: Iterable[Move]) -> list[Decision]:
    """Return the decisions for the report. Waiting builds have their own rows there."""
    return [move.decision for move in moves if not move.kept]


def _by_branch(
    snapshot: Snapshot,
    moves: Sequence[Move],
    head_fates: Mapping[str, FatesOnHead],
) -> dict[str, list[Move]]:
    """Return each commit's moves. A move that is only remembered on the memory branch is not part
    of a head branch's commit, but the end of a hold on the base is.

    A head branch without changes stays as it is.
    """
    releasing = {name for name, of_head in head_fates.items() if of_head.releases}
    branches: dict[str, list[Move]] = {name: [] for name in releasing}
    for move in moves:
        head = move.decision.head
        ends_hold = move.released and head in releasing
        changes_base = move.changes and head == snapshot.branch
        if move.updates or ends_hold or changes_base:
            branches.setdefault(head, []).append(move)
    altered = {name for name, of_head in head_fates.items() if of_head.altered}
    return {
        name: members
        for name, members in branches.items()
        if name in altered or any(not move.kept for move in members)
    }


def _base_of_commit(snapshot: Snapshot, head: HeadBranch | None) -> Snapshot:
    """Return a commit's parent: the base's tip, or the tip of someone else's branch."""
    if head is None or head.ours:
        return snapshot
    return replace(snapshot, tip=head.tip, files={**snapshot.files, **head.files})


def _unwritten_builds(edited: Edited, of_head: FatesOnHead) -> tuple[Undecided, ...]:
    """Return the listed builds whose edit now fails. They stay in the list."""
    listed = {fate.listed.key: fate.listed for fate in of_head.fates}
    unwritten = []
    for move in edited.failed:
        if not move.kept:  # an ask's move, which is not in the list
            continue
        build = listed.get(key_of_entry(move.subscription))
        if build:
            verdict = move.decision.judged
            unwritten.append(Undecided(build, TargetError(verdict.because, hint=verdict.hint)))
    return tuple(unwritten)


def _changes_on_foreign_branch(of_head: FatesOnHead) -> tuple[AppChanges, ...]:
    """Return the changes of the listed builds that are still on a person's branch."""
    listed = [fate.listed for fate in of_head.fates if fate.on_foreign_branch]
    return tuple(merged_changes(map(_listed_change, listed)))


def _listed_change(listed: ListedBuild) -> AppChanges:
    """Return the change that a listed build makes."""
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
    """Return the moves. If an edit was not permitted, the Application's other updates are refused
    too.
    """
    refused = {
        decision.subscription.application.key: decision.judged
        for decision in without_commit
        if decision.rule == NotPermittedError.rule
    }
    permitted = []
    for move in moves:
        refusal = refused.get(move.subscription.application.key)
        if refusal and move.updates and not move.kept:
            permitted.append(move.without_effect(refusal))
        else:
            permitted.append(move)
    return permitted


def _edit(files: Files, members: Sequence[Move], terms: Terms, config: RepositoryConfig) -> Edited:
    """Make the edits of each move in turn.

    A move fails if it would overwrite an earlier one, because a commit cannot have two versions in
    the same place.
    """
    so_far: dict[str, File] = dict(files)  # with the edits of the moves before
    writers: dict[tuple[str, str], tuple[Decision, Target]] = {}  # by file and key
    edited = Edited({}, [], [], [], [])
    for move in members:
        decision = move.decision
        if not move.updates or decision.kind is None:
            edited.done.append(move)
            continue
        target = target_of(decision.subscription, decision.kind, carry=terms.carry)
        try:
            new, edits, already_written = _move_written(
                move, target, files, so_far, edited, terms, config
            )
            _refuse_overwriting(edits, writers, {**so_far, **new})
        except TaskError as error:
            edited.failed.append(replace(move, decision=failed(decision, error)))
            continue
        if not edits and not new and not already_written:
            verdict = Verdict("unchanged", "same", f"Git already has {decision.candidate.version}")
            edited.same.append(replace(move, decision=replace(decision, judged=verdict)))
            continue
        decision = _as_edited(decision, target, so_far, new, edits)
        if decision.kind == "kustomization" and edits:
            edited.cautions.extend(cut_loose(so_far, decision.subscription, target))
        so_far.update(new)
        edited.files.update(new)
        edited.done.append(replace(move, decision=decision))
        if not move.kept:  # a newer build may replace a waiting one
            writers |= {(edit.path, edit.key): (decision, target) for edit in edits}
            edited.cautions.extend(
                file_cautions(so_far, decision.subscription, target.kind, decision.candidate, terms)
            )
    return edited


def _move_written(
    move: Move,
    target: Target,
    files: Files,
    so_far: Files,
    edited: Edited,
    terms: Terms,
    config: RepositoryConfig,
) -> tuple[Files, Sequence[Edit], Files]:
    """Return the files that the move changes with their edits, and the files that already have its
    change because of an earlier move in this commit.

    Raises `TaskError` if the edit fails or is not permitted.
    """
    decision = move.decision
    editor = EDITORS[target.kind]
    new, edits = editor.write(so_far, target, decision.candidate)
    already_written: Files = {}
    if edited.files and not edits and not new:
        already_written, _ = editor.write(files, target, decision.candidate)
    refuse_files(decision.subscription, {**already_written, **new}, decision.head)
    refuse_stricter(decision.subscription, new, config)
    if terms.through == "github":
        refuse_executable(new)
    return new, edits, already_written


def _refuse_overwriting(
    edits: Sequence[Edit],
    writers: Mapping[tuple[str, str], tuple[Decision, Target]],
    files: Files,
) -> None:
    """Raise `TargetError` if an edit overwrites an earlier one in this commit.

    `writers` are the earlier edits, by file and key. `files` are the files after these edits.
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
    so_far: Files,
    new: Files,
    edits: Sequence[Edit],
) -> Decision:
    """Add notes for people about the values file to the decision.

    `so_far` are the files before its edits, and `new` are those that it changes.
    """
    if decision.kind != "helmvalues":
        return decision
    adds_key = any(not edit.old for edit in edits)
    return replace(
        decision,
        misspelled=_almost_the_same_key(so_far, decision) if adds_key else None,
        created=next((path for path in new if path not in so_far), ""),
        shared=helm_values.shared(so_far, target),
    )


def _almost_the_same_key(files: Files, decision: Decision) -> tuple[str, str] | None:
    """Return a key that is missing from these values, and a similar one that they contain."""
    target = target_of(decision.subscription, "helmvalues")
    for missing_key, existing_keys in helm_values.beside(files, target):
        for existing_key in existing_keys:
            pairs = zip(missing_key.split("."), existing_key.split("."), strict=False)
            different = [(word, other) for word, other in pairs if word != other]
            if not different:
                continue
            word, other = different[0]
            few = 1 if min(len(word), len(other)) <= SHORT else 2
            if differ(word, other, few + 1) <= few:
                return missing_key, existing_key
    return None


def _overwriting_error(edit: Edit, first: Decision) -> TargetError:
    """Return the error for an edit of a place where the commit already wrote `first`."""
    entry = first.subscription.entry
    app = first.subscription.application.key
    return TargetError(
        f"the same commit sets {edit.key} to {first.candidate.version} for {entry.text!r} in {app}",
        hint=(
            "use separate keys or files, or the same rules if both entries are for the same image"
        ),
        subject=edit.path,
    )


def agreed_wording(given: Wording, subs: Sequence[Subscription]) -> Wording:
    """Return the wording of a commit for these subscriptions: from the command line, the config,
    or the default, in this order.
    """
    wishes = agreed([sub.wishes for sub in subs], given.common)
    author = Person(
        given.author.name or wishes.author_name or AUTHOR.name,
        given.author.email or wishes.author_email or AUTHOR.email,
    )
    template = given.template
    if template is None:
        template = given.templates.get(wishes.template or "")
    trailers = [*given.trailers, *_trailers_besides(given.trailers, wishes)]
    signs_off = wishes.sign_off if given.sign_off is None else given.sign_off
    if signs_off:
        trailers.append(("Signed-off-by", f"{author.name} <{author.email}>"))
    options = given.push_options or wishes.push_options or ()
    return replace(
        given,
        author=author,
        template=template,
        trailers=tuple(trailers),
        push_options=options,
    )


def _trailers_besides(given: Iterable[tuple[str, str]], wishes: Wishes) -> list[tuple[str, str]]:
    """Return the config's trailers, except for keys set on the command line."""
    given_keys = {key.lower() for key, _ in given}
    trailers = wishes.trailers or ()
    return [(key, value) for key, value in trailers if key.lower() not in given_keys]


@dataclass(frozen=True)
class CommitPlace:
    """A commit's branch and parent."""

    under: Snapshot
    name: str  # of the branch
    head: HeadBranch | None  # None for the base
    releases: tuple[ListedRelease, ...] = ()  # the holds that it ends

    @property
    def on_top(self) -> bool:
        """Whether the commit goes on top of someone else's branch."""
        return self.head is not None and not self.head.ours

    @property
    def head_commit(self) -> str | None:
        """The head branch's tip, or None for the base."""
        if self.name == self.under.branch:
            return None
        return self.head.tip if self.head else ""


@dataclass(frozen=True)
class CommitWords:
    """A commit message and its parts."""

    message: Message
    command: str
    asked: str
    changed: tuple[AppChanges, ...]
    rollbacks: tuple[AppChanges, ...]


def _prepare(
    at: CommitPlace,
    files: Mapping[str, File],
    done: Sequence[Move],
    wording: Wording,
) -> PreparedCommit:
    """Return the commit for these moves."""
    subs = [move.subscription for move in done]
    wording = agreed_wording(wording, subs)
    words = _worded(at, files, done, wording)
    changeset = Changeset(
        repo=at.under.repo,
        base=at.under.branch,
        head=at.name,
        tip=at.under.tip,
        files=files,
        message=words.message.text,
        author=wording.author,
        head_commit=at.head_commit,
        on_top=at.on_top,
        # push options are only needed if an image changes
        push_options=wording.push_options if words.changed else (),
    )
    return PreparedCommit(
        changeset=changeset,
        decisions=tuple(move.decision for move in done if not move.kept),
        done=tuple(done),
        warning=words.message.warning,
        apps=words.changed,
        rollbacks=words.rollbacks,
        command=words.command,
        asked=words.asked,
        ending=tuple(map(hold_of, at.releases)),
        templated=wording.template is not None,
        wishes=agreed([sub.wishes for sub in subs], wording.common),
        frozen=any(sub.freeze for sub in subs),
    )


# These commands write new builds. Any other command is a person's request.
_BRING_BUILDS = ("run", "scan", "promote")


def _worded(
    at: CommitPlace,
    files: Mapping[str, File],
    done: Sequence[Move],
    wording: Wording,
) -> CommitWords:
    """Return the message.

    A person's request becomes the subject, even if it was already waiting on the head branch:
    reviewers should see it first.
    """
    # on a head branch, the hold itself is on the memory branch, and these builds are still waiting
    is_hold_on_head = wording.command == "hold" and at.name != at.under.branch
    run_command = "run" if is_hold_on_head else wording.command
    rollbacks = tuple(_named_apps([move for move in done if move.rolled_back]))
    holds = new_holds(at.under.files, files, done)
    ended = dict.fromkeys(release.app for release in at.releases)
    command = _command_of_subject(run_command, done, rollbacks, holds, ended)
    named = _with_released(_named_apps(done), ended)
    changed = tuple(app for app in named if app.changes)
    if changed and command in _BRING_BUILDS:
        deferred = [move for move in done if move.decision.verdict == "defer"]
        sentences = tuple(_sentences(deferred, ()))
        message = commit_message(wording.template, changed, wording.trailers, sentences)
        return CommitWords(message, command, "", changed, rollbacks)
    line, asked = _subject_by_hand(command, run_command, named, holds, rollbacks, ended, done)
    sentences = tuple(_sentences(done, [*holds, *map(release_reason, at.releases)]))
    message = hold_message(line, wording.template, named, sentences, wording.trailers)
    return CommitWords(message, command, asked, changed, rollbacks)


def _subject_by_hand(
    command: str,
    run_command: str,
    named: Sequence[AppChanges],
    holds: Sequence[tuple[tuple[str, str], str, str]],
    rollbacks: Sequence[AppChanges],
    ended: Collection[tuple[str, str]],
    done: Sequence[Move],
) -> tuple[str, str]:
    """Return the subject of a commit that a person asked for or that only changes state files, and
    the person's request ("" if there is none).
    """
    why = _common_reason(done)
    if command in _BRING_BUILDS:
        build = done[0].decision.candidate.version if done else ""
        return subject(command, named, build, why), ""
    requested_apps = {_key(app) for app in rollbacks} | {app for app, _, _ in holds}
    if run_command in _BRING_BUILDS:
        requested_apps.update(ended)
    apps = [app for app in named if _key(app) in requested_apps] or named
    without_changes = [replace(app, changes=()) for app in apps]
    why_alone = "" if any(app.changes for app in apps) else why
    return subject(command, apps, why=why), subject(command, without_changes, why=why_alone)


def _command_of_subject(
    run_command: str,
    done: Sequence[Move],
    rollbacks: Collection[AppChanges],
    holds: Collection[object],
    ended: Collection[object],
) -> str:
    """Return the command to use in the subject. A person's request comes first.

    `run_command` is this run's own command. The other requests may be from earlier runs.
    """
    if done and all(move.remember and move.remember.notes for move in done):
        return "failed"  # a version that failed, but was already replaced
    if rollbacks:
        return "rollback"
    if run_command not in _BRING_BUILDS:
        return run_command
    if holds:
        return "hold"
    return "release" if ended else run_command


def _with_released(named: list[AppChanges], ended: Collection[tuple[str, str]]) -> list[AppChanges]:
    """Add the Applications whose hold ends, even if there are no other changes for them."""
    already_named = {_key(app) for app in named}
    only_released = [AppChanges(*app, ()) for app in ended if app not in already_named]
    return [*named, *only_released]


def _key(app: AppChanges) -> tuple[str, str]:
    return app.namespace, app.name


def _common_reason(done: Sequence[Move]) -> str:
    """Return the reason of all holds, or "" if they have several reasons."""
    reasons = {move.hold.reason for move in done if move.hold}
    return reasons.pop() if len(reasons) == 1 else ""


def _named_apps(done: Sequence[Move]) -> list[AppChanges]:
    """Return each Application's changes. The changes are empty if only the Application's state file
    changes.
    """
    apps: dict[tuple[str, str], list[Change]] = {}
    for move in done:
        app = move.subscription.application
        changes = apps.setdefault((app.namespace, app.name), [])
        if move.updates:
            changes.append(move.change)
    return [
        AppChanges(namespace, name, tuple(changes)) for (namespace, name), changes in apps.items()
    ]


def _sentences(
    done: Sequence[Move],
    reasons: Sequence[tuple[tuple[str, str], str, str]],
) -> Mapping[str, None]:
    """Return a sentence for each image with the outcome and the reason. Add any missing reasons for
    holds and releases.
    """
    sentences = dict.fromkeys(
        f"{move.subscription.application.name} ({key_of(move.subscription)}):"
        f" {move.decision.because}"
        for move in done
    )
    missing = (
        f"{app[1]} ({what}): {why}"
        for app, what, why in reasons
        if not any(why in sentence for sentence in sentences)
    )
    return {**sentences, **dict.fromkeys(missing)}

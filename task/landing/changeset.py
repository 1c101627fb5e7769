"""Pure code that turns moves into commits: one changeset for each head branch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
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
        where = self.changeset
        apps = {decision.subscription.application.key for decision in self.decisions}
        return Commit(
            where.repo,
            where.base,
            where.head,
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
        under = _base_of_commit(snapshot, head)
        edited = _edit(under.files, members, terms, wording.config)
        without_commit += _decisions_of((*edited.failed, *edited.same))
        unwritten[name] = _unwritten_builds(edited, of_head)
        released = files_without(under, of_head.releases)
        after = with_files(under, released)
        states = changed_states(after, edited.done, aside=name != snapshot.branch)
        files = edited.files | released | states
        if not files:
            without_commit += _decisions_of(edited.done)
            continue
        at = CommitPlace(under, name, head, of_head.releases)
        commits.append(
            replace(
                _prepare(at, files, edited.done, wording),
                cautions=tuple(edited.cautions),
                earlier_changes=_changes_on_foreign_branch(of_head),
                leaving=of_head.leaving,
            )
        )
    permitted = _without_refused_moves(moves, without_commit)
    if permitted != list(moves):
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
        if move.updates or ends_hold or (move.changes and head == snapshot.branch):
            branches.setdefault(head, []).append(move)
    altered = {name for name, of_head in head_fates.items() if of_head.altered}
    return {
        name: members
        for name, members in branches.items()
        if name in altered or not all(move.kept for move in members)
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
        build = listed.get(key_of_entry(move.subscription)) if move.kept else None
        if build:
            verdict = move.decision.judged
            unwritten.append(Undecided(build, TargetError(verdict.because, hint=verdict.hint)))
    return tuple(unwritten)


def _changes_on_foreign_branch(of_head: FatesOnHead) -> tuple[AppChanges, ...]:
    """Return the changes of the listed builds that are still on a person's branch."""
    listed = [fate.listed for fate in of_head.fates if fate.on_foreign_branch]
    return tuple(merged_changes(map(_listed_change, listed)))


def _listed_change(listed: ListedBuild) -> AppChanges:
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
    return [
        (
            move.without_effect(refused[app])
            if (app := move.subscription.application.key) in refused
            and move.updates
            and not move.kept
            else move
        )
        for move in moves
    ]


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
            new, edits, same = _move_written(move, target, files, so_far, edited, terms, config)
            _refuse_taken(edits, writers, {**so_far, **new})
        except TaskError as error:
            edited.failed.append(replace(move, decision=failed(decision, error)))
            continue
        if not (edits or new or same):
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
    same: Files = {}
    if edited.files and not (edits or new):
        same = editor.write(files, target, decision.candidate)[0]
    refuse_files(decision.subscription, {**same, **new}, decision.head)
    refuse_stricter(decision.subscription, new, config)
    if terms.through == "github":
        refuse_executable(new)
    return new, edits, same


def _refuse_taken(
    edits: Sequence[Edit],
    writers: Mapping[tuple[str, str], tuple[Decision, Target]],
    files: Files,
) -> None:
    """Raise `TargetError` if an edit overwrites an earlier one in this commit."""
    for edit in edits:
        if earlier := writers.get((edit.path, edit.key)):
            first, place = earlier
            if EDITORS[place.kind].read(files, place).version != first.candidate.version:
                raise _taken(edit, first)


def _as_edited(
    decision: Decision,
    target: Target,
    so_far: Files,
    new: Files,
    edits: Sequence[Edit],
) -> Decision:
    """Add notes for people about the values file to the decision."""
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
    for key, others in helm_values.beside(files, target_of(decision.subscription, "helmvalues")):
        for other in others:
            words = (
                (word, near)
                for word, near in zip(key.split("."), other.split("."), strict=False)
                if word != near
            )
            for word, near in islice(words, 1):
                few = 1 if min(len(word), len(near)) <= SHORT else 2
                if differ(word, near, few + 1) <= few:
                    return key, other
    return None


def _taken(edit: Edit, first: Decision) -> TargetError:
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
    if wishes.sign_off if given.sign_off is None else given.sign_off:
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
    return [(key, value) for key, value in wishes.trailers or () if key.lower() not in given_keys]


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
    holds_aside = wording.command == "hold" and at.name != at.under.branch
    given = "run" if holds_aside else wording.command
    rollbacks = tuple(_named_apps([move for move in done if move.rolled_back]))
    holds = new_holds(at.under.files, files, done)
    ended = dict.fromkeys(release.app for release in at.releases)
    command = _command_of_subject(given, done, rollbacks, holds, ended)
    named = _with_released(_named_apps(done), ended)
    changed = tuple(app for app in named if app.changes)
    if changed and command in _BRING_BUILDS:
        deferred = [move for move in done if move.decision.verdict == "defer"]
        sentences = tuple(_sentences(deferred, ()))
        message = commit_message(wording.template, changed, wording.trailers, sentences)
        return CommitWords(message, command, "", changed, rollbacks)
    line, asked = _subject_by_hand(command, given, named, holds, rollbacks, ended, done)
    sentences = tuple(_sentences(done, [*holds, *map(release_reason, at.releases)]))
    message = hold_message(line, wording.template, named, sentences, wording.trailers)
    return CommitWords(message, command, asked, changed, rollbacks)


def _subject_by_hand(
    command: str,
    given: str,
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
    meant = {_key(app) for app in rollbacks} | {app for app, _, _ in holds}
    if given in _BRING_BUILDS:
        meant.update(ended)
    about = [app for app in named if _key(app) in meant] or named
    without_changes = [replace(app, changes=()) for app in about]
    why_alone = "" if any(app.changes for app in about) else why
    return subject(command, about, why=why), subject(command, without_changes, why=why_alone)


def _command_of_subject(
    given: str,
    done: Sequence[Move],
    rollbacks: Collection[AppChanges],
    holds: Collection[object],
    ended: Collection[object],
) -> str:
    """Return the command to use in the subject. A person's request comes first."""
    if done and all(move.remember and move.remember.notes for move in done):
        return "failed"  # a version that failed, but was already replaced
    if rollbacks:
        return "rollback"
    if given not in _BRING_BUILDS:
        return given
    if holds:
        return "hold"
    return "release" if ended else given


def _with_released(named: list[AppChanges], ended: Collection[tuple[str, str]]) -> list[AppChanges]:
    """Add the Applications whose hold ends, even if there are no other changes for them."""
    already_named = {_key(app) for app in named}
    rest = [AppChanges(*app, ()) for app in ended if app not in already_named]
    return [*named, *rest]


def _key(app: AppChanges) -> tuple[str, str]:
    return app.namespace, app.name


def _common_reason(done: Sequence[Move]) -> str:
    whys = {move.hold.reason for move in done if move.hold}
    return whys.pop() if len(whys) == 1 else ""


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
    lines = dict.fromkeys(
        f"{move.subscription.application.name} ({key_of(move.subscription)}):"
        f" {move.decision.because}"
        for move in done
    )
    missing = (
        f"{app[1]} ({what}): {why}"
        for app, what, why in reasons
        if not any(why in line for line in lines)
    )
    return {**lines, **dict.fromkeys(missing)}

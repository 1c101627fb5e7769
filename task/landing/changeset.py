"""Pure code that turns moves into commits: one changeset for each head branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from task.annotations.write_back import refuse_files
from task.deciding.cautions import cut_loose, file_cautions
from task.deciding.job import AUTHOR, Move, Terms, Wording, failed
from task.deciding.target import target_of
from task.deciding.weigh import key_of
from task.editors import EDITORS, helm_values
from task.editors.file_text import refuse_executable
from task.errors import NotPermittedError, TargetError, TaskError
from task.landing.head_branches import NO_HEAD, ExistingHeads
from task.landing.memory import changed_states, hold_changes, new_holds
from task.landing.waiting import Waits, carried_on, trailers_of, with_rest
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
from task.templates.change import AppChanges, Change
from task.templates.commit_message import commit_message, hold_message, subject
from task.text import differ

SHORT = 4  # two words of up to this many letters that differ in two are different words
NOTHING_WAITS = Waits()
NO_HEADS = ExistingHeads(Snapshot("", "", "", {}))


@dataclass(frozen=True)
class PreparedCommit:
    """One changeset, and the decisions that it follows."""

    changeset: Changeset
    decisions: tuple[Decision, ...]
    warning: str = ""
    apps: tuple[
        AppChanges, ...
    ] = ()  # everything that the commit changes, including what waited on the head branch
    # one line for each state file whose holds change; the request's marker includes them
    hold_changes: tuple[str, ...] = ()
    rollbacks: tuple[
        AppChanges, ...
    ] = ()  # the changes that go back to an older version because a person asked for it
    command: str = (
        "run"  # for the title; "rollback" or "hold" also if such a change waited on the head branch
    )
    asked: str = ""  # what a person asked for, in a few words: `hold web`; "" if an image arrived
    cautions: tuple[Problem, ...] = ()
    others: tuple[AppChanges, ...] = ()  # of them, those of Applications that this run did not read
    unlisted: tuple[str, ...] = ()  # files that the commit changes for builds that nobody knows
    lost: tuple[
        str, ...
    ] = ()  # files with builds of other Applications that waited, and that the base overtook
    templated: bool = False  # whether the message's words are the author's own
    wishes: Wishes = Wishes()  # of the repository's config, about the pull request
    frozen: bool = False  # whether a freeze covers some of it

    def with_updates_as(self, verdict: Verdict) -> tuple[Decision, ...]:
        """Return the decisions, with this verdict for those that would have written an image."""
        return tuple(
            replace(one, judged=verdict) if one.verdict == "update" else one
            for one in self.decisions
        )

    def reported(self, commit: str) -> Commit:
        """Return the commit as a report shows it. `commit` is its id, "" if it is only predicted."""
        where, apps = self.changeset, {one.subscription.application.key for one in self.decisions}
        return Commit(
            where.repo, where.base, where.head, commit or None, "", (), tuple(sorted(apps))
        )


def prepare_commits(
    snapshot: Snapshot,
    moves: Sequence[Move],
    terms: Terms,
    wording: Wording,
    heads: ExistingHeads = NO_HEADS,
    waits: Mapping[str, Waits] = {},
) -> tuple[list[PreparedCommit], list[Decision], dict[str, str]]:
    """Return changesets for the branches that get something new, decisions without one, and heads to delete, and why.

    `heads` are the head branches that exist, and `waits` is what became of the builds there. A move whose edit changes
    nothing becomes `unchanged`, and one whose edit fails becomes `error`. If one edit is not permitted, its Application
    gets none at all.
    """
    branches: dict[str, list[Move]] = {}
    for move in moves:
        if move.updates or (move.changes and move.decision.head == snapshot.branch):
            branches.setdefault(move.decision.head, []).append(move)
    # What a run only remembers aside goes to no head branch.
    settled = [
        one.decision
        for one in moves
        if one not in branches.get(one.decision.head, ()) and not one.kept
    ]
    gone: dict[str, list[str]] = {}  # by head: why builds do not wait there any more
    for name, of_head in waits.items():
        gone[name] = [
            f"{one.tag or one.digest}: {one.because}"
            for one in of_head.builds
            if one.outcome != "waits"
        ]
        if gone[name] and of_head.rest:  # what is left may be builds of other Applications only
            branches.setdefault(name, [])
    made = []
    for name, members in branches.items():
        theirs = heads.theirs(name)
        if heads.ours(name) and all(move.kept for move in members) and not gone.get(name):
            continue  # nothing is new, so the head branch stays as it is
        under = (
            replace(snapshot, tip=theirs.tip, files={**snapshot.files, **theirs.files})
            if theirs
            else snapshot
        )
        files, done, rest, cautions = _edit(under.files, members, terms, wording.config)
        aside = name != snapshot.branch
        files |= changed_states(under, done, aside=aside)
        there, edited = waits.get(name, NOTHING_WAITS), files
        files, lost = with_rest(under.files, edited, there.rest)
        others, unlisted = carried_on(there.others, there.rest, edited, files)
        settled += rest
        if files:
            head_commit = heads.found.get(name, NO_HEAD).tip if aside else None
            prepared = _prepare(
                under, name, head_commit, files, done, wording, others, on_top=theirs is not None
            )
            prepared = replace(
                prepared, cautions=tuple(cautions), lost=tuple(lost), unlisted=tuple(unlisted)
            )
            made.append(prepared)
        else:
            settled += [move.decision for move in done if not move.kept]
    refused = {
        one.subscription.application.key: one.judged
        for one in settled
        if one.rule == NotPermittedError.rule
    }
    left = [
        move.without_effect(refused[app])
        if (app := move.subscription.application.key) in refused and move.updates and not move.kept
        else move
        for move in moves
    ]
    if left != list(moves):
        return prepare_commits(snapshot, left, terms, wording, heads, waits)
    obsolete, written = {}, {one.changeset.head for one in made}
    for name, why in gone.items():
        head = heads.ours(name)
        if head and head.changed and why and name not in written and not branches.get(name):
            obsolete[name] = "; ".join(dict.fromkeys(why))
    return made, settled, obsolete


def _edit(
    files: Files, members: Sequence[Move], terms: Terms, config: RepositoryConfig
) -> tuple[dict[str, File], list[Move], list[Decision], list[Problem]]:
    """Edit one move after the other; return (changed files, moves done, other decisions, cautions).

    A move that would replace what an earlier one wrote fails: one commit cannot have both versions in one place.
    """
    seen: dict[str, File] = dict(files)
    writers: dict[tuple[str, str], tuple[Decision, Target]] = {}  # by file and key
    changed: dict[str, File] = {}
    done: list[Move] = []
    rest: list[Decision] = []
    found: list[Problem] = []
    for move in members:
        one = move.decision
        if not move.updates or one.kind is None:
            done.append(move)
            continue
        editor, target = EDITORS[one.kind], target_of(one.subscription, one.kind, carry=terms.carry)
        try:
            new, edits = editor.write(seen, target, one.candidate)
            # If an earlier move of this commit wrote the same value, this move is done as well.
            same = (
                {} if edits or new or not changed else editor.write(files, target, one.candidate)[0]
            )
            refuse_files(one.subscription, {**same, **new}, one.head)
            refuse_stricter(one.subscription, new, config)
            if terms.through == "github":
                refuse_executable(new)
            for edit in edits:
                if known := writers.get((edit.path, edit.key)):
                    first, place = known
                    if (
                        EDITORS[place.kind].read({**seen, **new}, place).version
                        != first.candidate.version
                    ):
                        raise _taken(edit, first)
        except TaskError as error:
            rest.append(failed(one, error))
            continue
        if not (edits or new or same):
            verdict = Verdict("unchanged", "same", f"Git already says {one.candidate.version}")
            rest += [] if move.kept else [replace(one, judged=verdict)]
            continue
        if one.kind == "helmvalues":
            doubtful = _misspelt(seen, one) if any(not edit.old for edit in edits) else None
            created = next((path for path in new if path not in seen), "")
            one = replace(
                one, misspelt=doubtful, created=created, shared=helm_values.shared(seen, target)
            )
        if one.kind == "kustomization" and edits:
            found += cut_loose(seen, one.subscription, target)
        seen.update(new)
        changed.update(new)
        done.append(replace(move, decision=one))
        if not move.kept:  # what waits on a head branch gives way to something newer
            writers |= {(edit.path, edit.key): (one, target) for edit in edits}
            found += file_cautions(seen, one.subscription, target.kind, one.candidate, terms)
    return changed, done, rest, found


def _misspelt(files: Files, one: Decision) -> tuple[str, str] | None:
    """Return a key that these values lack, and one that they have and that is almost the same."""
    for key, there in helm_values.beside(files, target_of(one.subscription, "helmvalues")):
        for other in there:
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
    entry, app = first.subscription.entry, first.subscription.application.key
    return TargetError(
        f"{edit.key} gets {first.candidate.version} for {entry.text!r} of {app} in the same commit",
        hint="give each of the two a key or file of its own, or the same rules if they are one image",
        subject=edit.path,
    )


def agreed_wording(given: Wording, subs: Sequence[Subscription]) -> Wording:
    """Return the wording of a commit for these subscriptions: what was given, the config, then the default."""
    wishes = agreed([sub.wishes for sub in subs], given.common)
    author = Person(
        given.author.name or wishes.author_name or AUTHOR.name,
        given.author.email or wishes.author_email or AUTHOR.email,
    )
    template = (
        given.templates.get(wishes.template or "") if given.template is None else given.template
    )
    known = {key.lower() for key, _ in given.trailers}
    trailers = [
        *given.trailers,
        *((key, one) for key, one in wishes.trailers or () if key.lower() not in known),
    ]
    if wishes.sign_off if given.sign_off is None else given.sign_off:
        trailers.append(("Signed-off-by", f"{author.name} <{author.email}>"))
    options = given.push_options or wishes.push_options or ()
    return replace(
        given, author=author, template=template, trailers=tuple(trailers), push_options=options
    )


def _prepare(
    snapshot: Snapshot,
    head: str,
    head_commit: str | None,
    files: Files,
    done: Sequence[Move],
    wording: Wording,
    others: Sequence[AppChanges],
    *,
    on_top: bool,
) -> PreparedCommit:
    """Return the changeset for one head branch, which is at `head_commit`.

    The commit replaces the one on the head branch. If a rollback or a hold waits there, the new message names it first,
    because a reviewer has to see it.
    """
    subs = [one.subscription for one in done]
    wording = agreed_wording(wording, subs)
    if (
        wording.command == "hold" and head != snapshot.branch
    ):  # the hold is remembered aside: this is what still waits
        wording = replace(wording, command="run")
    named, back = _named_apps(done), _named_apps([one for one in done if one.rolled_back])
    reasons = new_holds(snapshot.files, files, done)
    named += others
    command, plain = wording.command, wording.command in ("run", "scan", "promote")
    if back or (reasons and plain):
        command = "rollback" if back else "hold"
    changed = tuple(one for one in named if one.changes)
    if head != snapshot.branch and not on_top:
        wording = replace(wording, trailers=(*wording.trailers, *trailers_of(changed)))
    sentences, asked = tuple(_sentences(done, reasons)), ""
    whys = {one.hold.reason for one in done if one.hold}
    why = whys.pop() if len(whys) == 1 else ""
    if not plain or command != wording.command:
        meant = {(one.namespace, one.name) for one in back} | {app for app, _, _ in reasons}
        asked = subject(
            command, [one for one in named if (one.namespace, one.name) in meant] or named, why=why
        )
    if asked or not changed:
        build = done[0].decision.candidate.version if done else ""
        words = asked or (subject(command, named, build, why) if named else "keep what else waits")
        message = hold_message(words, wording.template, named, sentences, wording.trailers)
    else:
        sentences = tuple(_sentences([one for one in done if one.decision.verdict == "defer"], ()))
        message = commit_message(wording.template, changed, wording.trailers, sentences)
    options = (
        wording.push_options if changed else ()
    )  # what is only remembered changes nothing for the server
    changeset = Changeset(
        repo=snapshot.repo,
        base=snapshot.branch,
        head=head,
        tip=snapshot.tip,
        files=files,
        message=message.text,
        author=wording.author,
        head_commit=head_commit,
        on_top=on_top,
        push_options=options,
    )
    news = tuple(one.decision for one in done if not one.kept)
    of_holds = tuple(hold_changes(snapshot.files, files))
    return PreparedCommit(
        changeset,
        news,
        message.warning,
        changed,
        of_holds,
        tuple(back),
        command,
        asked,
        templated=wording.template is not None,
        wishes=agreed([sub.wishes for sub in subs], wording.common),
        frozen=any(sub.freeze for sub in subs),
        others=tuple(others),
    )


def _named_apps(done: Sequence[Move]) -> list[AppChanges]:
    """Return the changes of each Application. If only its memory changes, they are empty."""
    apps: dict[tuple[str, str], list[Change]] = {}
    for one in done:
        app = one.subscription.application
        told = apps.setdefault((app.namespace, app.name), [])
        told += [one.change] if one.updates else []
    return [AppChanges(ns, name, tuple(changes)) for (ns, name), changes in apps.items()]


def _sentences(
    done: Sequence[Move], reasons: Sequence[tuple[tuple[str, str], str, str]]
) -> Mapping[str, None]:
    """Return a sentence for each image with the outcome and its reason, and the missing reasons of holds."""
    lines = dict.fromkeys(
        f"{one.subscription.application.name} ({key_of(one.subscription)}): {one.decision.because}"
        for one in done
    )
    missing = (
        f"{app[1]} ({what}): {why}"
        for app, what, why in reasons
        if not any(why in line for line in lines)
    )
    return {**lines, **dict.fromkeys(missing)}

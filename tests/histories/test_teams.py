"""Random histories of two Applications on a head branch and one on the base, with changing proofs.

`test_histories` contains an exact model of one Application. Here, the world is larger, and only
invariants are checked: no build leaves the list without a row and a reason, no held, refused, or
unproven build is on the head branch, and the commit there contains exactly the changes in the list.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
import yaml
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from support.history_scenes import HEAD, image, kustomization, values_in
from support.memory import NOW, SCOPE, URL, WORDING, Branch, Story
from support.random_histories import LIMIT, OnGit, play
from support.runs import application, target

from task.annotations.application import Narrow
from task.deciding.job import Intent, Job, Promotion, Terms
from task.editors.state_file import read_state
from task.errors import TaskError, UnreachableError
from task.image import parse_image
from task.landing.waiting_list import ListedBuild
from task.model import HeadBuildRow, Hold, Image, Question, Report, State, Verdict
from task.proof import Proof

ALIASES = ("web", "api")
WAITING = ("a", "b")  # Applications whose changes wait on the head branch
DIRECT = "c"  # the Application whose changes are written directly to the base
NUMBERS = st.integers(1, 6)
ALIAS = st.sampled_from(ALIASES)
APP = st.sampled_from((*WAITING, DIRECT))
GOOD = Proof("signature", "cosign.pub")
NO = Verdict("refuse", "signature", "nobody has signed it")
SILENT = UnreachableError("the registry answers 503", hint="")
CONFIG = "version: 1\nsignatures: {keys: [cosign.pub]}\n"
FREEZE = 'freezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]\n'
KEY = "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"
STEPS = st.sampled_from(["land", "remember", "drop"])

Entry = tuple[str, str]  # an Application and an alias


class KilledError(Exception):
    """A run was killed."""


def number_of(tag: str) -> int:
    return int(tag.partition("@")[0].split(".")[1])


def entries_in(files: Mapping[str, str], app: str) -> dict[Entry, dict[str, str]]:
    """Return each image's entry in a tree, with its digest."""
    images = yaml.safe_load(files[target(app)])["images"]
    return {(app, one["name"].rpartition("/")[2]): one for one in images}


class Teams(RuleBasedStateMachine):
    """The actions of runs and people, and the invariants that must hold after each run."""

    @initialize(atomic=st.booleans())
    def begin(self, atomic: bool) -> None:
        files = {target(app): kustomization(dict.fromkeys(ALIASES, "1.0.0")) for app in "abc"}
        self.branch = self.repository(files)
        self.branch.commit({"cosign.pub": KEY, ".image-update/config": CONFIG})
        self.branch.atomic = atomic
        self.said: dict[tuple[str, int], Verdict | TaskError] = {}
        self.held: set[Entry] = set()
        self.words: set[Entry] = set()  # versions that a person decided about
        self.frozen = False
        self.kept = False  # whether a person kept the head branch after it was merged
        self.names = 0
        self.tell_story()

    def repository(self, files: Mapping[str, str]) -> Branch:
        return Branch(files)

    def tell_story(self) -> None:
        """Read the Applications, using the current name of the base."""
        apps = [
            application(
                app,
                URL,
                image_list=",".join(f"{alias}={image(alias)}" for alias in ALIASES),
                update_strategy="semver",
                git_branch=self.branch.name + (f":{HEAD}" if app in WAITING else ""),
            )
            for app in (*WAITING, DIRECT)
        ]
        self.story = Story(apps[0], self.branch)
        self.story.others = [*apps[1:]]
        self.story.prove = self.proofs
        self.story.answer = replace(self.story.answer, digest="sha256:" + "d" * 64)

    def proofs(
        self, questions: Collection[Question]
    ) -> Mapping[Question, Proof | Verdict | TaskError]:
        return {one: self.proof(one.image) for one in questions}

    def proof(self, of: Image) -> Proof | Verdict | TaskError:
        return self.said.get((of.name.rpartition("/")[2], number_of(of.tag)), GOOD)

    def proof_of(self, build: ListedBuild) -> Proof | Verdict | TaskError:
        return self.proof(parse_image(f"{build.image}:{build.tag}"))

    # What people, pipelines, and registries do

    @rule(alias=ALIAS, number=NUMBERS, said=st.sampled_from([None, NO, SILENT]))
    def prove(self, alias: str, number: int, said: Verdict | TaskError | None) -> None:
        """Add or withdraw a signature, or make it unavailable."""
        self.said.pop((alias, number), None)
        if said:
            self.said[alias, number] = said

    @precondition(lambda self: self.listed)
    @rule(data=st.data(), said=st.sampled_from([NO, SILENT]))
    def doubt(self, data: st.DataObject, said: Verdict | TaskError) -> None:
        """Withdraw the signature of a waiting build, or make it unavailable."""
        entry = data.draw(st.sampled_from(sorted(self.listed)))
        self.said[entry[1], number_of(self.listed[entry].tag)] = said

    @rule(aliases=st.sets(ALIAS, min_size=1), number=NUMBERS, apps=st.sets(APP))
    def event(self, aliases: set[str], number: int, apps: set[str]) -> None:
        report = self.run(lambda: self.send(aliases, number, apps))
        self.has_arrived(aliases, number, apps, report)

    @rule(alias=ALIAS, number=NUMBERS, step=STEPS, later=st.booleans())
    def killed(self, alias: str, number: int, step: str, later: bool) -> None:
        """Kill a run before its first or second push of one kind, and repeat the run."""
        if self.branch.memory_moves:
            # A run that dies after pushing the new memory branch, but before deleting the old one,
            # leaves both. After another rename, it would be unclear which one is valid.
            step, later = "land", False

        def dies() -> None:
            raise KilledError

        def dies_later() -> None:
            self.branch.interrupt = step, dies

        self.branch.interrupt = step, dies_later if later else dies
        with suppress(KilledError):
            self.run(lambda: self.send({alias}, number, ()))
        self.branch.interrupt = None
        report = self.run(lambda: self.send({alias}, number, ()))
        self.has_arrived({alias}, number, (), report)

    @rule(app=APP, alias=ALIAS, number=NUMBERS)
    def downgrade(self, app: str, alias: str, number: int) -> None:
        """Let a person allow an older version."""
        self.words.add((app, alias))
        self.run(lambda: self.send({alias}, number, {app}, downgrade=True))

    @rule(app=APP, alias=ALIAS, whole=st.booleans())
    def hold(self, app: str, alias: str, whole: bool) -> None:
        aliases = ALIASES if whole else (alias,)
        self.held |= {(app, one) for one in aliases}
        self.run(lambda: self.by_hand("hold", app, "" if whole else alias))

    @rule(app=APP)
    def release(self, app: str) -> None:
        self.held -= {(app, alias) for alias in ALIASES}
        report = self.run(lambda: self.by_hand("release", app, ""), released={app})
        for one in report.decisions:
            # the held build is unproven, or its proof is unavailable: hold and build may remain
            if one.verdict == "error" or one.rule == "signature":
                self.words.add((app, one.subscription.entry.alias))

    @rule(app=APP, alias=ALIAS, number=st.integers(0, 6), held=st.booleans())
    def rollback(self, app: str, alias: str, number: int, held: bool) -> None:
        self.words.add((app, alias))
        if held:
            self.held.add((app, alias))
        before = self.base
        self.run(lambda: self.by_hand("rollback", app, alias, f"1.{number}.0", held=held))
        if self.base != before:  # the source of promotions has another version
            for target_app in WAITING:
                self.source_is_right(target_app, alias)

    @rule(app=st.sampled_from(WAITING), alias=ALIAS)
    def promote(self, app: str, alias: str) -> None:
        """Promote the version of the Application on the base."""
        promotion = Promotion((DIRECT,), (app,), images=(alias,))
        job = Job("promote", (), SCOPE, Terms(now=NOW), WORDING, promotion=promotion)
        self.run(lambda: self.story.run(job))
        self.source_is_right(app, alias)

    @rule()
    def freeze(self) -> None:
        """Begin or end a freeze."""
        self.frozen = not self.frozen
        self.branch.commit({".image-update/config": CONFIG + (FREEZE if self.frozen else "")})

    @rule(app=APP, alias=ALIAS, number=st.integers(0, 6))
    def edit(self, app: str, alias: str, number: int) -> None:
        """Let a person edit the base: a hotfix, or a revert."""
        values = values_in(self.branch.files, app)
        text = kustomization({**values, alias: f"1.{number}.0"})
        if self.branch.files[target(app)] != text:
            self.branch.commit({target(app): text})

    @precondition(lambda self: HEAD in self.branch.heads)
    @rule(keep=st.booleans(), style=st.sampled_from(["squash", "merge", "fast-forward"]))
    def merge(self, keep: bool, style: str) -> None:
        if self.branch.merge(HEAD, keep=keep, style=style):
            self.kept = keep

    @precondition(lambda self: HEAD in self.branch.heads)
    @rule()
    def delete(self) -> None:
        """Let a person delete the branch, so holds on the base apply again.

        If no run has seen the branch yet, the next run assumes that a run was killed. It creates
        the branch again, with its releases.
        """
        self.branch.delete(HEAD)
        if self.lists_arrived:
            self.held |= self.held_on_base

    @rule()
    def rename(self) -> None:
        """Rename the default branch."""
        self.names += 1
        self.branch.rename(f"trunk{self.names}")
        self.tell_story()

    # What must hold

    def run(
        self,
        call: Callable[[], Report],
        released: Collection[str] = (),
    ) -> Report:
        """Run, and compare the effects with the report."""
        before, base, absent = self.listed, self.base, HEAD not in self.branch.heads
        report = call()
        if not absent:
            self.check(before, report, released)
        for entry, number in self.base.items():
            if number != base[entry]:
                assert entry[0] == DIRECT, f"{entry} is written to the base"
        self.kept = self.kept and HEAD in self.branch.heads and not self.listed
        return report

    def check(
        self,
        before: Mapping[Entry, ListedBuild],
        report: Report,
        released: Collection[str] = (),
    ) -> None:
        """Check that each removed build has a row and a valid reason, and that the remaining builds
        are valid.
        """
        after = self.listed
        rows = {
            (one.application.partition("/")[2], one.alias, one.tag): one for one in report.waiting
        }
        for entry, build in before.items():
            if entry in after and after[entry].tag == build.tag:
                continue
            row = rows.get((*entry, build.tag))
            assert row, f"{entry} {build.tag} vanished, and the report does not say so"
            assert row.outcome != "waits", row
            assert self.may_go(entry, build, row, after.get(entry), released), row
        for entry, build in after.items():
            new = entry not in before or before[entry].tag != build.tag
            assert not new or build.rollback or self.proof_of(build) is GOOD
        touched = any(one.head == HEAD for one in report.waiting)
        if touched:
            for entry, build in after.items():
                assert build.rollback or entry not in self.held, f"{entry} is held"
                if not build.rollback:
                    assert not isinstance(self.proof_of(build), Verdict)

    def may_go(
        self,
        entry: Entry,
        build: ListedBuild,
        row: HeadBuildRow,
        instead: ListedBuild | None,
        released: Collection[str],
    ) -> bool:
        """Return whether there is a reason for a build to leave the list."""
        number, on_base = number_of(build.tag), self.base[entry]
        if entry in self.held or entry in self.words or entry[0] in released:
            return True
        if self.kept or on_base >= number:
            return True
        if isinstance(self.proof_of(build), Verdict):
            return "no longer proved" in row.because
        if build.promoted_from and self.base[DIRECT, entry[1]] != number:
            return True
        return instead is not None and number_of(instead.tag) > number

    def source_is_right(self, app: str, alias: str) -> None:
        """Check that a waiting promotion has its source's version."""
        build = self.listed.get((app, alias))
        if build and build.promoted_from:
            assert number_of(build.tag) == self.base[DIRECT, alias]

    def has_arrived(
        self, aliases: Collection[str], number: int, apps: Collection[str], report: Report
    ) -> None:
        """Check that a valid new build that is not held, or a newer one, is waiting after its
        event.
        """
        unknown = {
            (one.subscription.application.name, one.subscription.entry.alias)
            for one in report.decisions
            if one.verdict == "error"  # a deferred build is newer, and its proof is unavailable
        }
        assert not unknown or SILENT in self.said.values()
        for app in apps or WAITING:
            for alias in aliases:
                entry, proof = (app, alias), self.said.get((alias, number), GOOD)
                plain = entry not in self.held | self.words | unknown and not self.frozen
                if app in WAITING and plain and proof is GOOD and number > self.base[entry]:
                    assert number_of(self.listed[entry].tag) >= number

    @invariant()
    def the_commit_is_the_list(self) -> None:
        head = self.branch.heads.get(HEAD)
        if (
            head is None
            or head.before is None
            or self.kept
            or self.branch.merged(self.branch.name, head.id)
        ):
            return
        listed = {entry: number_of(one.tag) for entry, one in self.listed.items()}
        before, now = (
            {entry: text for app in "abc" for entry, text in entries_in(files, app).items()}
            for files in (head.before, head.files)
        )
        if self.lists_arrived:
            changed = {entry: of for entry, of in now.items() if of != before[entry]}
            assert {entry: number_of(of["newTag"]) for entry, of in changed.items()} == listed
        paths = {
            path
            for path in (*head.files, *head.before)
            if head.files.get(path) != head.before.get(path)
        }
        ours = {target(app) for app in WAITING}
        assert all(path in ours or path.startswith(".image-update/apps/") for path in paths)
        for (app, alias), build in self.listed.items():
            if self.lists_arrived and head.message:
                assert f"Image: {build.image}:{build.tag}" in head.message, (app, alias)

    # Helpers

    @property
    def lists_arrived(self) -> bool:
        listed = self.branch.lists.get(HEAD)
        return listed is None or listed.arrived

    @property
    def listed(self) -> dict[Entry, ListedBuild]:
        builds = self.branch.lists[HEAD].builds if HEAD in self.branch.lists else ()
        return {(one.application.partition("/")[2], one.alias): one for one in builds}

    @property
    def base(self) -> dict[Entry, int]:
        return {
            (app, alias): number_of(tag)
            for app in "abc"
            for alias, tag in values_in(self.branch.files, app).items()
        }

    @property
    def held_on_base(self) -> set[Entry]:
        found = set()
        for app in "abc":
            text = self.branch.files.get(f".image-update/apps/{app}/argocd_{app}.state", "")
            state = read_state(text).get(target(app), State())
            found |= {(app, alias) for alias in ALIASES if state.hold}
            found |= {(app, alias) for alias, one in state.images.items() if one.hold}
        return found

    def send(
        self,
        aliases: Collection[str],
        number: int,
        apps: Collection[str],
        *,
        downgrade: bool = False,
    ) -> Report:
        built = tuple(parse_image(f"{image(alias)}:1.{number}.0") for alias in sorted(aliases))
        terms = Terms(now=NOW, allow_downgrade=downgrade)
        scope = replace(SCOPE, narrow=Narrow(tuple(sorted(apps))))
        return self.story.run(Job("run", built, scope, terms, WORDING))

    def by_hand(
        self, verb: str, app: str, alias: str, to: str = "", *, held: bool = True
    ) -> Report:
        hold = Hold("a reason", "jane", NOW) if held and verb != "release" else None
        intent = Intent(verb, hold, whole=not alias, to=to, unknown=True)
        scope = replace(SCOPE, narrow=Narrow((app,)))
        aliases = (alias,) if alias else ()
        return self.story.run(
            Job(verb, (), scope, Terms(now=NOW), WORDING, intent=intent, aliases=aliases)
        )


@pytest.mark.slow
@LIMIT
def test_random_histories_of_teams_in_memory_match_the_model() -> None:
    play(Teams, histories=12, steps=25)


class TeamsInGit(OnGit, Teams):
    """The same histories in a real repository."""


@pytest.mark.slow
@LIMIT
def test_random_histories_of_teams_in_git_match_the_model() -> None:
    play(TeamsInGit, histories=2, steps=15)

"""Pure: (snapshot, asks) → decisions, and decisions → what to commit.

Joins rules, edits and words. A lost push race is answered by drafting again on the new
tip, so nothing here may remember, log, or look at the world.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from task.edits import EDITORS
from task.errors import AnnotationError, Exit, Malformed, SourceError, TargetError, TaskError
from task.model import (
    Changeset,
    Decision,
    Destination,
    Edit,
    File,
    Files,
    Image,
    Kind,
    Person,
    Place,
    Reading,
    Snapshot,
    Subscription,
    Target,
    TargetKind,
    Verdict,
)
from task.parse.image import live_image
from task.record import NamedTuple
from task.rules.judge import Leave, judge, objection, same
from task.rules.strategies import STRATEGIES
from task.words.branch_name import AppFacts, branch_name
from task.words.change import Change
from task.words.commit_message import AppChanges, commit_message

OVERRIDES: Mapping[Kind, TargetKind] = {
    "Helm": "helm-override",
    "Kustomize": "kustomize-override",
    "Plugin": "plugin-override",
}
# What in a source's path tells its type, as Argo CD looks for it (util/app/discovery).
SIGNS: Mapping[str, Kind] = {
    "Chart.yaml": "Helm",
    "kustomization.yaml": "Kustomize",
    "kustomization.yml": "Kustomize",
    "Kustomization": "Kustomize",
}


class Ask(NamedTuple):
    """A subscription and the event's images of its repository (one for each tag that was built)."""

    subscription: Subscription
    candidates: tuple[Image, ...]


class Wording(NamedTuple):
    """What the command line says about commits."""

    author: Person
    template: str | None = None
    trailers: tuple[tuple[str, str], ...] = ()


class Terms(NamedTuple):
    """What the command line says about decisions."""

    leave: Leave = Leave()
    carry: bool = True
    require_live: bool = False


class Draft(NamedTuple):
    """One changeset, with the decisions it carries out."""

    changeset: Changeset
    decisions: tuple[Decision, ...]
    warning: str = ""


def hopeless(ask: Ask, terms: Terms) -> Decision | None:
    """The refusal of an ask that no state of Git can change; None when Git has to be read."""
    if terms.require_live and not _live(ask.subscription):
        name = ask.subscription.entry.image.name
        verdict = Verdict("refuse", "not-live", f"no live image of the Application is {name} (--require-live)")
        return Decision(ask.subscription, ask.candidates[0], verdict)
    if ask.subscription.held:
        verdict = Verdict("defer", "held", ask.subscription.held)
        return Decision(ask.subscription, ask.candidates[0], verdict)
    refusals = [objection(image, ask.subscription.policy) for image in ask.candidates]
    first = refusals[0]
    if first is None or None in refusals:
        return None
    return Decision(ask.subscription, ask.candidates[0], first, _live_reading(ask.subscription))


def places(ask: Ask) -> tuple[Place, ...]:
    """What a snapshot must show to decide about `ask`."""
    sub = ask.subscription
    found: list[Place] = [Place(sub.source.path, "exists")] if _in_own_path(sub) else []
    if sub.source.kind == "" and sub.target in ("override", "file"):
        found += [Place(f"{sub.source.path}/{sign}".lstrip("/"), "exists") for sign in SIGNS]
        return (*found, *EDITORS["helm-override"].places(_target(sub, "helm-override", Terms())))
    kind = _kind(sub, {})
    return (*found, *EDITORS[kind].places(_target(sub, kind, Terms()))) if kind else tuple(found)


def decide(snapshot: Snapshot, asks: Iterable[Ask], terms: Terms) -> tuple[Decision, ...]:
    """One decision for each ask, on what Git says in `snapshot`."""
    return tuple(_decide(snapshot, ask, terms) for ask in asks)


def _decide(snapshot: Snapshot, ask: Ask, terms: Terms) -> Decision:
    sub = ask.subscription
    refused = hopeless(ask, terms)
    where = Decision(sub, ask.candidates[0], Verdict("error", "internal", ""), branch=snapshot.branch)
    try:
        kind = _resolve(sub, snapshot)
        where = where._replace(kind=kind)
        current = EDITORS[kind].read(snapshot.files, _target(sub, kind, terms))
    except TaskError as error:
        return refused or failed(where, error)
    silent = not (current.tag or current.digest)
    where = where._replace(current=_live_reading(sub)._replace(file=current.file) if silent else current)
    if refused:
        return where._replace(verdict=refused.verdict)
    decision = _choose(where, ask.candidates, terms)
    return _as_live(decision) if silent and decision.verdict.verdict == "unchanged" else decision


def _as_live(decision: Decision) -> Decision:
    """Unchanged because of what runs, which is not what Git says."""
    why = f"the live image is {decision.candidate.version} already, and Git says nothing of it"
    return decision._replace(verdict=decision.verdict._replace(because=why))


def _choose(where: Decision, candidates: Sequence[Image], terms: Terms) -> Decision:
    """The best of several tags of one build: the newest admitted, else the first refusal."""
    policy, best = where.subscription.policy, None
    for image in candidates:
        wanted = _wanted(image, where)
        decision = where._replace(candidate=wanted, verdict=judge(wanted, policy, where.current, terms.leave))
        if decision.verdict.verdict == "error":
            decision = decision._replace(
                exit=int(Exit.CONFIGURATION), hint="give --image-digest, or repo:tag@sha256:… as --image"
            )
        if best is None or _better(decision, best):
            best = decision
    return best or where


RANK = {"update": 3, "unchanged": 2, "error": 1}


def _better(new: Decision, old: Decision) -> bool:
    ranks = [RANK.get(one.verdict.verdict, 0) for one in (new, old)]
    if ranks[0] != ranks[1] or ranks[0] == 0:
        return ranks[0] > ranks[1]
    rule = STRATEGIES[new.subscription.policy.strategy]
    return not rule.older(new.candidate.tag, old.candidate.tag)


def _wanted(image: Image, where: Decision) -> Image:
    """What would be written: with the digest where it is asked for, or where the target pins one already."""
    policy = where.subscription.policy
    keep = policy.pin_digest or policy.strategy == "digest" or not image.tag or where.current.digest
    return image if keep else image._replace(digest="")


def failed(decision: Decision, error: TaskError) -> Decision:
    """The decision, turned into that error; what is wrong with a file names it."""
    message = str(error) if isinstance(error, TargetError) else error.message
    verdict = Verdict("error", error.rule, message)
    current = decision.current
    if isinstance(error, TargetError) and error.subject and not current.file:
        current = current._replace(file=error.subject)
    return decision._replace(verdict=verdict, current=current, exit=int(error.exit), hint=error.hint)


def _live(sub: Subscription) -> Image | None:
    """The first live image that is the entry's (or has its `kustomize.image-name`)."""
    live = [image for image in map(live_image, sub.application.live) if image is not None]
    names = [live_image(sub.keys.kustomize_name)] if sub.keys.kustomize_name else []
    for wanted in (*names, sub.entry.image):
        for image in live:
            if wanted is not None and image.identity == wanted.identity:
                return image
    return None


def _live_reading(sub: Subscription) -> Reading:
    image = _live(sub)
    return Reading(image.name, image.tag, image.digest) if image else Reading()


def _in_own_path(sub: Subscription) -> bool:
    path = sub.source.path.strip("/")
    return bool(path) and path != "." and sub.repo == sub.source.repo and ".." not in path.split("/")


def _resolve(sub: Subscription, snapshot: Snapshot) -> TargetKind:
    """The target's kind, once Git has been seen. Raises `SourceError` where there is nothing to write."""
    if sub.pull_request:  # to push to the base branch would be what nobody asked for
        raise AnnotationError(
            "pull-request: this version opens no pull requests",
            hint="write git-branch: <base>:<head> and open the request for that branch, or remove the annotation",
        )
    if sub.method == "argocd":
        raise SourceError(
            "write-back-method argocd patches the live Application, and these Applications come from files",
            hint="use --applications cluster or argocd, or write-back-method: git",
        )
    path = sub.source.path.strip("/")
    if _in_own_path(sub):
        _refuse_no_folder(path, snapshot)
    kind = _kind(sub, snapshot.files)
    if kind is None:
        raise SourceError(
            "the source is a plain directory, which has no override file",
            hint="write write-back-target: manifests to set the image in the manifests themselves",
        )
    return kind


def _refuse_no_folder(path: str, snapshot: Snapshot) -> None:
    """The source's path must be a folder, and none of its parents a link or a submodule."""
    parts = path.split("/")
    for folder in ("/".join(parts[: end + 1]) for end in range(len(parts))):
        if (file := snapshot.files.get(folder)) and (what := NO_FOLDERS.get(file.mode)):
            raise SourceError(
                f"the path {path!r}: {folder} is {what}, not a folder",
                hint="name the folder itself in spec.source.path",
            )
    if path not in snapshot.files:
        raise SourceError(
            f"the path {path!r} does not exist on {snapshot.branch}", hint="check spec.source.path and the branch"
        )


NO_FOLDERS = {"120000": "a symbolic link", "160000": "a submodule", "100644": "a file", "100755": "a file"}


def _kind(sub: Subscription, files: Files) -> TargetKind | None:
    source_kind = sub.source.kind or next(
        (kind for sign, kind in SIGNS.items() if f"{sub.source.path.strip('/')}/{sign}".lstrip("/") in files), ""
    )
    if sub.target == "file":
        named = sub.path.rpartition("/")[2].startswith(".argocd-source-")
        return "helmvalues" if source_kind == "Helm" and not named else OVERRIDES.get(source_kind)
    if sub.target == "override":
        return OVERRIDES.get(source_kind)
    return TARGETS.get(sub.target)


TARGETS: Mapping[str, TargetKind] = {
    "kustomization": "kustomization",
    "helmvalues": "helmvalues",
    "manifests": "manifests",
    "flux": "flux",
}


def _target(sub: Subscription, kind: TargetKind, terms: Terms) -> Target:
    return Target(
        kind=kind,
        path=sub.path,
        keys=sub.keys,
        image=sub.entry.image,
        source=sub.source,
        application=sub.application.key,
        alias=sub.entry.alias,
        recurse=sub.source.recurse or sub.path != sub.source.path.strip("/"),
        fallbacks=sub.fallbacks,
        carry=terms.carry,
        managed=sub.managed,
    )


def drafts(
    snapshot: Snapshot, decisions: Sequence[Decision], terms: Terms, wording: Wording
) -> tuple[tuple[Draft, ...], tuple[Decision, ...]]:
    """The changesets for all `update` decisions, one per head branch; and the decisions settled without one.

    A decision whose edit changes nothing comes back as `unchanged`, one whose edit fails as `error`.
    """
    heads: dict[str, list[Decision]] = {}
    settled: list[Decision] = []
    for decision in _with_heads(decisions):
        if decision.verdict.verdict == "update":
            heads.setdefault(decision.head, []).append(decision)
        else:
            settled.append(decision)
    made = []
    for head, members in heads.items():
        files, done, rest = _edit(snapshot.files, members, terms)
        settled += rest
        if done:
            made.append(_draft(snapshot, head, files, done, wording))
    return tuple(made), tuple(settled)


def _with_heads(decisions: Sequence[Decision]) -> list[Decision]:
    """The head branch of each Application's updates, from its template."""
    changes: dict[str, list[Change]] = {}
    for one in decisions:
        if one.verdict.verdict == "update":
            of_app = changes.setdefault(one.subscription.application.key, [])
            of_app += [change] if (change := change_of(one)) not in of_app else []
    found = []
    for one in decisions:
        sub = one.subscription
        if one.verdict.verdict != "update" or not sub.head:
            found.append(one._replace(head=one.branch))
            continue
        app = AppFacts(sub.application.name, sub.application.namespace, sub.repo, one.branch, sub.path)
        try:
            found.append(one._replace(head=branch_name(sub.head, changes[sub.application.key], app)))
        except Malformed as error:
            verdict = Verdict("error", "annotation", f"git-branch: {error.message}")
            found.append(one._replace(verdict=verdict, hint=error.hint, exit=int(Exit.CONFIGURATION)))
    return found


def change_of(decision: Decision) -> Change:
    """What a decision changes, as templates and messages say it."""
    current, new = decision.current, decision.candidate
    return Change(
        image=decision.subscription.entry.image,
        alias=decision.subscription.entry.alias,
        old_tag=current.tag,
        new_tag=new.tag,
        old_digest=current.digest,
        new_digest=new.digest,
    )


def _edit(
    files: Files, members: Sequence[Decision], terms: Terms
) -> tuple[dict[str, File], list[Decision], list[Decision]]:
    """Apply all edits, one after the other: (changed files, done, settled otherwise)."""
    seen: dict[str, File] = dict(files)
    changed: dict[str, File] = {}
    done, rest = [], []
    for one in members:
        sub = one.subscription
        try:
            new, edits = EDITORS[one.kind or "helm-override"].write(
                seen, _target(sub, one.kind or "helm-override", terms), one.candidate
            )
        except TaskError as error:
            rest.append(failed(one, error))
            continue
        if not edits and not new and not _already_done(files, changed, one, terms):
            verdict = Verdict("unchanged", "same", f"Git already says {one.candidate.version}")
            rest.append(one._replace(verdict=verdict))
            continue
        seen.update(new)
        changed.update(new)
        done.append(one)
    return changed, done, rest


def _already_done(files: Files, changed: Files, one: Decision, terms: Terms) -> bool:
    """Whether another decision of the same commit wrote the same, which Git itself does not say yet."""
    if not changed:
        return False
    kind = one.kind or "helm-override"
    return bool(EDITORS[kind].write(files, _target(one.subscription, kind, terms), one.candidate)[0])


def _draft(snapshot: Snapshot, head: str, files: Files, done: Sequence[Decision], wording: Wording) -> Draft:
    apps: dict[tuple[str, str], list[Change]] = {}
    for one in done:
        app = one.subscription.application
        apps.setdefault((app.namespace, app.name), []).append(change_of(one))
    message = commit_message(
        wording.template,
        [AppChanges(ns, name, tuple(changes)) for (ns, name), changes in apps.items()],
        wording.trailers,
    )
    destination = Destination(snapshot.repo, snapshot.branch, head)
    changeset = Changeset(destination, snapshot.tip, files, message.text, wording.author)
    return Draft(changeset, tuple(done), message.warning)


__all__ = [
    "Ask",
    "Draft",
    "Edit",
    "Terms",
    "Wording",
    "change_of",
    "decide",
    "drafts",
    "failed",
    "hopeless",
    "places",
    "same",
]

"""Pure code for `lint --from-image-updater`: what Argo CD Image Updater (AIU) does with an Application, and what we do.

AIU 1.x touches only what an ImageUpdater selects. Older versions have no such resource, and read the annotations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from task.annotations.keys import DEPRECATED, Faulty, parse_credential_source, write_back_method
from task.deciding.target import own_reading
from task.deciding.weigh import may_ask
from task.errors import Malformed
from task.image import parse_image_list
from task.model import Application, Entry, ImageStatus, Problem, Subscribed, Subscription
from task.policy.builds import version_of
from task.policy.strategies import STRATEGIES
from task.urls import without_login

How = Literal["git", "live", "nothing"]
BY_ANNOTATIONS = "its annotations"


@dataclass(frozen=True)
class Side:
    """What one of the two tools does with an Application."""

    how: How
    files: tuple[str, ...] = ()
    repo: str = ""
    branch: str = ""  # "" is the default branch
    head: str = ""  # of a pull request, as a template
    because: str = ""  # why it does nothing


@dataclass(frozen=True)
class TrackedImage:
    """One entry of `image-list`, by both tools."""

    alias: str
    name: str
    constraint: str
    strategy_now: str
    strategy: str  # "" if the entry is broken
    version: str = ""  # that Git or the cluster has now
    version_from: str = ""  # a file, "status" or "spec"; "" if none of them says it
    read: bool = True  # whether Git, or the live Application, could be read


@dataclass(frozen=True)
class Comparison:
    """One Application before and after."""

    application: str
    selected_by: str
    now: Side
    here: Side
    images: tuple[TrackedImage, ...]
    logins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # about its files: what they hide, or why they cannot be read

    @property
    def changes(self) -> bool:
        """Whether something else is written, or another tag may be taken."""
        same = (self.now.how, self.now.files) == (self.here.how, self.here.files)
        return not same or any(one.strategy not in ("", one.strategy_now) for one in self.images)


def row_of(
    app: Application,
    one: Subscribed,
    meant: Sequence[Subscription],
    status: Sequence[ImageStatus],
    problems: Sequence[Problem],
    *,
    updaters: bool,
    in_cluster: bool,
) -> Comparison:
    """Return one Application before and after. `status` is what was read about its images.

    `meant` are its subscriptions as if there were no mistakes, because AIU overlooks most of them. `updaters`: whether
    there are ImageUpdaters. `in_cluster`: whether secrets can be read there.
    """
    selected = app.reference or ("no ImageUpdater" if updaters else BY_ANNOTATIONS)
    if app.reference and not app.from_resource:
        selected += ", which leaves it to its annotations"
    entries = [entry for entry in parse_image_list(app.annotations.get("image-list", "")) if isinstance(entry, Entry)]
    read = {row.subscription.entry.text: row for row in status}
    now, here = _now(app, meant, skipped=updaters and not app.reference), _here(one)
    broken = [one for one in problems if one.severity == "error" and one.rule in ("target", "source")]
    if broken:
        here = Side("nothing", because=_told(broken[0]))
        # Without a status, only Git tells the type of the source. A plain directory is updated by neither.
        if now.how == "git" and broken[0].rule == "target" and not any(sub.source.kind for sub in meant):
            now = here
    return Comparison(
        app.key,
        selected,
        now,
        here,
        tuple(_image(app, entry, one.subscriptions, read.get(entry.text)) for entry in entries),
        tuple(dict.fromkeys(_logins(one.subscriptions, in_cluster=in_cluster))),
        tuple(dict.fromkeys(told for told in map(_told, problems) if told != here.because)),
    )


def _told(problem: Problem) -> str:
    return f"{problem.message}; {problem.hint}" if problem.hint else problem.message


def _here(one: Subscribed) -> Side:
    if not one.subscriptions:
        flaw = next((flaw.message for flaw in one.flaws if flaw.severity == "error"), "no image can be updated")
        return Side("nothing", because=flaw)
    first = one.subscriptions[0]
    if first.method != "git":
        return Side("live")
    files = tuple(dict.fromkeys(sub.path or "/" for sub in one.subscriptions))
    head = first.head_template or ("a branch of its own" if first.pull_request else "")
    return Side("git", files, without_login(first.repo), first.base, head)


def _now(app: Application, subs: Sequence[Subscription], *, skipped: bool) -> Side:
    """Return what AIU does. It patches the live Application unless the method is git."""
    if skipped:
        return Side("nothing", because="no ImageUpdater selects it, and Image Updater 1.x needs one")
    if not app.annotations.get("image-list"):
        return Side("nothing", because="it has no image-list")
    text = app.annotations.get("write-back-method", "")
    try:
        method = write_back_method(text)[0] if text else "argocd"
    except Faulty as error:
        return Side("nothing", because=str(error))
    if any(sub.target == "manifests" or sub.source.kind == "Directory" for sub in subs):
        return Side("nothing", because="Image Updater knows no plain directories")
    if method != "git":
        return Side("live")
    if not subs:
        return Side("nothing", because="no source is a place to write to")
    files = tuple(dict.fromkeys(sub.path or "/" for sub in subs))
    return Side("git", files, without_login(subs[0].repo), subs[0].base, subs[0].head_template)


def _image(app: Application, entry: Entry, subs: Sequence[Subscription], row: ImageStatus | None) -> TrackedImage:
    strategy = next((sub.policy.strategy for sub in subs if sub.entry.text == entry.text), "")
    version, source = "", ""
    if row and version_of(row.in_git):
        version, source = version_of(row.in_git), row.in_git.file or "the live Application"
    elif row and row.live:
        version, source = row.live[0].version, "status"
    elif row and row.kind and (version := version_of(own_reading({}, row.subscription, row.kind))):
        source = "spec"
    now = _strategy_of_aiu(app.annotations, entry)
    known = row is None or row.read
    return TrackedImage(entry.alias, entry.image.name, entry.constraint, now, strategy, version, source, known)


def _strategy_of_aiu(annotations: Mapping[str, str], entry: Entry) -> str:
    """Return the strategy that AIU uses: it reads keys of an image only under an alias, and falls back to semver."""
    own = annotations.get(f"{entry.alias}.update-strategy", "") if entry.alias else ""
    word = (own or annotations.get("update-strategy", "")).strip().lower().partition(":")[0]
    word = DEPRECATED.get(word, word)
    return word if word in STRATEGIES else "semver"


def _logins(subs: Sequence[Subscription], *, in_cluster: bool) -> Iterable[str]:
    """Yield what the step needs to log in, or reads itself."""
    read = "which is read from the cluster" if in_cluster else "to be given by options, or --applications cluster"
    for sub in subs:
        if sub.method == "git":
            yield f"Git: {sub.credentials}, {read}" if sub.credentials else f"Git: {without_login(sub.repo)}"
        if not sub.policy.pull_secret:
            continue
        try:
            login = parse_credential_source(sub.policy.pull_secret)
        except Malformed:
            continue  # a finding says so
        asked = "" if may_ask(sub, "auto") else " (only for scan: no rule of this image asks the registry)"
        if login.kind == "ext":
            yield f"registry: the script {login.script} in the image of the step, and --allow-exec{asked}"
        elif login.kind == "env":
            yield f"registry: the variable {login.env}, and --allow-env {login.env}{asked}"
        else:
            yield f"registry: {login.kind} {login.namespace}/{login.name}, {read}{asked}"

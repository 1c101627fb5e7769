"""Pure code that generates the warnings of a successful run, for example about unchecked images and
about files that Argo CD ignores.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from task.deciding.hiding import is_for_image, read_by_nobody
from task.deciding.job import Job, Terms
from task.deciding.overlays import names_in_tree
from task.deciding.target import target_of
from task.editors import also_at, helm_values, strays
from task.editors.file_text import chosen
from task.editors.kustomization import aliased, every_entry, is_component
from task.editors.overrides import Stray
from task.errors import TaskError, Trouble
from task.model import (
    Commit,
    Decision,
    Files,
    Image,
    Problem,
    Source,
    Subscription,
    Target,
    TargetKind,
)
from task.text import FEW, and_more, nearest


def _caution(sub: Subscription, message: str, hint: str, rule: str = "target") -> Problem:
    """Return a warning about the subscription's Application."""
    return Problem(Trouble.warning(rule, message, hint), application=sub.application.key)


def first_tags(decisions: Iterable[Decision]) -> tuple[Problem, ...]:
    """Return a warning for each update that could not be compared with a current version, because
    the target has none.

    Such an update may be to an older version.
    """
    hint = (
        "to protect it from older builds, add the current version to the target, or use"
        " --applications cluster"
    )
    warnings = []
    for decision in decisions:
        was_target_read = decision.kind is not None
        is_update = decision.verdict == "update" and was_target_read
        was_compared = decision.current.version != ""
        if not is_update or was_compared:
            continue
        message = (
            f"{decision.candidate.name}: no current version found, so"
            f" {decision.candidate.version} was not compared with anything"
        )
        warnings.append(_caution(decision.subscription, message, hint))
    return tuple(warnings)


def without_request(decisions: Sequence[Decision], job: Job) -> tuple[Problem, ...]:
    """Return a warning if pull request options on the command line have no effect, because no
    Application uses pull requests.

    Only Applications whose repository was read count, because a repository's config can enable pull
    requests.
    """
    request_options = job.requests.named
    read_subs = [decision.subscription for decision in decisions if decision.kind is not None]
    if not request_options or not read_subs:
        return ()
    if job.scope.defaults.pull_request or any(sub.pull_request for sub in read_subs):
        return ()
    names = and_more(sorted({sub.application.key for sub in read_subs}))
    options = ", ".join(request_options)
    message = f"{options}: no effect, because pull requests are not enabled for {names}"
    hint = 'add --pull-request or the annotation pull-request: "true", or remove these options'
    return (Problem(Trouble.warning("usage", message, hint)),)


def not_merged(
    decisions: Iterable[Decision],
    commits: Iterable[Commit],
    job: Job,
) -> tuple[Problem, ...]:
    """Return a warning for each commit of `hold`, `release`, or `rollback` that updates an image on
    a head branch without a pull request. The update has no effect until the branch is merged.

    A pull request would make this visible by itself.
    """
    if job.intent is None:  # not one of these three commands
        return ()
    apps_by_head: dict[str, set[str]] = {}  # only head branches without pull requests
    for decision in decisions:
        sub = decision.subscription
        has_only_head_branch = sub.head_template != "" and not sub.pull_request
        if has_only_head_branch and decision.verdict == "update":
            apps_by_head.setdefault(decision.head, set()).add(sub.application.key)

    warnings = []
    for commit in commits:
        is_on_base = commit.head == commit.branch
        if is_on_base or commit.head not in apps_by_head:
            continue
        apps = sorted(apps_by_head[commit.head])
        message = (
            f"this {job.command} of {', '.join(apps[:FEW])} is waiting on"
            f" {commit.head} (git-branch): until it is merged, {commit.branch} keeps its"
            " current version"
        )
        hint = f"merge {commit.head} into {commit.branch}"
        warnings.append(Problem(Trouble.warning("target", message, hint)))
    return tuple(warnings)


def file_cautions(
    files: Files,
    sub: Subscription,
    kind: TargetKind,
    image: Image,
    terms: Terms,
) -> tuple[Problem, ...]:
    """Return warnings about a target's files: for example, if no source reads a values file, or if
    the image also appears in a place that is not updated.

    `files` come from Git or from the next commit, and `image` is the subscription's image in these
    files.
    """
    target = target_of(sub, kind, carry=terms.carry)
    warnings: list[Problem] = []
    # elements, such as Helm parameters, that an override file changes or hides
    stray_elements: tuple[Stray, ...] = ()
    unchanged_places: tuple[tuple[str, int], ...] = ()  # (path, line) pairs
    with suppress(TaskError):  # an unreadable file is reported as an error elsewhere
        stray_elements = strays(kind, files, target)
        if image.version:
            unchanged_places = also_at(kind, files, target, image)
        if kind == "helmvalues":
            warnings += _other_registry_warnings(files, sub, target)

    warnings += _stray_warnings(stray_elements, chosen(files, target), sub)
    if kind == "kustomization":
        warnings += _unmatched_entry_warnings(files, sub, target)
    if sub.neighbour and read_by_nobody(files, sub, kind):
        message = (
            f"no source of the Application reads {sub.path}, "
            f"which is in the source path of {sub.neighbour}"
        )
        hint = "correct write-back-target, or have that Application track the image"
        warnings.append(_caution(sub, message, hint))
    if unchanged_places:
        listed = and_more([f"{path}:{line}" for path, line in unchanged_places])
        message = f"{image.name} is also at {listed}, which is not changed"
        hint = "to update the other places, edit them by hand or use a different write-back-target"
        warnings.append(_caution(sub, message, hint))
    return tuple(warnings)


_LONGEST_NAME = 100  # maximum length of an element's name in a warning, in characters


def _stray_warnings(elements: Iterable[Stray], file: str, sub: Subscription) -> Iterator[Problem]:
    """Yield warnings about elements, such as Helm parameters, that the override file `file` changes
    or hides.

    There is one warning for each origin of the elements. An element's `origin` is a comment of the
    form `# from …`.
    """
    names_by_comment: dict[tuple[str, bool], list[str]] = {}
    for stray in elements:
        names = names_by_comment.setdefault((stray.origin, stray.hidden), [])
        names.append(stray.name[:_LONGEST_NAME])

    for (comment, are_hidden), names in names_by_comment.items():
        listed = and_more(names)
        origin = comment.removeprefix("# from ")
        if are_hidden:
            message = (
                f"{file} hides {listed} in {origin}: the file has its own list, and Argo CD uses"
                " only that list"
            )
            hint = (
                "copy them into the file with --carry-parameters, or, if nothing needs them, remove"
                f" them from {origin}"
            )
        else:
            message = f"{file} differs from {origin} in {listed}; Argo CD uses the file"
            hint = (
                f"to keep it in sync with {origin}, add the comment `{comment}` at the end of its"
                " first line in the file"
            )
        yield _caution(sub, message, hint)


def _other_registry_warnings(files: Files, sub: Subscription, target: Target) -> list[Problem]:
    """Return a warning if the values file sets a separate registry key, such as `image.registry`,
    to a registry other than the image's. Otherwise, return an empty list.
    """
    key, registry = helm_values.other_registry(files, target)
    if not key:
        return []
    name = sub.entry.image.name
    file = chosen(files, target)
    message = (
        f"{file}: {key} is {registry}, but the image is {name}: "
        "a chart that joins the two values runs a different image"
    )
    hint = f"set {key} to {sub.entry.image.registry}, or remove it if the chart does not read it"
    return [_caution(sub, message, hint)]


def cut_loose(files: Files, sub: Subscription, target: Target) -> list[Problem]:
    """Return a warning for each YAML alias that an update replaces with a literal version."""
    hint = "if the anchor's other uses should have the new version, change them by hand"
    return [
        _caution(sub, f"{sub.path or '/'}: {alias} is replaced with the literal version", hint)
        for alias in aliased(files, target)
    ]


def _unmatched_entry_warnings(files: Files, sub: Subscription, target: Target) -> list[Problem]:
    """Return a warning if the kustomization's entries for the image do not match any image in the
    manifests, and therefore have no effect. Otherwise, or if the manifests' images are unknown,
    return an empty list.
    """
    if is_component(files, sub.path):  # the kustomization's manifests are in other folders
        return []
    names_in_manifests = names_in_tree(files, sub.path)
    entries = every_entry(files, target, sub.path)
    entry_names = [entry.name for entry in entries if is_for_image(entry, target)]
    if not names_in_manifests or not entry_names:
        return []
    has_match = any(name in names_in_manifests for name in entry_names)
    if has_match:
        return []
    name = entry_names[0]
    message = f"{sub.path or '/'}: no manifest has the image {name}, so its entry has no effect"
    sorted_names = sorted(names_in_manifests)
    suggestion = nearest(name, sorted_names) or and_more(sorted_names)
    key = f"{target.alias or '<alias>'}.kustomize.image-name"
    hint = f"the manifests have {suggestion}: set the annotation {key} to that name"
    return [_caution(sub, message, hint)]


def cautions(decisions: Sequence[Decision]) -> tuple[Problem, ...]:
    """Return the warnings that can be derived from a decision alone, for example about an unchecked
    image or a misspelled key.

    The warnings are sorted by kind, and then by the order of the decisions.
    """
    checks = (
        _unchecked_image_warning,
        _overridden_refusal_warning,
        _misspelled_key_warning,
        _reverted_patch_warning,
        _shared_anchor_warning,
        _unlisted_file_warning,
        _unread_spelling_warning,
    )
    warnings = []
    for check in checks:
        for decision in decisions:
            warning = check(decision)
            if warning:
                warnings.append(warning)
    return tuple(warnings)


def _unchecked_image_warning(decision: Decision) -> Problem | None:
    """Return a warning if an image's required facts are unknown, or else None."""
    doubt = decision.unchecked
    if not doubt:
        return None
    message = f"{decision.candidate.reference}: {doubt.message}"
    return _caution(decision.subscription, message, doubt.hint, "registry")


def _overridden_refusal_warning(decision: Decision) -> Problem | None:
    """Return a warning if another Application writes the refused version to the same entry, or else
    None.
    """
    if not decision.overridden_by:
        return None
    file = decision.current.file or decision.subscription.path
    app = decision.subscription.application.key
    message = (
        f"{app} refuses {decision.candidate.version}, but {decision.overridden_by} writes it to the"
        f" same entry in {file or '/'}, so both run it"
    )
    hint = "use the same rules for both, or a separate entry or file for each"
    return _caution(decision.subscription, message, hint)


def _misspelled_key_warning(decision: Decision) -> Problem | None:
    """Return a warning if the file lacks an annotated key, but contains a similar one. Otherwise,
    return None.
    """
    if not decision.misspelled:
        return None
    file = decision.current.file or decision.subscription.path
    key, similar_key = decision.misspelled
    message = f"{key} is not in {file}, so it is added; the file has {similar_key}"
    hint = (
        f"if the chart reads {similar_key}, correct the annotation and remove {key} from the file"
    )
    return _caution(decision.subscription, message, hint)


def _reverted_patch_warning(decision: Decision) -> Problem | None:
    """Return a warning if the owner of a live Application, such as an ApplicationSet, reverts the
    patch. Otherwise, return None.
    """
    if not decision.owner:
        return None
    message, hint = taken_back(decision.owner)
    return _caution(decision.subscription, message, hint)


def _shared_anchor_warning(decision: Decision) -> Problem | None:
    """Return a warning if an update changes other values that share the same YAML anchor, or else
    None.
    """
    if not decision.shared:
        return None
    file = decision.current.file or decision.subscription.path
    message = f"{file}: this also changes {and_more(decision.shared)}, through an anchor"
    return _caution(decision.subscription, message, "write out the value where it must not change")


def _unlisted_file_warning(decision: Decision) -> Problem | None:
    """Return a warning if an update creates a values file that no source lists, or else None."""
    file = decision.created
    if not file:
        return None
    if _is_listed_by_source(file, decision.subscription.application.sources):
        return None
    message = (
        f"{file} does not exist and will be created, but no source of the Application lists it in"
        " valueFiles"
    )
    hint = (
        "if the name is wrong, correct write-back-target and delete the file; otherwise, add it to"
        " valueFiles"
    )
    return _caution(decision.subscription, message, hint)


def _unread_spelling_warning(decision: Decision) -> Problem | None:
    """Return a warning if Argo CD does not read an override file because of its name, or else None.

    Argo CD reads only one of the possible names. Which one depends on the control plane's
    namespace.
    """
    file = decision.current.file
    has_unread_name = file != "" and file in decision.subscription.fallbacks
    if not has_unread_name:
        return None
    message = (
        f"{file} is used because only this name exists in Git, but Argo CD only reads"
        f" {decision.subscription.path}"
    )
    hint = "rename it with git mv, or set the control plane's namespace with --argocd-namespace"
    return _caution(decision.subscription, message, hint)


def taken_back(owner: str) -> tuple[str, str]:
    """Return the message and the hint for a live Application whose owner reverts the patch."""
    message = f"{owner} reverts the patch, because it does not ignore this field of the Application"
    hint = (
        "set write-back-method: git, or"
        " have it ignore the field (ignoreApplicationDifferences, ignoreDifferences)"
    )
    return message, hint


def _is_listed_by_source(path: str, sources: Iterable[Source]) -> bool:
    """Return whether a source lists this values file in its own Helm section."""
    for source in sources:
        for name in ("values.yaml", *source.value_files):
            if name.startswith("$"):  # relative to the root of the source with that ref
                _, _, listed_path = name.partition("/")
            else:
                listed_path = posixpath.join(source.path, name)
            if posixpath.normpath(f"/{listed_path}").lstrip("/") == path:
                return True
    return False

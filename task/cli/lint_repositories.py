"""Reads repositories for `lint`: local configs, holds, and the files that updates write to."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from task.annotations.lint import Finding, noted
from task.annotations.subscription import subscribe
from task.annotations.write_back import Neighbours, refuse_files
from task.applications.work_tree import LocalFiles, top_of
from task.cli.job import scope_of
from task.deciding.cautions import file_cautions
from task.deciding.decide import (
    NOTHING,
    changed_files,
    file_of,
    missing_places,
    reading,
    state_path,
    states_of,
)
from task.deciding.hiding import refuse_hidden
from task.deciding.job import Terms
from task.deciding.target import resolve, target_of, target_places
from task.editors import EDITORS
from task.errors import Malformed, NotPermittedError, TargetError, TaskError, Trouble
from task.files import read_text
from task.landing.before_deciding import CONFIG, with_missing
from task.landing.head_branches import request_head
from task.landing.ports import World
from task.model import Application, File, Files, Place, Snapshot, State, Subscription, Tracker
from task.pipeline.discover import Locate
from task.policy.builds import active, hold_text
from task.proof import Demand
from task.registry.signature import public_keys
from task.repository_config.config import (
    MISTAKEN,
    PATH,
    Freeze,
    RepositoryConfig,
    Rule,
    also_limited,
    governed,
    unmatched,
)
from task.repository_config.reading import (
    LARGEST,
    NOT_READ,
    check_config,
    config_in,
    template_in,
    with_keys,
)
from task.settings import Settings
from task.templates.commit_message import LONGEST
from task.text import shortened
from task.urls import normal_url

_LINE = re.compile(r"\bline (\d+)")
_LARGEST_CONFIG = 4 * LARGEST  # bytes; in UTF-8, a character needs up to 4


def config_findings(
    sources: Iterable[str],
    subs: Sequence[Subscription],
    locate: Locate,
) -> Iterator[Finding]:
    """Yield the findings about the repositories' configs (`.image-update/config`): mistakes, rules
    that match nothing, and files that are commonly mistaken for a config.

    `sources` are the values of `--applications`. If a source is a local file or folder, there may
    be a config at the root of its work tree. `subs` are all subscriptions that write to
    repositories, and `locate` returns the repository that a local file belongs to.
    """
    for path in _config_paths(sources):
        yield from _misplaced_config_findings(path)
        if os.path.isfile(path):
            yield from _findings_in_config(path, subs, locate)


def _findings_in_config(
    path: str, subs: Sequence[Subscription], locate: Locate
) -> Iterator[Finding]:
    """Yield an error for each mistake in the config at `path`, and a warning for each rule that
    matches no Application.

    Rules are checked against those `subs` that write to the config's repository, which `locate`
    returns. If that repository is unknown, rules are not checked.
    """
    try:
        config, mistakes = check_config(read_text(path, _LARGEST_CONFIG))
    except (OSError, UnicodeDecodeError) as error:
        yield _finding_at(path, f"cannot be read: {error}", "save the file as UTF-8")
        return
    for mistake in sorted(mistakes, key=lambda error: _line_in(error.message)):
        yield _finding_at(path, mistake.message, mistake.hint)
    yield from _template_findings(path, config.templates)
    yield from _key_findings(path, config)

    has_rules = bool(config.rules or config.freezes)
    if not has_rules:
        return
    located = locate(f"{path}:0")  # `locate` expects PATH:LINE, like a manifest's origin
    if located:
        repo, _, _ = located
        subs_of_repo = [sub for sub in subs if same_repository(sub.repo, repo)]
        yield from _unmatched_rule_findings(path, config, subs_of_repo)


def branch_prefixes(sources: Iterable[str], locate: Locate) -> dict[str, str]:
    """Return the `branchPrefix` of each repository whose config is available locally."""
    prefixes: dict[str, str] = {}
    for path in _config_paths(sources):
        with suppress(OSError, UnicodeDecodeError):
            config, _ = check_config(read_text(path, _LARGEST_CONFIG))
            prefix = config.wishes.branch_prefix
            if not prefix:
                continue
            located = locate(f"{path}:0")  # `locate` expects PATH:LINE
            if located:
                repo, _, _ = located
                prefixes[normal_url(repo)] = prefix
    return prefixes


def _config_paths(sources: Iterable[str]) -> Iterable[str]:
    """Return the expected paths of the local sources' configs, without duplicates."""
    return dict.fromkeys(_config_path(source) for source in sources if os.path.exists(source))


def _unmatched_rule_findings(
    path: str,
    config: RepositoryConfig,
    subs: Sequence[Subscription],
) -> Iterator[Finding]:
    """Yield a warning for each rule or freeze that applies to none of the subscriptions.

    `path` is the config file, and `subs` are all subscriptions that write to its repository. If
    there are no subscriptions, nothing is reported.
    """
    if not subs:
        return
    targets = list(subs)  # the code below may add a copy for each file that an update would change
    if unmatched(config, targets):  # a target may be a folder of which a rule covers only a part
        top = os.path.dirname(os.path.dirname(path))
        for sub in subs:
            targets += [replace(sub, path=file) for file in _files_changed_in(top, sub)]

    number = len({sub.application.key for sub in subs})
    problem = f"does not match any of the {number} Applications that write to this repository"
    if number == 1:
        problem = "does not match the only Application that writes to this repository"
    for rule, line in unmatched(config, targets):
        hint = "correct the names and globs in its match, or remove it"
        yield Finding(noted("warning", f"{rule} {problem}", hint), origin=f"{path}:{line}")


def _misplaced_config_findings(config: str) -> Iterator[Finding]:
    """Yield a finding for each file or folder that is commonly mistaken for the config, such as
    `.image-update/config.yaml`. `config` is the path of the actual config.
    """
    if os.path.isdir(config):
        hint = f"use a single file, {PATH}"
        yield Finding(noted("warning", f"the folder {PATH} is not read", hint), origin=config)
    for name in MISTAKEN:
        path = f"{config.removesuffix(PATH)}{name}"
        if os.path.isfile(path):
            yield _finding_at(
                path,
                f"{name} {NOT_READ} {PATH}",
                f"rename it to {PATH}, or delete it",
            )


def same_repository(repo: str, other: str) -> bool:
    """Return whether two URLs refer to the same repository, even if only one of them uses SSH."""
    return _without_scheme_and_login(repo) == _without_scheme_and_login(other)


def _without_scheme_and_login(url: str) -> str:
    _, _, after_scheme = normal_url(url).partition("://")
    return after_scheme.rpartition("@")[2]


def _template_findings(config: str, templates: Iterable[tuple[str, int]]) -> Iterator[Finding]:
    """Yield an error for each unusable commit message template.

    `config` is the config's path. `templates` contains each template's path, relative to the root
    of the work tree, and the line of the config that refers to the template.
    """
    top = os.path.dirname(os.path.dirname(config))
    for path, line in templates:
        try:
            template_in(files_to(top, path), path, line)  # raises if the template is unusable
        except TargetError as error:
            yield _finding_at(config, error.message, error.hint)


def _key_findings(path: str, config: RepositoryConfig) -> Iterator[Finding]:
    """Yield an error for each demand that refers to an unusable public key.

    A demand is the proof that the config requires for an image. `path` is the config file.
    """
    top = os.path.dirname(os.path.dirname(path))
    for wishes in (config.wishes, *(rule.wishes for rule in config.rules)):
        for demand in (wishes.signatures, wishes.provenance):
            if not demand:
                continue
            try:
                _check_keys(top, demand)
            except TargetError as error:
                yield _finding_at(path, error.message, error.hint)


def _check_keys(top: str, demand: Demand) -> None:
    """Raise `TargetError` for the first unusable public key that a demand refers to.

    A demand is the proof that a repository's config requires for an image. Its `keys` are the paths
    of PEM files, relative to `top`, the root of the work tree.
    """
    key_files: dict[str, File] = {}  # the key files and their parent folders
    for path in demand.keys:
        key_files |= files_to(top, path)
    demand_with_texts = with_keys(demand, key_files)  # raises `TargetError` for an unreadable file
    for path, pem_text in demand_with_texts.texts:
        try:
            public_keys(pem_text)  # raises if a key is unusable
        except Malformed as error:
            raise TargetError(
                f"line {demand.line}: {path}: {error.message}", hint=error.hint
            ) from error


def files_to(top: str, path: str, largest: int = 10 * LONGEST) -> Files:
    """Return the file or folder at `top`/`path` and its parent folders, keyed by their paths
    relative to `top`.

    Links and folders have the mode that Git would assign to them. Symbolic links are not followed.
    A file of more than `largest` bytes has a `problem` instead of text.
    """
    files: dict[str, File] = {}
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        name = "/".join(parts[:depth])
        local_path = os.path.join(top, name)
        if os.path.islink(local_path):
            files[name] = File("", "120000")  # Git's mode for a symbolic link
            break
        if os.path.isdir(local_path):
            files[name] = File("", "040000")  # Git's mode for a folder
        elif os.path.exists(local_path):
            files[name] = _local_file(local_path, largest)
    return files


def _local_file(path: str, largest: int) -> File:
    try:
        return File(read_text(path, largest))
    except (OSError, UnicodeDecodeError) as error:
        return File("", problem=str(error))


def _finding_about(app: Tracker, trouble: Trouble) -> Finding:
    """Return a finding about an Application, placed at its manifest."""
    return Finding(trouble, application=app.key, origin=app.origin)


def _line_in(message: str) -> int:
    """Return the line number that a message mentions, or 0 if there is none."""
    match = _LINE.search(message)
    return int(match[1]) if match else 0


def _finding_at(path: str, message: str, hint: str) -> Finding:
    """Return an error in a file, with the line number moved from the message to the origin."""
    line = _line_in(message)
    message = message.removeprefix(f"line {line}: ").removesuffix(f", line {line}")
    return Finding(noted("error", message, hint), origin=f"{path}:{line}" if line else path)


def _config_path(source: str) -> str:
    """Return the expected path of a source's config: at the root of the source's work tree or,
    outside a work tree, in the source's folder.
    """
    folder = source if os.path.isdir(source) else os.path.dirname(source) or "."
    top = os.path.realpath(folder)
    while not os.path.exists(os.path.join(top, ".git")):
        parent = os.path.dirname(top)
        is_root = parent == top
        if is_root:
            return os.path.normpath(os.path.join(folder, PATH))
        top = parent
    return os.path.relpath(os.path.join(top, PATH))


LOCAL = ("/", ".", "file://")  # URLs that require no credentials


def findings_in_files(
    apps: Iterable[Application],
    settings: Settings,
    world: World,
    now: str,
) -> Iterator[Finding]:
    """Yield the findings about the files to which the Applications' updates would be written.

    Repositories on this machine are read if the `file` protocol is allowed; all others are read
    only with `--holds`. If a repository cannot be read, a warning is logged. In place of
    repositories that are not read, the files in the manifests' work trees are checked (see
    `local_findings`).
    """
    subs_to_read: dict[tuple[str, str], list[Subscription]] = {}  # by (repository, base branch)
    subs_not_read: list[Subscription] = []
    defaults = scope_of(settings).defaults
    apps = tuple(apps)
    neighbours = Neighbours(apps)
    for app in apps:
        for subscription in subscribe(app, defaults).subscriptions:
            sub = neighbours.noted(subscription)
            is_local = sub.repo.startswith(LOCAL) and "file" in settings.transport.allow_protocol
            if is_local or settings.lint.holds:
                subs_to_read.setdefault((sub.repo, sub.base), []).append(sub)
            else:
                subs_not_read.append(sub)

    yield from local_findings(subs_not_read, world.locate)
    for (repo, base), subs in subs_to_read.items():
        try:
            yield from _findings_on_branch(repo, base, subs, world, now)
        except TaskError as error:
            world.log("warning", f"cannot read holds: {error}")


def _findings_on_branch(
    repo: str,
    base: str,
    subs: Sequence[Subscription],
    world: World,
    now: str,
) -> Iterator[Finding]:
    """Yield the findings about a repository's files on the branch `base`: freezes, unusable
    targets, warnings, and holds. Raises `TaskError` if the files cannot be read.

    `subs` are all subscriptions that write to this branch (at least one).
    """
    repository = world.repository(repo, subs[0])
    try:
        states_and_targets: list[Place] = []
        for sub in subs:
            states_and_targets += [Place(state_path(sub)), *target_places(sub)]
        places = (*CONFIG, *dict.fromkeys(states_and_targets))
        snapshot = repository.snapshot(base, places, default=CONFIG)
        snapshot = with_missing(snapshot, subs, Terms(), repository, whole=True)
    finally:
        repository.close()
    yield from _freeze_findings(snapshot, subs, now)
    yield from _unusable_target_findings(snapshot, subs)
    yield from target_findings(snapshot, subs)
    yield from _hold_findings(snapshot, subs, now)


def _hold_findings(snapshot: Snapshot, subs: Sequence[Subscription], now: str) -> Iterator[Finding]:
    """Yield a remark for each hold and each waiting build in the state files, and an error for each
    unreadable state file.

    A hold is an order to keep a version. A state file records the holds and waiting builds for each
    file to which updates are written.
    """
    unreadable: set[str] = set()  # paths of state files
    reported: set[tuple[str, str]] = set()  # (path of a state file, file whose state it records)
    for sub in subs:
        app = sub.application
        path = state_path(sub)
        try:
            states = states_of(snapshot, sub)
        except TaskError as error:
            if path not in unreadable:
                unreadable.add(path)
                yield _finding_about(app, noted("error", str(error), error.hint))
            continue

        file = file_of(snapshot, sub, states)
        if (path, file) in reported:
            continue
        reported.add((path, file))
        within = f" in {file}" if len(states) > 1 else ""
        hint = f"image-update release {app.key}"
        for message in _messages_about(states.get(file, NOTHING), within, now):
            yield _finding_about(app, noted("info", message, hint))


def _messages_about(state: State, within: str, now: str) -> Iterator[str]:
    """Yield a message for each hold that is active at the time `now`, and for each waiting build.

    `within` is " in FILE" if the Application's updates are written to several files, or else "".
    """
    hold_of_all = active(state.hold, now)  # None if there is no hold, or if the hold has ended
    if hold_of_all:
        yield f"all images{within} are {hold_text(hold_of_all)}"
    for name, memory in state.images.items():
        waiting = f"{memory.deferred.version} is waiting" if memory.deferred else ""
        hold = active(memory.hold, now)
        if hold and waiting:
            yield f"{name}{within} is {hold_text(hold)}; {waiting}"
        elif hold:
            yield f"{name}{within} is {hold_text(hold)}"
        elif waiting:
            yield f"{name}{within}: {waiting}"


def _unusable_target_findings(
    snapshot: Snapshot, subs: Sequence[Subscription]
) -> Iterator[Finding]:
    """Yield an error for each target (the place that a subscription's updates are written to) that
    cannot be edited, or whose version Argo CD would never use.
    """
    for sub in subs:
        if sub.method != "git":
            continue
        try:
            kind = resolve(sub, snapshot)
            # Both calls serve only to raise an error if the target is unusable.
            EDITORS[kind].read(snapshot.files, target_of(sub, kind))
            refuse_hidden(snapshot.files, sub, kind, target_of(sub, kind))
        except TargetError as error:
            yield _finding_about(sub.application, noted("error", str(error), error.hint))
        except TaskError:
            continue  # `run` reports this error, and so do the findings about annotations


def _freeze_findings(
    snapshot: Snapshot, subs: Sequence[Subscription], now: str
) -> Iterator[Finding]:
    """Yield a remark for each Application whose updates are frozen at the time `now`.

    A freeze is an entry in the repository's config that suspends updates for some time. If the
    config contains a mistake, yield an error about that instead.
    """
    try:
        config = config_in(snapshot.files)
    except TaskError as error:
        yield Finding(noted("error", f"{snapshot.repo}@{snapshot.branch}: {error}", error.hint))
        return

    hint = (
        "wait until the freeze ends: the first run, release, or scan after that will write the"
        " waiting builds"
    )
    governed_subs = governed(subs, config, now, lambda sub: changed_files(snapshot, sub, Terms()))
    # an ordered set, to remove the duplicates if an Application has several images
    findings: dict[Finding, None] = {}
    for sub in governed_subs:
        if sub.freeze:
            trouble = noted("info", f"images are {hold_text(sub.freeze)}", hint)
            findings[_finding_about(sub.application, trouble)] = None
    yield from findings


LARGEST_FILE = 10 * 1024 * 1024  # maximum size of a file, in bytes; the same limit as in a run


def target_findings(snapshot: Snapshot, subs: Iterable[Subscription]) -> Iterator[Finding]:
    """Return the findings about these subscriptions' files, without duplicates: the warnings that a
    run would issue, and errors for files that must not be written.

    Read errors are not included, because a run reports them.
    """
    findings: list[Finding] = []
    for sub in subs:
        if sub.method != "git":
            continue
        with suppress(TaskError):
            findings += _not_permitted_findings(snapshot, sub)
            findings += _other_rule_findings(snapshot, sub)
        with suppress(TaskError):
            findings += _caution_findings(snapshot, sub)
    return iter(dict.fromkeys(findings))


def _caution_findings(snapshot: Snapshot, sub: Subscription) -> list[Finding]:
    """Return the warnings that a run would issue about the target's files. Raises `TaskError` if
    the target cannot be read.
    """
    kind = resolve(sub, snapshot)
    image = sub.image_at(reading(snapshot, sub, Terms()))
    cautions = file_cautions(snapshot.files, sub, kind, image, Terms())
    return [
        Finding(
            noted("warning", caution.message, caution.hint),
            application=caution.application,
            origin=sub.application.origin,
        )
        for caution in cautions
    ]


def _not_permitted_findings(snapshot: Snapshot, sub: Subscription) -> Iterator[Finding]:
    """Yield an error if the repository's config does not permit the Application to change the files
    that an update would change, on the branch to which the update would be pushed.
    """
    files = changed_files(snapshot, sub, Terms())
    # Omit freezes: they do not limit where an Application may write, and without them, the time
    # does not matter.
    config = replace(config_in(snapshot.files), freezes=())
    # The base branch's config contributes settings, such as whether a pull request is required, and
    # limits (`writes`). The default branch's config contributes only its limits.
    (sub,) = governed([sub], config, "", lambda _: files)
    (sub,) = also_limited([sub], config_in(snapshot.default), lambda _: files)

    head = sub.head_template  # the branch that would be pushed
    if not head:
        head = request_head(sub, snapshot.branch) if sub.pull_request else snapshot.branch
    is_head_unknown = not head or "{{" in head  # only a run can determine the branch's name
    if is_head_unknown:
        any_branch = tuple(replace(writes, branches=None) for writes in sub.writes)
        sub = replace(sub, writes=any_branch)
    try:
        refuse_files(sub, files, head)
    except NotPermittedError as error:
        yield _finding_about(sub.application, noted("error", error.message, error.hint))


def _other_rule_findings(snapshot: Snapshot, sub: Subscription) -> Iterator[Finding]:
    """Yield a warning for each rule or freeze in the repository's config that applies to a file in
    the target folder, but not to the folder itself.
    """
    config = config_in(snapshot.files)
    file_subs = [replace(sub, path=path) for path in changed_files(snapshot, sub, Terms())]
    rules: tuple[Rule | Freeze, ...] = (*config.rules, *config.freezes)
    for rule in rules:
        paths = [file_sub.path for file_sub in file_subs if rule.match.takes(file_sub)]
        applies_to_folder = rule.match.takes(sub)
        if not paths or applies_to_folder:
            continue
        message = (
            f"the target {sub.path or '/'} contains {shortened(paths[0])}, for which {PATH} has"
            f" a rule on line {rule.line}; for each update, the strictest rule for any file"
            " applies"
        )
        hint = "in write-back-target, use only files or folders with the same rules"
        yield _finding_about(sub.application, noted("warning", message, hint))


def local_findings(subs: Iterable[Subscription], locate: Locate) -> Iterator[Finding]:
    """Yield `target_findings` and errors about hidden targets for subscriptions whose repositories
    are not read, to the extent that local files reveal them.

    If an Application writes to the repository that contains its own manifest, the files in the
    manifest's work tree are checked.
    """
    for sub in subs:
        origin = sub.application.origin
        manifest_path = origin.rpartition(":")[0]
        located = locate(origin) if os.path.exists(manifest_path) else None
        writes_to_own_repository = False
        if located:
            repo, _, _ = located
            writes_to_own_repository = same_repository(sub.repo, repo)

        if writes_to_own_repository:
            top = top_of(os.path.dirname(os.path.realpath(manifest_path)))
            files = {**_places_in_work_tree(top, sub), **files_to(top, PATH, LARGEST_FILE)}
            snapshot = Snapshot(sub.repo, sub.base, tip="", files=files)
            yield from _hidden_target_findings(snapshot, sub)
            yield from target_findings(snapshot, (sub,))
        elif sub.target == "helmvalues":  # the manifest itself may override values files
            no_files = Snapshot(sub.repo, sub.base, tip="", files={})
            yield from _hidden_target_findings(no_files, sub)


def _hidden_target_findings(snapshot: Snapshot, sub: Subscription) -> Iterator[Finding]:
    """Yield an error if the target is hidden, which means that something overrides the version
    written there, so Argo CD never uses it.
    """
    try:
        # `local_findings` passes an empty snapshot only if the target is a values file.
        kind = resolve(sub, snapshot) if snapshot.files else "helmvalues"
        refuse_hidden(snapshot.files, sub, kind, target_of(sub, kind))
    except TargetError as error:
        yield _finding_about(sub.application, noted("error", str(error), error.hint))
    except TaskError:
        return  # `run` reports this error


def _files_changed_in(top: str, sub: Subscription) -> tuple[str, ...]:
    """Return the paths in the work tree `top` that an update of this subscription would change."""
    files = _places_in_work_tree(top, sub)
    snapshot = Snapshot(sub.repo, sub.base, tip="", files=files)
    return changed_files(snapshot, sub, Terms())


def _places_in_work_tree(top: str, sub: Subscription) -> Files:
    """Return the files in the work tree `top` that are needed to read and write the subscription's
    target.

    A place is a file to read, or a folder to read with all of its content. Folders that are too
    large are skipped.
    """
    files: dict[str, File] = {}
    places_read: set[Place] = set()
    places_to_read: Collection[Place] = target_places(sub)
    while places_to_read:  # the files read in each round reveal which places are still missing
        for place in places_to_read:
            files |= files_to(top, place.path, LARGEST_FILE)
            if place.want in ("folder", "tree"):
                with suppress(Malformed):
                    files |= LocalFiles(os.path.join(top, place.path)).read(place.path)
        places_read.update(places_to_read)
        snapshot = Snapshot(sub.repo, sub.base, tip="", files=files)
        places_to_read = set(missing_places(snapshot, sub, Terms(), whole=True)) - places_read
    return files

"""Finds all problems in an Application's annotations, and suggests fixes. Pure.

An annotation that would stop `run` is also an error in `lint`. Typical mistakes from Argo CD Image
Updater (AIU) issues have their own messages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from task.annotations.advice import (
    entry_with,
    is_image,
    is_name_key,
    is_tag,
    is_tag_key,
    key_of,
    range_of,
    unwrapped_pattern,
)
from task.annotations.image_updater_settings import FIELDS
from task.annotations.keys import (
    DOCKER_CONFIG,
    IMAGE_KEYS,
    OURS,
    Setting,
    doubt,
    doubts,
    git_branch,
    index,
    parse_credential_source,
    read_image_list,
    settings,
    split_key,
)
from task.annotations.subscription import Defaults, EntryReading, attempted, subscribe
from task.annotations.write_back import inside
from task.errors import Malformed, Severity, TaskError, Trouble, Troubled
from task.image import RANGE, cut_ranges, live_image, split_image_list
from task.model import Application, Entry, Flaw, Subscription, Tracker
from task.policy.strategies import commit_in, parse_tag_order, rules_of
from task.templates.branch_name import check_branch_template
from task.text import and_more, counted

# an annotation, the severity, the problem, and the fix
Remark = tuple[str, Severity, str, str]
# AIU reads these keys only per image, but users expect them to work for the whole Application, too
# (AIU issues 1122 and 1142). Here, their Application-wide form applies to every image.
PER_IMAGE_IN_AIU = (*(key for key in IMAGE_KEYS if "." in key), "platforms")
# Placeholders that remain because people copy examples or use a template that is never rendered
# (AIU issues 660 and 877).
PLACEHOLDER = re.compile(
    r"<(?!v?(?:[0-9*]|[xX]\b))[A-Za-z][^<>]*>|\{\{.*|\$?\{[A-Za-z][^{}]*\}|\$\([A-Za-z][^()]*\)|\$[A-Z_]+"
)
PATTERN = re.compile(r"(?:[^=:]*=)?(?:(?:regexp?|glob|semver):|[^:@]*[*?\\^$()|])", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# Annotation names that Kubernetes accepts: the alias before the dot, and the whole key after
# the prefix.
ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Finding(Troubled):
    """A problem that `lint` found, and its location."""

    trouble: Trouble
    application: str = ""
    key: str = ""
    value: str = ""
    origin: str = ""  # "file:line" of the manifest; "" for an Application from a cluster or Argo CD
    field: str = ""  # the ImageUpdater's field that set the annotation: "allowTags"


def noted(severity: Severity, message: str, hint: str) -> Trouble:
    """Return a trouble for `lint` to report. Its rule is always "annotation"."""
    return Trouble("annotation", message, hint, severity)


def findings(app: Application, defaults: Defaults = Defaults()) -> tuple[Finding, ...]:
    """Return all problems in one Application's annotations, without duplicates, errors first."""
    subscribed = subscribe(app, defaults)
    image_list = app.annotations.get("image-list", "")
    impossible_entries = dict(_impossible_entries(image_list))
    # Leave out misspelled keys and impossible entries, because `_remarks` reports them in its own
    # words.
    unsorted = [
        finding_of_flaw(app, flaw)
        for flaw in subscribed.flaws
        if not flaw.misspelled and flaw.text not in impossible_entries
    ]
    remarks = _remarks(app, defaults, impossible_entries)
    unsorted += [_finding(app, *remark) for remark in remarks]
    distinct_findings = dict.fromkeys(unsorted)
    order = ("error", "warning", "info")
    return tuple(sorted(distinct_findings, key=lambda finding: order.index(finding.severity)))


def _remarks(
    app: Application,
    defaults: Defaults,
    impossible_entries: Mapping[str, tuple[str, str]],
) -> Iterator[Remark]:
    """Yield all problems in one Application's annotations, except the flaws that `subscribe` finds.

    `impossible_entries` are the `image-list` entries that cannot be images, each with a message and
    a hint.
    """
    for message, hint in impossible_entries.values():
        yield "image-list", "error", message, hint
    yield from _ineffective_annotations(app)
    for key in app.annotations:
        yield from _key_mistakes(app, key)
    for key, value in app.annotations.items():
        if _is_read(app, key):
            yield from _value_mistakes(key, value)
    yield from _entry_mistakes(app, impossible_entries)
    readings, subscriptions = attempted(app, defaults)
    yield from _reading_mistakes(app, readings)
    yield from _shared_helm_values(subscriptions)
    yield from _conflicting_rules(subscriptions)
    yield from _target_mistakes(subscriptions)
    yield from _head_template_mistakes(app)


def _ineffective_annotations(app: Application) -> Iterator[Remark]:
    """Yield a warning if there are annotations but no `image-list`, and one for each annotation
    that `write-back-method: argocd` ignores.
    """
    images = split_image_list(app.annotations.get("image-list", ""))
    # `_key_mistakes` reports a misspelled image-list
    is_misspelled = any(key_doubt.meant == "image-list" for _, key_doubt in doubts(app.annotations))
    if app.annotations and not images and not is_misspelled:
        message = "there are annotations but no image-list, so nothing is ever updated"
        yield "image-list", "warning", message, "add image-list: <alias>=<image>"

    if app.annotations.get("write-back-method") != "argocd":
        return
    for key in ("write-back-target", "git-branch", "git-repository"):
        if app.annotations.get(key):
            message = (
                f"{key} has no effect with write-back-method: argocd, which does not write files"
            )
            yield key, "warning", message, f"use write-back-method: git, or remove {key}"


def missing_method_findings(apps: Iterable[Application]) -> tuple[Finding, ...]:
    """Return one finding about all Applications with an `image-list` that do not set a
    `write-back-method`, or () if there are none. The default method is `argocd` in AIU, and `git`
    here.

    Applications with a setting that AIU does not support are left out.
    """
    affected = [
        app
        for app in apps
        if app.annotations.get("image-list")
        and not app.annotations.get("write-back-method")
        and not _is_only_for_us(app)
    ]
    if not affected:
        return ()
    names = and_more([app.key for app in affected], 3)
    message = (
        "no write-back-method is set: Image Updater patches the live Application, but Image Update"
        f" commits to Git ({names})"
    )
    hint = "set it to git or argocd, so that both tools do the same"
    finding = _finding(affected[0], "write-back-method", "info", message, hint)
    if len(affected) > 1:
        finding = replace(finding, application="")
    return (finding,)


def _is_only_for_us(app: Application) -> bool:
    """Return whether an Application uses a target or an annotation that AIU does not support."""
    target = app.annotations.get("write-back-target", "")
    return target.startswith("manifests") or any(key.endswith(OURS) for key in app.annotations)


def findings_of_all(
    apps: Iterable[Application], defaults: Defaults = Defaults()
) -> tuple[Finding, ...]:
    """Return the problems of all Applications. A problem that one ApplicationSet or ImageUpdater
    (its maker) causes in several Applications is reported once.

    A mistake in an ApplicationSet's template appears in every generated Application, with different
    values for its placeholders. Other mistakes come from a generator's parameters. Findings about
    those are merged only if the messages are the same, apart from the Application's and the
    annotation's name.
    """
    apps = tuple(apps)
    # by the ApplicationSet and its location
    applications_of_set = Counter((app.generated_by, app.origin) for app in apps)
    reported_findings: dict[int, Finding] = {}  # by the position of the first occurrence
    for occurrences in _similar_findings(apps, defaults):
        example = occurrences[0]
        total = applications_of_set[example.app.generated_by, example.app.origin]
        # If a finding is in every generated Application, the mistake is in the template.
        is_in_template = len(occurrences) == total
        is_from_image_updater = example.finding.field != ""
        is_same_problem = is_from_image_updater or is_in_template
        groups = [occurrences] if is_same_problem else _by_message(occurrences)
        for first, *others in groups:
            finding = first.finding
            if others:
                finding = _of_several(first.app, finding, len(others))
            reported_findings[first.position] = finding
    return tuple(reported_findings[position] for position in sorted(reported_findings))


@dataclass(frozen=True)
class _Occurrence:
    """A finding about one Application, and its position among all Applications' findings."""

    position: int
    app: Application
    finding: Finding


def _similar_findings(
    apps: Iterable[Application], defaults: Defaults
) -> Iterable[list[_Occurrence]]:
    """Return the findings about all Applications, grouped by their maker (an ApplicationSet or
    ImageUpdater) and common part. The findings in a group may all have the same cause.
    """
    similar: dict[tuple[object, ...], list[_Occurrence]] = {}  # by their maker and common part
    position = 0
    for app in apps:
        times_seen = Counter[tuple[object, ...]]()
        for finding in findings(app, defaults):
            position += 1
            key: tuple[object, ...] = (position,)  # a finding without a maker forms its own group
            if _maker(app, finding):
                common_part = _common_part(app, finding)
                # One Application may have several findings with the same common part. The first of
                # them is grouped with the first of each other Application, the second with the
                # second, and so on.
                times_seen[common_part] += 1
                key = (*common_part, times_seen[common_part])
            similar.setdefault(key, []).append(_Occurrence(position, app, finding))
    return similar.values()


def _common_part(app: Application, finding: Finding) -> tuple[object, ...]:
    """Return the part of a finding that is the same in all Applications of an ApplicationSet or
    ImageUpdater.
    """
    message = finding.message
    if not finding.field:  # from a template whose placeholders have different values
        message = _without_name(app, finding, _QUOTED.sub("", message))
    return _maker(app, finding), finding.origin, finding.key, finding.severity, message


def _by_message(occurrences: Iterable[_Occurrence]) -> list[list[_Occurrence]]:
    """Return the findings, grouped by message. Messages that differ only in the Application's and
    the annotation's name count as the same.
    """
    groups: list[list[_Occurrence]] = []
    group_of_text: dict[str, list[_Occurrence]] = {}
    for occurrence in occurrences:
        message = occurrence.finding.message
        without_name = _without_name(occurrence.app, occurrence.finding, message)
        # Two messages may be identical, or identical only without the names. Because of the NUL, a
        # message without names never equals a whole message.
        texts = (message, f"{without_name}\0")
        known_groups = [group_of_text[text] for text in texts if text in group_of_text]
        if known_groups:
            group = known_groups[0]
        else:
            group = []
            groups.append(group)
        group.append(occurrence)
        for text in texts:
            group_of_text.setdefault(text, group)
    return groups


def _without_name(app: Application, finding: Finding, text: str) -> str:
    """Return the text without the finding's annotation key and the Application's name."""
    if finding.key:
        text = text.replace(finding.key, "")
    return text.replace(app.name, "")


def _maker(app: Application, finding: Finding) -> str:
    """Return the ImageUpdater or ApplicationSet that sets a finding's annotation, or "" if the
    Application's own manifest sets it.
    """
    if finding.field:
        return f"ImageUpdater {app.resource}"
    return f"ApplicationSet {app.generated_by}" if app.generated_by else ""


def _of_several(app: Application, finding: Finding, others: int) -> Finding:
    """Return a single finding on behalf of an Application and `others` more Applications that have
    the same finding.
    """
    more = counted(others, "more Application")
    message = f"{_maker(app, finding)}: {finding.message} ({app.key} and {more})"
    return replace(
        finding,
        application="",
        trouble=replace(finding.trouble, message=message),
    )


def _finding(
    app: Tracker,
    key: str,
    severity: Severity,
    message: str,
    hint: str,
) -> Finding:
    """Return a finding about the Application's annotation with this key."""
    value = app.annotations.get(key, "")
    origin, field = _place(app, key)
    return Finding(
        trouble=noted(severity, message, hint),
        application=app.key,
        key=key,
        value=value,
        origin=origin,
        field=field,
    )


def finding_of_flaw(app: Tracker, flaw: Flaw) -> Finding:
    """Return a flaw as a finding."""
    trouble = noted(flaw.severity, flaw.message, flaw.hint)
    return Finding(trouble, app.key, flaw.key, flaw.value, *_place(app, flaw.key))


def _place(app: Tracker, key: str) -> tuple[str, str]:
    """Return the location of the manifest that sets an annotation, such as `apps/web.yaml:3`, and
    the field that sets it in an ImageUpdater ("" in any other manifest).
    """
    if not isinstance(app, Application) or key not in app.from_resource:
        return app.origin, ""
    _, image_key = split_key(key)
    return app.resource_origin, FIELDS.get(image_key or key, "spec")


def _impossible_entries(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the parts of an `image-list` that cannot be images, each with a message and a hint."""
    pieces = split_image_list(text)
    cut_off_parts = cut_ranges(text)
    for number, piece in enumerate(pieces):
        previous_piece = pieces[number - 1] if number else ""
        placeholder = PLACEHOLDER.search(piece)
        if placeholder:
            message = f"{piece!r} contains the placeholder {placeholder.group()!r}"
            yield piece, (message, "replace it with its value")
        elif number in cut_off_parts:  # reported as a flaw of the entry it was cut from
            continue
        elif _has_open_bracket(previous_piece):
            hint = (
                "list only the image in image-list, and put the pattern in <alias>.allow-tags:"
                " regexp:…"
            )
            message = (
                f"{piece!r} is part of a pattern that was split at a comma: commas separate entries"
            )
            yield piece, (message, hint)
        elif RANGE.fullmatch(piece):
            message = f"{piece!r} is a version range without an image"
            yield piece, (message, f"use <alias>=<image>:{piece}")
        elif PATTERN.match(piece):
            hint = (
                "list each image separately: <alias>=<image>; to choose tags, use"
                " <alias>.allow-tags: regexp:…"
            )
            yield piece, (f"{piece!r} is a pattern, which image-list does not accept", hint)


def _has_open_bracket(text: str) -> bool:
    return any(text.count(opening) > text.count(closing) for opening, closing in ("{}", "[]", "()"))


def _key_mistakes(app: Application, key: str) -> Iterator[Remark]:
    """Yield the problem with an annotation's key, if there is one: it has no effect here, AIU does
    not read it, or Kubernetes rejects it.
    """
    prefix, image_key = split_key(key)
    if key in PER_IMAGE_IN_AIU:
        message = f"Image Update applies {key} to every image, but AIU ignores it without an alias"
        yield key, "info", message, f"use <alias>.{key}"
        return

    image_list = app.annotations.get("image-list", "")
    without_alias = read_image_list(image_list).without_alias
    if image_key and prefix in without_alias:
        entry_text = without_alias[prefix].text
        message = (
            f"the entry {entry_text!r} has no alias; AIU reads per-image keys only with an alias"
        )
        yield key, "info", message, f"use {prefix}={entry_text} in image-list"
        return

    key_doubt = doubt(key, image_list)
    if key_doubt:
        # An orphan (a key whose prefix no entry uses) is probably left over from a removed image,
        # unless the prefix is similar to an alias.
        has_similar_alias = key_doubt.kind == "orphan" and key_doubt.meant != ""
        is_error = key_doubt.kind in ("near", "level") or has_similar_alias
        yield key, "error" if is_error else "warning", key_doubt.message, key_doubt.hint
        return

    # set by a field of an ImageUpdater, which AIU reads, rather than by an annotation
    if key in app.from_resource:
        return
    if not NAME.fullmatch(key):
        message = (
            f"Kubernetes rejects the annotation {key!r}: after the prefix, a name can have up to 63"
            " letters, digits, '-', '_', and '.'"
        )
        hint = "use a shorter alias with only letters and digits"
        without_slash = key.replace("/", "_")
        if NAME.fullmatch(without_slash):
            hint = f"use {without_slash}"
        yield key, "error", message, hint
    elif key in OURS or image_key in OURS:
        yield key, "info", f"{image_key or key} works in Image Update, but AIU ignores it", ""


def _is_read(app: Application, key: str) -> bool:
    """Return whether an annotation is read, or would be if its key were spelled correctly."""
    key_doubt = doubt(key, app.annotations.get("image-list", ""))
    return key_doubt is None or key_doubt.kind not in ("former", "unknown")


def _value_mistakes(key: str, value: str) -> Iterator[Remark]:
    """Yield the problems with an annotation's value: it is a template that is never rendered, or a
    `pull-secret` that cannot work. A run would notice these only when it queries the registry.
    """
    if "{{" in value and key not in ("git-branch", "image-list"):
        message = (
            f"{key}: {value!r} is a template, but it is never rendered: Application annotations are"
            " plain text"
        )
        hint = "use the literal value, or render the annotation with an ApplicationSet"
        yield key, "error", message, hint
    if value and (key == "pull-secret" or key.endswith(".pull-secret")):
        yield from _pull_secret_mistakes(key, value)


def _pull_secret_mistakes(key: str, value: str) -> Iterator[Remark]:
    """Yield the problem with a `pull-secret`, if there is one: it is invalid, or this step needs an
    option or a different field.
    """
    try:
        source = parse_credential_source(value)
    except Malformed as error:
        yield key, "error", f"{key}: {error.message}", error.hint
        return
    if source.kind == "ext":
        message = f"{key}: the script {source.script} is used only with --allow-exec"
        hint = "pass --allow-exec, and add the script to the step's image"
        yield key, "info", message, hint
    elif source.kind == "env":
        message = f"{key}: the variable {source.env} is used only with --allow-env"
        yield key, "info", message, f"pass --allow-env {source.env}"
    elif source.kind == "secret" and source.field in (DOCKER_CONFIG, ".dockercfg"):
        message = (
            f"{key}: the field {source.field} does not contain user:password, which"
            " secret:…#<field> requires"
        )
        yield key, "error", message, f"use pullsecret:{source.namespace}/{source.name}"


def _entry_mistakes(app: Application, impossible_entries: Collection[str]) -> Iterator[Remark]:
    """Yield the mistakes in each `image-list` entry and in its own settings.

    `impossible_entries` are the texts of entries that cannot be images, which are skipped here.
    """
    image_list = read_image_list(app.annotations.get("image-list", ""))
    annotated = index(app.annotations)
    for entry in image_list.entries:
        if entry.text in impossible_entries:
            continue
        if entry.image.repository != entry.image.repository.lower():
            yield _upper_case(entry)
        if entry.alias and not ALIAS.fullmatch(entry.alias):
            yield _unusable_alias(entry.alias)
        own_settings = settings(annotated, image_list.prefixes(entry))
        yield from _helm_keys(entry, own_settings)
        yield from _several_kinds(app, entry, own_settings)
        yield from _range_in_strategy(entry, own_settings["update-strategy"])
        yield from _wrapped_pattern(own_settings["allow-tags"])
        yield from _version_in_name(own_settings["kustomize.image-name"])


def _wrapped_pattern(allow: Setting) -> Iterator[Remark]:
    """Yield an error for an `allow-tags` pattern with quotes, slashes, or spaces around it."""
    keyword, colon, pattern = allow.value.partition(":")
    is_regexp = bool(colon) and keyword.lower() == "regexp"
    # A space after `regexp:` is part of the pattern (AIU issue 1018).
    fixed_pattern = unwrapped_pattern(pattern) if is_regexp else ""
    if fixed_pattern:
        message = (
            f"the pattern {pattern!r} cannot match any tag: spaces, quotes, and slashes"
            " are matched literally"
        )
        yield allow.key, "error", f"{allow.key}: {message}", f"use {fixed_pattern}"


def _version_in_name(image_name: Setting) -> Iterator[Remark]:
    """Yield an error for a `kustomize.image-name` with a tag or digest."""
    image = live_image(image_name.value) if image_name else None
    if image and (image.tag or image.digest):
        message = (
            f"{image_name.key}: {image_name.value!r} includes a version, which is read as part"
            " of the name"
        )
        yield image_name.key, "error", message, f"use {image.name}"


def _upper_case(entry: Entry) -> Remark:
    """Return an error about an image name with uppercase letters."""
    why = "the repository has uppercase letters, which registries reject, so no build matches it"
    image = entry.image
    registry = image.name.removesuffix(image.repository)
    lowercase_image = replace(image, name=registry + image.repository.lower())
    fixed_entry = entry_with(replace(entry, image=lowercase_image), entry.constraint)
    return "image-list", "error", f"{entry.text!r}: {why}", f"use {fixed_entry}"


def _range_in_strategy(entry: Entry, strategy: Setting) -> Iterator[Remark]:
    """Yield a remark about the strategy `semver:<range>`, whose range AIU ignores."""
    word, colon, _ = strategy.value.partition(":")
    has_semver_prefix = bool(colon) and word.strip().lower() == "semver"
    version_range = range_of(strategy.value) if has_semver_prefix else ""
    if version_range in ("", entry.constraint):
        return
    suggested_range = version_range
    # A tag must match both ranges, but a range with alternatives (`||`) cannot be combined with
    # another.
    if entry.constraint and "||" not in version_range:
        suggested_range = f"{entry.constraint} {version_range}"
    message = (
        f"{strategy.value!r} works in Image Update, but AIU reads it as semver without a constraint"
    )
    hint = f"use {entry_with(entry, suggested_range)} in image-list, and set {strategy.key}: semver"
    yield strategy.key, "info", message, hint


def _unusable_alias(alias: str) -> Remark:
    """Return a remark about an alias that cannot begin an annotation name, such as `acme/web`.

    For `acme/web`, AIU 0.x reads the keys of `acme_web`, and later versions those of `acme/web`.
    The remark suggests a new alias.
    """
    without_slashes = alias.replace("/", "-")
    if ALIAS.fullmatch(without_slashes):
        message = (
            f"the alias {alias!r} has a '/', which annotation names cannot contain: its keys begin"
            f" with {alias.replace('/', '_')!r}, and AIU 1.0 and later does not find them"
        )
        hint = f"use {without_slashes}=<image>, and {without_slashes}.<key> for its keys"
        return "image-list", "info", message, hint
    message = (
        f"the alias {alias!r} cannot be the start of an annotation name, so its per-image keys are"
        " not found"
    )
    hint = "use only letters, digits, '-', '_', and '.', and begin with a letter or digit"
    return "image-list", "warning", message, hint


def _helm_keys(entry: Entry, own_settings: Mapping[str, Setting]) -> Iterator[Remark]:
    """Yield mistakes in an entry's Helm annotations, such as `web.helm.image-tag`.

    Their values should be the names of Helm parameters (`image.tag`), but people also use the
    parameters' values (`v1.2`). `own_settings` are the entry's settings.
    """
    name, tag, spec, digest = (
        own_settings[f"helm.image-{key}"] for key in ("name", "tag", "spec", "digest")
    )
    yield from _helm_key(name, "image.repository", entry)
    yield from _helm_key(tag, "image.tag", entry)
    yield from _helm_key(spec, "image", entry)
    yield from _helm_key(digest, "image.digest", entry)
    if spec and is_tag_key(spec.value):
        message = (
            f"{spec.key} takes the whole reference (name:tag), but {spec.value!r} looks like a key"
            " for the tag"
        )
        yield spec.key, "warning", message, f"use {key_of(entry, 'helm.image-tag')}: {spec.value}"
    elif not spec and tag and is_name_key(tag.value):
        message = f"{tag.key} takes the tag, but {tag.value!r} looks like a key for the name"
        are_swapped = bool(name) and is_tag_key(name.value)
        if are_swapped:
            hint = f"use {tag.key}: {name.value} and {name.key}: {tag.value}"
            yield tag.key, "error", message, hint
        else:
            yield tag.key, "warning", message, "use the key for the tag"


def _helm_key(setting: Setting, sample: str, entry: Entry) -> Iterator[Remark]:
    """Yield the problem with a Helm annotation whose value does not look like the name of a Helm
    parameter, such as `image.tag`.

    `sample` is an example of a valid value.
    """
    key = setting.key
    value = setting.value
    fix = "use the Helm parameter's name instead"
    as_in_chart = f"for example, {sample}, or the name that the chart uses"
    path = value.removeprefix("$").lstrip(".")
    is_an_image = is_image(value, entry)  # None: it could be an image or a parameter name
    if path.startswith("Values."):
        message = f"{key}: {value!r} is template syntax"
        yield key, "error", message, f"use {path.removeprefix('Values.')}"
    elif is_tag(value):
        yield key, "error", f"{key}: {value!r} is a tag; {fix}", as_in_chart
    elif is_an_image:
        yield key, "error", f"{key}: {value!r} is an image; {fix}", as_in_chart
    elif is_an_image is None:
        yield key, "warning", f"{key}: {value!r} looks like an image; {fix}", as_in_chart
    elif "." in value and any(part.isdigit() for part in value.split(".")):
        message = f"{key}: {value!r} uses a number as a key, not as a list index"
        places = re.sub(r"\.([0-9]+)(?=\.|$)", r"[\1]", value)
        yield key, "warning", message, f"use {places} for a list index"


def _several_kinds(
    app: Application,
    entry: Entry,
    own_settings: Mapping[str, Setting],
) -> Iterator[Remark]:
    """Yield a warning if an image has keys for several source types, such as `helm.image-tag` and
    `kustomize.image-name`.

    AIU 0.x uses the keys for the Application's type; 1.x rejects the Application.
    """
    key_of_kind: dict[str, str] = {}  # one key of each kind: "helm" → "web.helm.image-tag"
    for kind in ("helm", "kustomize", "plugin"):
        for key, setting in own_settings.items():
            if setting and key.startswith(f"{kind}."):
                key_of_kind[kind] = setting.key
    if len(key_of_kind) < 2:  # only one type, or none
        return
    target = app.annotations.get("write-back-target", "")
    if "kustomization" in target and "helmvalues" in target:  # the Application writes both types
        return

    message = (
        f"{entry.text!r} has keys for several types ({' and '.join(key_of_kind.values())}), but"
        " only the keys for the Application's type are used"
    )
    hint = "keep only the keys for the Application's type (spec.source)"
    removable_keys = dict(key_of_kind)
    kinds_in_use = {source.kind.lower() for source in app.sources} & key_of_kind.keys()
    if len(kinds_in_use) == 1:  # with several types, it is unclear which keys are used
        (kind_in_use,) = kinds_in_use
        hint = f"keep the {kind_in_use}.… keys"
        del removable_keys[kind_in_use]
    first_key = next(iter(removable_keys.values()))
    yield first_key, "warning", message, hint


def _reading_mistakes(app: Application, readings: Iterable[EntryReading]) -> Iterator[Remark]:
    """Yield mistakes that show only in the entries' settings as read, with the defaults applied.

    These are a `tag-order` that does not fit the current tag, and a Helm parameter that is set as
    both the name and the tag of an image.
    """
    for reading in readings:
        yield from _tag_order_mistakes(app, reading)
        keys = reading.keys
        is_same_key = keys.name != "" and keys.name == keys.tag
        if is_same_key and not keys.spec:
            message = (
                f"for {reading.entry.text!r}, helm.image-name and helm.image-tag are both"
                f" {keys.name!r}"
            )
            hint = f"use {_alias_of(reading)}.helm.image-spec: {keys.name}"
            yield "image-list", "error", message, hint


def _tag_order_mistakes(app: Application, reading: EntryReading) -> Iterator[Remark]:
    """Yield a warning if `tag-order` does not work for a current tag.

    Either the order does not match the tag, or it compares the digits of a commit ID, which have no
    meaningful order.
    """
    policy = reading.policy
    rules = rules_of(policy)
    if not policy.tag_order or not rules.ordered:
        return
    image_list = read_image_list(app.annotations.get("image-list", ""))
    own_settings = settings(index(app.annotations), image_list.prefixes(reading.entry))
    key = own_settings["tag-order"].key
    tag_order = parse_tag_order(policy.tag_order)
    for tag in _current_tags(app, reading):
        violated_rule, why = rules.objection(tag, policy)
        if violated_rule == "tag-order":
            hint = (
                "fix the pattern: until it matches the current tag, any tag that matches the"
                " pattern will replace the current one"
            )
            yield key, "warning", f"{key}: {why}, which is the current tag", hint
            continue
        commit = commit_in(tag_order, tag)
        if commit:
            message = (
                f"{key}: the current tag {tag} contains the commit ID {commit}, "
                "whose digits have no order"
            )
            hint = "match only the number that increases: regexp:-(?P<build>[0-9]+)$"
            yield key, "warning", message, hint


def _current_tags(app: Application, reading: EntryReading) -> Iterable[str]:
    """Return the distinct tags of an entry's image that are running or set in the Application's own
    source.
    """
    tags = []
    references = list(app.live)
    for source in app.sources:
        references += source.images
    for reference in references:
        image = live_image(reference)
        if image and image.identity == reading.entry.image.identity:
            tags.append(image.tag)

    tag_parameter = reading.keys.tag or "image.tag"
    for source in app.sources:
        tags += [
            parameter.value for parameter in source.parameters if parameter.name == tag_parameter
        ]
    return dict.fromkeys(tag for tag in tags if tag)


def _shared_helm_values(subscriptions: Iterable[Subscription]) -> Iterator[Remark]:
    """Yield an error for two images that are written to the same Helm value, because each image's
    events would undo the other's changes.
    """
    entry_of_place: dict[tuple[str, str], str] = {}  # by file and key
    for sub in subscriptions:
        key = _helm_value(sub)
        if not key:
            continue
        other_entry = entry_of_place.setdefault((sub.path, key), sub.entry.text)
        if other_entry != sub.entry.text:
            hint = f"set {_alias_of(sub)}.helm.image-tag and .helm.image-name to separate keys"
            message = f"{other_entry!r} and {sub.entry.text!r} are both written to {key}"
            yield "image-list", "error", message, hint


def _conflicting_rules(subscriptions: Iterable[Subscription]) -> Iterator[Remark]:
    """Yield a warning for two entries that write the same image to the same place under different
    rules.
    """
    first_with_place: dict[tuple[str, str, str], Subscription] = {}  # by path, place, and image
    for sub in subscriptions:
        place = _kustomize_entry(sub) or _containers(sub)
        if not place:
            continue
        key_of_place = (sub.path, place, sub.entry.image.identity)
        other_sub = first_with_place.setdefault(key_of_place, sub)
        if _rules(other_sub) != _rules(sub):
            message = (
                f"{other_sub.entry.text!r} and {sub.entry.text!r} both write {place}, but under"
                " different rules: a tag that either one admits is deployed by both"
            )
            kind = "manifests" if sub.target == "manifests" else "kustomize"
            key = f"{_alias_of(sub)}.{kind}.image-name"
            hint = f"give both the same rules, or set a different name for each with {key}"
            yield "image-list", "warning", message, hint


def _kustomize_entry(sub: Subscription) -> str:
    """Return a description of the kustomization entry that the tag is written to, or "" if the tag
    is written elsewhere.
    """
    in_override = sub.target in ("override", "file") and sub.source.kind == "Kustomize"
    if not in_override and sub.target != "kustomization":
        return ""
    return f"the entry for {sub.keys.kustomize_name or sub.entry.image.name}"


def _containers(sub: Subscription) -> str:
    """Return a description of the containers that receive the tag, or "" if the tag is written
    elsewhere.
    """
    if sub.target != "manifests":
        return ""
    return f"the containers for {sub.keys.manifests_name or sub.entry.image.name}"


def _alias_of(reading: EntryReading | Subscription) -> str:
    """Return the entry's alias for use in messages, or a placeholder if it has none."""
    return reading.entry.alias or "<alias>"


def _helm_value(sub: Subscription) -> str:
    """Return the key of the Helm value that the tag is written to, or "" if the tag is written
    elsewhere.
    """
    in_override = sub.target in ("override", "file") and sub.source.kind == "Helm"
    if not in_override and sub.target != "helmvalues":
        return ""
    return sub.keys.spec or sub.keys.tag or "image.tag"


def shared_place_findings(subscriptions: Iterable[Subscription]) -> tuple[Finding, ...]:
    """Return a problem for each place in Git to which two Applications write different images, or
    the same image under different rules.

    Each Application deploys what the other writes, regardless of its own rules.
    """
    first_with_place: dict[tuple[str, ...], Subscription] = {}  # the first to write to each place
    # one problem per place, no matter how many Applications share it
    problems: dict[tuple[str, ...], Finding] = {}
    for sub in subscriptions:
        key = _helm_value(sub) or _kustomize_entry(sub) or _containers(sub)
        if not key or sub.target == "override":  # an override file belongs to a single Application
            continue
        place = (sub.repo, sub.base, sub.head_template, sub.path, key)
        other_sub = first_with_place.setdefault(place, sub)
        is_same_application = other_sub.application.key == sub.application.key
        if is_same_application or place in problems:
            continue
        remark = _conflict(sub, other_sub, f"{key} in {sub.path or '/'}")
        if remark:
            problems[place] = _finding(sub.application, *remark)
    return tuple(problems.values())


def _conflict(sub: Subscription, other_sub: Subscription, location: str) -> Remark | None:
    """Return the conflict between two Subscriptions whose Applications write to the same place in
    Git (`location`), or None if both write the same image under the same rules.
    """
    neighbour = other_sub.application.key
    if other_sub.entry.image.identity != sub.entry.image.identity:
        message = (
            f"{sub.entry.text!r} and {other_sub.entry.text!r} of {neighbour} are both written to"
            f" {location}"
        )
        return "image-list", "error", message, "use a separate key or file for each"
    if _rules(other_sub) == _rules(sub):
        return None
    message = (
        f"{neighbour} also writes {location}, but under different rules: a tag that either"
        " one admits is deployed by both"
    )
    hint = "give both the same rules, or use a separate file for each"
    return "image-list", "warning", message, hint


def _rules(sub: Subscription) -> tuple[object, ...]:
    """Return the rules that decide which tags are written."""
    policy = sub.policy
    return (
        policy.strategy,
        policy.constraints,
        policy.allow,
        policy.ignore,
        policy.platforms,
        policy.tag_order,
    )


def _target_mistakes(subscriptions: Iterable[Subscription]) -> Iterator[Remark]:
    """Yield mistakes in write-back targets: a target without a key for the tag, a values file that
    the source does not use, or a target that does not suit the source's type.
    """
    for sub in subscriptions:
        alias = _alias_of(sub)
        has_tag_key = bool(sub.keys.tag or sub.keys.spec)
        if sub.target == "helmvalues" and sub.keys.name and not has_tag_key:
            message = (
                f"helm.image-name is set for {sub.entry.text!r}, but there is no key for the tag"
            )
            yield "write-back-target", "error", message, f"set {alias}.helm.image-tag"
        path_from_root = _path_from_root(sub) if sub.target == "helmvalues" else ""
        if path_from_root:
            message = (
                f"{sub.path!r} is not one of the source's valueFiles: paths are relative to the"
                " source's path"
            )
            yield "write-back-target", "error", message, f"use helmvalues:/{path_from_root}"
        is_plugin = sub.source.kind == "Plugin" and sub.target in ("override", "file")
        if is_plugin and not has_tag_key:
            message = (
                f"no annotation specifies the plugin variable for {sub.entry.text!r}, so the tag"
                " cannot be written"
            )
            hint = (
                f"set {alias}.plugin.image-tag or {alias}.plugin.image-spec to the variable's name"
            )
            yield "image-list", "error", message, hint
        if sub.target == "override" and sub.source.kind == "Directory" and sub.method == "git":
            message = "the source is a plain directory, which has no override file"
            yield "write-back-target", "error", message, "use write-back-target: manifests"


def _head_template_mistakes(app: Application) -> Iterator[Remark]:
    """Yield an error if a head branch template is invalid."""
    try:
        _, head_template = git_branch(app.annotations.get("git-branch", ""))
    except Malformed:  # already reported as a flaw
        return
    if not head_template:
        return
    try:
        check_branch_template(head_template)
    except Malformed as error:
        hint = "use a Go text/template without sprig functions"
        yield "git-branch", "error", f"git-branch: {error.message}", hint


def _path_from_root(sub: Subscription) -> str:
    """Return the path of a `helmvalues` target as typed, if it was probably meant to start at the
    repository's root, as people expect (AIU issue 1518), or else "".

    That is likely if the source uses a values file with this path from the root, but none with this
    path from the source's folder.
    """
    if not sub.source.path or sub.repo != sub.source.repo:
        return ""
    folder = f"{sub.source.path}/"
    if not sub.path.startswith(folder):
        return ""
    value_files = set()
    for name in sub.source.value_files:
        with suppress(TaskError):  # the file is outside the repository
            value_files.add(inside(sub.source.path, name))
    path_as_typed = sub.path.removeprefix(folder)
    is_file_from_root = path_as_typed in value_files and sub.path not in value_files
    return path_as_typed if is_file_from_root else ""

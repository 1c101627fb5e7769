"""Renders a head branch's name from the template after the colon in `git-branch`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from task.errors import Malformed
from task.model import Image
from task.templates.change import Change
from task.templates.go_template.values import FailedTemplate

LONGEST = 255  # bytes; AIU truncates longer names
HINT = "build the name from fields without such characters, or use {{.SHA256}}"
SAMPLE = Change(Image("ghcr.io/acme/api", "ghcr.io", "acme/api"), "api", "1.0.0", "1.0.1")
FORBIDDEN = " ~^:?*[\\"
DELETE = 0x7F


@dataclass(frozen=True)
class AppFields:
    """The template fields that are not about images."""

    name: str
    namespace: str
    repo: str = ""
    branch: str = ""  # base
    target: str = ""  # the path of the write-back target, or of the kustomization's base folder


def branch_name(template: str, changes: Sequence[Change], app: AppFields) -> str:
    """Return the name of the head branch (the branch that a pull request proposes): the template's
    output, such as `image-updater-web-1.2`.

    Raises Malformed if the template fails, or produces a name that Git rejects.
    """
    try:
        name = rendered_branch(template, changes, app)
    except Malformed as error:
        raise Malformed(error.message, error.hint or FIELDS) from error
    if not name:
        raise Malformed(f"the template {template!r} produces an empty branch name", FIELDS)
    objection = objection_to_branch(name)
    if objection:
        raise Malformed(
            f"the template produces {name!r}, which is not a valid branch name: {objection}",
            HINT,
        )
    return name


def rendered_branch(template: str, changes: Sequence[Change], app: AppFields) -> str:
    """Return the template's output, truncated to 255 bytes as in AIU, but only at a character
    boundary. The output of a template without `{{` is the template itself.
    """
    text = _template_output(template, changes, app) if "{{" in template else template
    first_bytes = text.encode("utf-8", "replace")[:LONGEST]
    return first_bytes.decode("utf-8", "ignore")  # drop the bytes of a truncated character


def _template_output(template: str, changes: Sequence[Change], app: AppFields) -> str:
    """Return the output of a Go template for these changes."""
    # Imported lazily, because most branch names are not templates, and the template language is
    # slow to import.
    from task.templates.go_template.template import parse  # noqa: PLC0415

    return parse(template).render(_branch_template_data(changes, app))


def _branch_template_data(changes: Sequence[Change], app: AppFields) -> Mapping[str, Any]:
    """Return the same data that AIU passes to its templates. The order of the fields matters if a
    template prints an entire struct.

    AIU itself sets `.AppName`, `.AppNamespace`, and `.TargetKey` only in pull-request mode, and
    templates that use these fields fail in AIU v0.
    """
    return {
        "Images": [
            {
                "Name": change.name,
                "Alias": change.alias,
                "OldTag": change.old,
                "NewTag": change.new,
            }
            for change in changes
        ],
        "SHA256": changes_digest(changes),
        "AppName": app.name,
        "AppNamespace": app.namespace,
        "TargetKey": target_key(app),
    }


def changes_digest(changes: Sequence[Change]) -> str:
    """Return the template field `.SHA256`: AIU's digest of `name-old-new,` for each change, in
    image-list order.
    """
    return _sha256("".join(f"{change.name}-{change.old}-{change.new}," for change in changes))


def target_key(app: AppFields) -> str:
    """Return the template field `.TargetKey`: as in AIU v1.3, eight digits that differ between
    write-back targets.
    """
    return _sha256(f"{app.repo}|{app.branch}|{app.target}")[:8]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def check_branch_template(template: str) -> None:
    """Raise Malformed if the template cannot be parsed, refers to an unknown field, or is an
    invalid branch name without `{{`.

    The template is rendered for one sample change. Failures that depend on the actual change (such
    as an index, or the characters in a tag) are not reported.
    """
    app = AppFields("app", "argocd")
    if "{{" not in template:
        branch_name(template, (), app)
        return
    try:
        _template_output(template, (SAMPLE,), app)
    except FailedTemplate as error:
        has_unknown_field = "can't evaluate field" in error.message
        if has_unknown_field:
            raise Malformed(error.message, FIELDS) from None


FIELDS = (
    "the fields are .Images (each with .Name, .Alias, .OldTag, and .NewTag), .SHA256, .AppName,"
    " .AppNamespace, and .TargetKey"
)


def objection_to_branch(name: str) -> str:
    """Return the reason why Git rejects this branch name, or "" if Git accepts it.

    The rules are those of `git check-ref-format --branch`.
    """
    if not name:
        return "it is empty"
    if len(name.encode("utf-8", "surrogatepass")) > LONGEST:
        return f"it is longer than {LONGEST} bytes"
    for letter in name:
        is_control = letter < " " or ord(letter) == DELETE
        is_surrogate = "\ud800" <= letter <= "\udfff"
        if letter in FORBIDDEN or is_control or is_surrogate:
            return f"it contains {letter!r}"
    if name == "HEAD":
        return "HEAD means the current commit"
    if name.startswith("-"):
        return "it begins with '-'"
    for pair in ("..", "@{", "//"):
        if pair in name:
            return f"it contains {pair!r}"
    if name.startswith("/") or name.endswith(("/", ".")):
        return "it begins or ends with '/', or ends with '.'"
    for part in name.split("/"):
        if part.startswith("."):
            return f"{part!r} begins with '.'"
        if part.endswith(".lock"):
            return f"{part!r} ends with '.lock'"
    return ""

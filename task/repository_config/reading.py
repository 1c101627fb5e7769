"""Reads `.image-update/config` and the files it refers to: commit message templates and public
keys.

Every mistake is reported as an error with a line number, because a misread rule would silently have
no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import TypeVar, get_args

from task.editors.file_text import text_of
from task.editors.yaml.tree import Node, pairs, parse, refuse_odd_breaks, resolved
from task.errors import Malformed, TargetError
from task.model import Files, Grouping, Wishes, Writes
from task.policy.strategies import parse_tag_order
from task.proof import Demand, Identity
from task.repository_config.config import (
    EVERYTHING,
    MISTAKEN,
    NO_CONFIG,
    PATH,
    Freeze,
    Match,
    RepositoryConfig,
    Rule,
    name_glob,
    path_glob,
    schedule,
    seconds_of,
    zone_of,
)
from task.templates.commit_message import KEY as TRAILER_KEY
from task.templates.commit_message import LONGEST as LONGEST_TEMPLATE
from task.templates.commit_message import check_template
from task.text import is_address, is_name, shortened

T = TypeVar("T")
LARGEST = 256 * 1024  # characters
LONGEST = 500  # characters in a value
MOST = {
    "rules": 200,
    "freezes": 50,
    "globs": 1000,
}  # in the whole file
MOST_ITEMS = 100  # in a list of labels, people, or trailers
MOST_MISTAKES = 100  # mistakes reported per file
GROUPS: Mapping[str, Grouping] = {name: name for name in get_args(Grouping)}
_TAGS = ("", "!", "tag:yaml.org,2002:str")  # the YAML tags for a string
_TRUE = ("true", "True", "TRUE")
_FALSE = ("false", "False", "FALSE")
_DEMANDS = ("writes", "signatures", "provenance")
_WISHES = (
    "commit",
    "pullRequests",
    "pinDigest",
    "tagOrder",
    "pushOptions",
    "minimumAge",
    *_DEMANDS,
)
_FILE = ("version", *_WISHES, "rules", "freezes", "check", "memorySigners", "branchPrefix")
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}(/[A-Za-z0-9][A-Za-z0-9._-]{0,49}){0,3}")
REFUSED = ("not-newer", "superseded")
_COMMIT = ("authorName", "authorEmail", "template", "trailers", "signOff")
_REQUESTS = ("enabled", "autoMerge", "draft", "group", "labels", "reviewers", "assignees")
_WRITES = ("paths", "branches")
_SIGNERS = ("keys", "identities")
_CLAIMS = ("sourceRepository", "ref", "workflow", "builder")
_IDENTITY = ("subject", "issuer")
_RULE = ("match", *_WISHES)
_FREEZE = ("schedule", "duration", "timeZone", "reason", "match")
_MATCH = ("applications", "projects", "paths", "images")
# trailers that every commit has; compared case-insensitively
_OWN_TRAILERS = (
    "application",
    "promoted-from",
    "proof",
)
NOT_READ = "is not read: the config file is"
_EFFECT = "nothing will be written to this branch until the repository's owners fix the file"


_FOLDER = "040000"  # a folder's mode in Git


def config_in(files: Files) -> RepositoryConfig:
    """Return the config found in a snapshot's files, or `NO_CONFIG` if there is none.

    Raises `TargetError`, with the line, if the config contains a mistake. A file that people might
    mistake for the config, such as `.image-update/config.yaml`, is also an error, because the
    reviews and freezes that it requires would have no effect.
    """
    for path in MISTAKEN:
        if _is_file(files, path):
            raise TargetError(
                f"{NOT_READ} {PATH}",
                hint=f"rename it to {PATH}, or delete it; {_EFFECT}",
                subject=path,
            )
    if not _is_file(files, PATH):
        return NO_CONFIG
    with of_config():
        return read_config(text_of(files, PATH) or "")


def _is_file(files: Files, path: str) -> bool:
    """Return whether the snapshot has a file, rather than a folder, at this path.

    A folder that contains state files may have the name of a config file.
    """
    return path in files and files[path].mode != _FOLDER


@contextmanager
def of_config() -> Iterator[None]:
    """Turn a `TargetError` raised inside the `with` block into an error about the config file. Its
    hint adds that nothing will be written until the file is fixed.
    """
    try:
        yield
    except TargetError as error:
        hint = f"{error.hint}; {_EFFECT}" if error.hint else _EFFECT
        raise TargetError(error.message, hint=hint, subject=PATH) from error


@lru_cache(maxsize=8)  # a branch that has moved is read again, but its config is usually the same
def read_config(text: str) -> RepositoryConfig:
    """Parse the text of a config file, and return the config.

    Raises a `TargetError` with the first mistake, its line, and the fix.
    """
    config, mistakes = check_config(text)
    if mistakes:
        raise mistakes[0]
    return config


def check_config(text: str) -> tuple[RepositoryConfig, tuple[TargetError, ...]]:
    """Parse the text of a config file, and return the config and all mistakes in it, each with its
    line and the fix.

    A config with mistakes may be used only by `lint`: rules and freezes keep their positions, but a
    rule with an invalid `match` applies to everything. At most `MOST_MISTAKES` mistakes are
    returned.
    """
    file = _File(text)
    config = NO_CONFIG
    try:
        config = _whole_config(_Value(_root_node(text), "", file))
    except TargetError as error:
        file.mistakes.append(error)
    except _Enough:  # the maximum number of mistakes has been reached
        pass
    return config, tuple(file.mistakes)


def _root_node(text: str) -> Node:
    """Return the root node of the file's only YAML document.

    Raises `TargetError` if the file is too large or empty, or is not one YAML document.
    """
    if len(text) > LARGEST:
        raise TargetError(
            f"line 1: the file is larger than {LARGEST // 1024} KiB",
            hint="use fewer rules",
        )
    try:
        tree = parse(text)
    except TargetError as error:
        raise _syntax_error(error, text) from error
    refuse_odd_breaks(tree)
    if tree.root.null:
        raise TargetError(
            "line 1: the file is empty",
            hint="put `version: 1` on the first line, or delete the file",
        )
    if len(tree.roots) > 1:
        line = tree.line(tree.roots[1])
        raise TargetError(
            f"line {line}: unexpected second YAML document",
            hint="put everything in one document",
        )
    return tree.root


def _syntax_error(error: TargetError, text: str) -> TargetError:
    """Return the YAML parser's error with a hint. Indentation with a tab gets a dedicated
    message.
    """
    match = re.search(r", line (\d+)$", error.message)
    if match:
        number = int(match[1])
        # The reported line number may be beyond the last line, so this list may be empty.
        lines_from_error = text.split("\n")[number - 1 :]
        if lines_from_error and re.match(r" *\t", lines_from_error[0]):
            message = f"line {match[1]} is indented with a tab"
            return TargetError(message, hint="indent with spaces, as YAML requires")
    return TargetError(error.message, hint="fix the YAML")


class _Enough(Exception):
    """Raised when the maximum number of mistakes has been reached."""


@dataclass
class _File:
    """The config file's text, and everything found in it so far."""

    text: str
    mistakes: list[TargetError] = field(default_factory=list)
    globs: int = 0
    # each path, with the first line that refers to it
    templates: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Value:
    """A node in the config file.

    A node's name in messages is its path in the file, such as `rules[2].match.paths`. The name ""
    refers to the whole file.
    """

    node: Node
    name: str
    file: _File

    def at(self, key: str, node: Node) -> _Value:
        """Return the value for the node under `key` in this mapping."""
        return _Value(node, f"{self.name}.{key}".lstrip("."), self.file)

    @property
    def line(self) -> int:
        """The line number at which the value starts."""
        return self.file.text.count("\n", 0, self.node.start) + 1

    def mistake(self, what: str, hint: str) -> TargetError:
        """Return an error about this value, including its line."""
        return TargetError(f"line {self.line}: {what}", hint=hint)

    def record(self, mistake: TargetError) -> None:
        """Record a mistake, so that reading can continue. Raises `_Enough` if there are too many
        mistakes.
        """
        self.file.mistakes.append(mistake)
        if len(self.file.mistakes) >= MOST_MISTAKES:
            raise _Enough

    def fields(self, allowed: tuple[str, ...]) -> dict[str, _Value]:
        """Return the mapping's values by key. Keys that are not in `allowed` are recorded as
        mistakes.

        A misspelled key is treated as the allowed key that it resembles, so that the allowed key is
        not reported as missing.
        """
        values_by_key: dict[str, _Value] = {}
        values_by_meant_key: dict[str, _Value] = {}  # values of misspelled keys
        children = self.children()
        key_nodes = {key_node.value: key_node for key_node, _value in pairs(resolved(self.node))}
        place = f" in {self.name}" if self.name else ""
        for name, value in children.items():
            if name in allowed:
                values_by_key[name] = value
                continue
            hint = f"use {', '.join(allowed)}"
            similar_keys = get_close_matches(name, allowed, n=1)
            if similar_keys:
                meant_key = similar_keys[0]
                values_by_meant_key[meant_key] = self.at(meant_key, value.node)
                hint = f"did you mean {meant_key}? the keys are {', '.join(allowed)}"
            key = self.at(name, key_nodes[name])  # the mistake refers to the key's line
            self.record(key.mistake(f"unknown key {shortened(name, 50)!r}{place}", hint))
        return {**values_by_meant_key, **values_by_key}  # correctly spelled keys take precedence

    def children(self) -> dict[str, _Value]:
        """Return the values of a mapping by key. Keys that are not words, or that appear twice, are
        recorded as mistakes.

        Raises `TargetError` if this is not a mapping.
        """
        node = resolved(self.node)
        parent = self.name or "the file"
        if node.kind != "mapping" or node.tag:
            raise self.mistake(f"{parent} is not a mapping", "use `key: value` lines")
        children: dict[str, _Value] = {}
        for key_node, child_node in pairs(node):
            key = self.at("", key_node)  # used only for its line
            name = key_node.value
            if key_node.kind != "scalar" or key_node.tag not in _TAGS:
                self.record(key.mistake(f"a key in {parent} is not a word", "use a plain word"))
            elif name in children:
                message = f"{shortened(name, 50)!r} appears twice in {parent}"
                self.record(key.mistake(message, "keep one"))
            else:
                children[name] = self.at(name, child_node)
        return children

    def items(self, most: int = LARGEST, hint: str = "remove some") -> tuple[_Value, ...]:
        """Return the items of a list.

        Raises `TargetError` if this is not a list, or if it has more than `most` items. In the
        latter case, the error's hint is `hint`.
        """
        node = resolved(self.node)
        if node.kind != "sequence" or node.tag:
            raise self.mistake(
                f"{self.name} is not a list", "put one item on each line, after `- `"
            )
        if len(node.children) > most:
            raise self.mistake(f"{self.name} has more than {most} entries", hint)
        return tuple(_Value(item, f"an entry of {self.name}", self.file) for item in node.children)

    def texts(self, most: int = MOST_ITEMS) -> tuple[str, ...]:
        """Return the strings in a list, without duplicates. An item that is not a string is
        recorded as a mistake and treated as "".
        """
        texts = [_try(value, _Value.text, "") for value in self.items(most)]
        return tuple(dict.fromkeys(texts))

    def text(self) -> str:
        """Return the string, without leading and trailing whitespace.

        Raises `TargetError` if this is not a string, or if it is empty or too long.
        """
        node = resolved(self.node)
        is_scalar = node.kind == "scalar"
        is_quoted = bool(node.style)
        if is_scalar and is_quoted and not node.value.strip():
            raise self.mistake(f"{self.name} is empty", "put a string between the quotes")
        if not is_scalar or node.tag not in _TAGS or node.null:  # null: no value, or `~`
            raise self.mistake(f"{self.name} is not a string", 'quote it: "…"')
        if len(node.value) > LONGEST:
            raise self.mistake(
                f"{self.name} has more than {LONGEST} characters", "use a shorter string"
            )
        return node.value.strip()

    def parsed(self, parse: Callable[[str], T]) -> T:
        """Return the result of calling `parse` with the value's text.

        A `Malformed` from `parse` becomes a `TargetError` about this value.
        """
        try:
            return parse(self.text())
        except Malformed as error:
            raise self.mistake(f"{self.name}: {error.message}", error.hint) from error

    def flag(self) -> bool:
        """Return the value of a YAML boolean. Raises `TargetError` if this is not a boolean."""
        node = resolved(self.node)
        is_plain = node.kind == "scalar" and not node.style and not node.tag
        if is_plain and node.value in _TRUE:
            return True
        if is_plain and node.value in _FALSE:
            return False
        raise self.mistake(
            f"{self.name} is neither true nor false", "use true or false, without quotes"
        )


_NO_ITEMS: tuple[_Value, ...] = ()


def _try(value: _Value | None, read: Callable[[_Value], T], otherwise: T) -> T:
    """Return the result of calling `read` with a value.

    If the value is missing (None) or invalid, return `otherwise`. A mistake is recorded.
    """
    if value is None:
        return otherwise
    try:
        return read(value)
    except TargetError as error:
        value.record(error)
        return otherwise


def _fields(value: _Value | None, allowed: tuple[str, ...]) -> dict[str, _Value]:
    """Return a mapping's values by key, or an empty dict if the mapping is missing or invalid."""
    return _try(value, lambda value: value.fields(allowed), {})


def _whole_config(file: _Value) -> RepositoryConfig:
    """Return the config in the file's root value.

    Raises `TargetError` if the file has the wrong structure or version, and `_Enough` if it has too
    many mistakes.
    """
    fields = file.fields(_FILE)
    _check_version(file, fields.get("version"))
    rules = _numbered_items(fields, "rules")
    freezes = _numbered_items(fields, "freezes")
    prefix = _try(fields.get("branchPrefix"), _branch_prefix, None)
    return RepositoryConfig(
        wishes=replace(_wishes(fields), branch_prefix=prefix),
        rules=tuple(map(_rule, rules)),
        freezes=tuple(map(_freeze, freezes)),
        # Reading the wishes of the file and of its rules has also collected their templates.
        templates=tuple(file.file.templates.items()),
        memory_signers=_try(fields.get("memorySigners"), _memory_signers, None),
        refused=_refused_order_rules(fields.get("check")),
    )


def _check_version(file: _Value, version: _Value | None) -> None:
    """Record a mistake if the config file's `version` is missing or quoted. Raises `TargetError` if
    it is not 1.
    """
    if version is None:
        file.record(file.mistake("version is missing", "put `version: 1` on the first line"))
        return
    number = _try(version, _Value.text, "1")  # a mistake has already been recorded
    if number != "1":
        hint = "use `version: 1`; newer versions of the file need a newer Image Update"
        raise version.mistake(f"version {shortened(number, 50)!r} is not supported", hint)
    is_quoted = bool(resolved(version.node).style)
    if is_quoted:
        hint = "use the number, without quotes: version: 1"
        file.record(version.mistake("version is a string", hint))


def _numbered_items(fields: Mapping[str, _Value], key: str) -> list[_Value]:
    """Return the items of the list at this key, named by their position, such as `rules[2]`."""
    read_items = partial(_Value.items, most=MOST[key], hint="use wider globs")
    items = _try(fields.get(key), read_items, _NO_ITEMS)
    return [replace(item, name=f"{key}[{number}]") for number, item in enumerate(items, start=1)]


def _refused_order_rules(value: _Value | None) -> tuple[str, ...]:
    """Return the rules about the order of builds whose violation makes `check` fail, such as
    "superseded".

    `value` is the config's section `check`. An unknown rule is recorded as a mistake.
    """
    fields = _fields(value, ("refuse",))
    items = _try(fields.get("refuse"), partial(_Value.items, most=MOST_ITEMS), _NO_ITEMS)
    rules: dict[str, None] = {}  # used as an ordered set
    for item in items:
        rule = _try(item, _Value.text, None)
        if rule is None:  # not a string, which has already been recorded
            continue
        if rule not in REFUSED:
            hint = f"use {' or '.join(REFUSED)}"
            item.record(item.mistake(f"{item.name} is {shortened(rule, 50)!r}", hint))
        rules[rule] = None
    return tuple(rules)


def _rule(value: _Value) -> Rule:
    """Return the rule that a mapping describes. A rule without any settings is recorded as a
    mistake.
    """
    mistakes_before = len(value.file.mistakes)
    fields = _fields(value, _RULE)
    wishes = _wishes(fields)
    is_readable = len(value.file.mistakes) == mistakes_before
    if is_readable and wishes == Wishes():
        value.record(
            value.mistake(f"{value.name} has no rules", f"set one of {', '.join(_WISHES)}")
        )
    return Rule(match=_match(fields.get("match")), wishes=wishes, line=value.line)


def _freeze(value: _Value) -> Freeze:
    """Return the freeze (periods without deployments) that a mapping describes. A missing schedule,
    duration, or reason is recorded as a mistake.
    """
    fields_or_none = _try(value, lambda value: value.fields(_FREEZE), None)
    is_mapping = fields_or_none is not None  # if not, the mistake has already been recorded
    fields = fields_or_none or {}
    if is_mapping:
        for key in ("schedule", "duration", "reason"):
            if key not in fields:
                value.record(value.mistake(f"{value.name} has no {key}", f"set {key}: …"))
    cron_text = _try(fields.get("schedule"), lambda value: value.parsed(schedule), "")
    seconds = _try(fields.get("duration"), lambda value: value.parsed(seconds_of), 0)
    zone = _try(fields.get("timeZone"), lambda value: value.parsed(zone_of), zone_of("UTC"))
    reason = _try(fields.get("reason"), _Value.text, "")
    match = _match(fields.get("match"))
    return Freeze(
        schedule=cron_text,
        seconds=seconds,
        zone=zone,
        reason=" ".join(reason.split()),  # on one line
        match=match,
        line=value.line,
    )


def _match(value: _Value | None) -> Match:
    """Return the match, which determines what a rule or freeze applies to.

    If the match is missing or contains a mistake, return a match for everything. Mistakes are
    recorded.
    """
    if value is None:
        return EVERYTHING
    mistakes = value.file.mistakes
    mistakes_before = len(mistakes)
    fields = _fields(value, _MATCH)
    if not fields and len(mistakes) == mistakes_before:
        value.record(value.mistake(f"{value.name} is empty", f"set one of {', '.join(_MATCH)}"))

    globs_by_key: dict[str, tuple[str, ...]] = {}
    for key, field_value in fields.items():
        globs = _try(field_value, _globs, None)  # None after a mistake
        if globs == ():
            message = f"{field_value.name} is empty, so it matches nothing"
            value.record(field_value.mistake(message, 'use globs, such as ["team-a/*"]'))
        globs_by_key[key] = globs or ()

    has_mistake = len(mistakes) > mistakes_before
    if has_mistake:  # in this case, only `lint` uses the config (see `check_config`)
        return EVERYTHING
    return Match(
        applications=tuple(map(name_glob, globs_by_key.get("applications", ()))),
        projects=tuple(map(name_glob, globs_by_key.get("projects", ()))),
        paths=tuple(map(path_glob, globs_by_key.get("paths", ()))),
        images=tuple(map(name_glob, globs_by_key.get("images", ()))),
    )


def _globs(value: _Value) -> tuple[str, ...]:
    """Return the globs in a list. Raises `TargetError` if the file as a whole contains too many
    globs.
    """
    texts = value.texts(MOST["globs"])
    value.file.globs += len(texts)  # the number of globs in the whole file so far
    if value.file.globs > MOST["globs"]:
        raise value.mistake(f"the file has more than {MOST['globs']} globs", "use wider globs")
    return texts


def _wishes(fields: Mapping[str, _Value]) -> Wishes:
    """Return the wishes (settings for Applications) in these fields, which belong either to a rule
    or to the file's top level.

    A wish whose field is missing or invalid is None. The path of a commit message template is also
    recorded in the file's `templates`.
    """
    commit = _fields(fields.get("commit"), _COMMIT)
    requests = _fields(fields.get("pullRequests"), _REQUESTS)

    def read(
        key: str, read_value: Callable[[_Value], T], section: Mapping[str, _Value] = fields
    ) -> T | None:
        """Return the value of a field, or None if the field is missing or invalid."""
        return _try(section.get(key), read_value, None)

    template = read("template", _path, commit)
    if template:
        value = commit["template"]
        value.file.templates.setdefault(template, value.line)
    return Wishes(
        author_name=read("authorName", _account_name, commit),
        author_email=read("authorEmail", _email_address, commit),
        template=template,
        trailers=read("trailers", _trailers_of, commit),
        sign_off=read("signOff", _Value.flag, commit),
        pull_request=read("enabled", _Value.flag, requests),
        group=read("group", _grouping, requests),
        labels=read("labels", _Value.texts, requests),
        reviewers=read("reviewers", _Value.texts, requests),
        assignees=read("assignees", _Value.texts, requests),
        draft=read("draft", _Value.flag, requests),
        auto_merge=read("autoMerge", _Value.flag, requests),
        pin_digest=read("pinDigest", _Value.flag),
        tag_order=read("tagOrder", _tag_order),
        minimum_age=read("minimumAge", lambda value: value.parsed(seconds_of)),
        push_options=read("pushOptions", _push_options),
        writes=read("writes", _writes_of),
        signatures=read("signatures", _signatures),
        provenance=read("provenance", _provenance),
    )


def _account_name(value: _Value) -> str:
    """Return a commit author's name. Raises `TargetError` if Git does not accept the name."""
    text = value.text()
    if not is_name(text):
        hint = "remove < > and control characters; the address belongs in authorEmail"
        raise value.mistake(f"{value.name} is not a name that Git accepts", hint)
    return text


def _email_address(value: _Value) -> str:
    """Return a commit author's email address. Raises `TargetError` if it is invalid."""
    text = value.text()
    if not is_address(text):
        raise value.mistake(
            f"{value.name} is not an email address",
            "use only the address, such as bot@example.com",
        )
    return text


def _path(value: _Value) -> str:
    """Return the normalized path of a file in the repository, without empty parts or `.`.

    Raises `TargetError` if the path is outside the repository, or is the repository itself.
    """
    path = value.text()
    parts = path.split("/")
    leaves_repository = path.startswith("/") or ".." in parts
    is_root = path.strip("./") == ""  # such as `.` or `./`
    if leaves_repository or is_root or not path.isprintable():
        raise value.mistake(
            f"{value.name} is not a path within the repository",
            "use a path relative to the repository root",
        )
    return "/".join(part for part in parts if part not in ("", "."))


def _trailers_of(value: _Value) -> tuple[tuple[str, str], ...]:
    """Return the commit message trailers in a mapping. Invalid keys are recorded as mistakes."""
    children = value.children()
    if len(children) > MOST_ITEMS:
        raise value.mistake(f"{value.name} has more than {MOST_ITEMS} entries", "remove some")
    trailers = {}
    for key, child in children.items():
        trailers[key] = _try(child, _Value.text, "")
        if not TRAILER_KEY.fullmatch(key):
            hint = "use letters, digits, and dashes"
            value.record(child.mistake(f"{value.name}: {shortened(key, 50)!r} is not a key", hint))
        elif key.lower() in _OWN_TRAILERS:
            message = f"{value.name}: each commit already has the trailer {key}"
            value.record(child.mistake(message, "use another key"))
    return tuple(trailers.items())


def _grouping(value: _Value) -> Grouping:
    """Return which updates share a pull request, such as "project"."""
    text = value.text()
    if text not in GROUPS:
        raise value.mistake(
            f"{value.name}: {shortened(text, 50)!r} is not a group", f"use {', '.join(GROUPS)}"
        )
    return GROUPS[text]


def _tag_order(value: _Value) -> str:
    """Check the syntax of a `tagOrder`, and return the value as written."""
    value.parsed(parse_tag_order)
    return value.text()


def _push_options(value: _Value) -> tuple[str, ...]:
    """Return the options for `git push`."""
    texts = value.texts()
    if not all(map(str.isprintable, texts)):
        raise value.mistake(
            f"{value.name}: a string has a line break or another control character", "remove it"
        )
    return texts


def _writes_of(value: _Value) -> Writes:
    """Return where Applications may write: globs of paths, of branches, or both.

    Raises `TargetError` if there are none, or if a glob begins with a slash.
    """
    fields = value.fields(_WRITES)
    if not fields:
        raise value.mistake(f"{value.name} is empty", f"set one of {', '.join(_WRITES)}")
    globs_by_key = {key: _globs(field_value) for key, field_value in fields.items()}
    for key, field_value in fields.items():
        if any(glob.startswith("/") for glob in globs_by_key[key]):
            message = f"{field_value.name}: a glob that begins with a slash matches nothing"
            hint = "remove the slash: globs start at the repository's root"
            raise field_value.mistake(message, hint)
    return Writes(
        paths=globs_by_key.get("paths"),
        branches=globs_by_key.get("branches"),
        line=value.line,
    )


def _signatures(value: _Value) -> Demand:
    """Return the demand that images be signed by one of these signers."""
    keys, identities = _signers(value, value.fields(_SIGNERS))
    return Demand("signature", keys, identities, line=value.line)


def _branch_prefix(value: _Value) -> str:
    """Return the prefix for the names of head branches (the branches of pull requests), such as
    `bots/image-update`. Raises `TargetError` if no branch name can start with this prefix.
    """
    text = value.text()
    has_forbidden_part = ".." in text or text.endswith((".lock", "."))
    if not _PREFIX.fullmatch(text) or has_forbidden_part:
        raise value.mistake(
            f"{value.name} cannot be the start of a branch name",
            "use letters, digits, dashes, and single slashes, such as bots/image-update",
        )
    return text


def _memory_signers(value: _Value) -> Demand | None:
    """Return the demand that the memory branch (which stores the state files) be signed with one of
    these public keys, given as paths in the repository.

    Return None if the list is empty.
    """
    paths = tuple(dict.fromkeys(map(_path, value.items(MOST_ITEMS))))
    return Demand("signature", paths, line=value.line) if paths else None


def _provenance(value: _Value) -> Demand:
    """Return the demand that images have provenance with these claims (such as the source
    repository), signed by one of these signers.

    Raises `TargetError` if there are no claims, or no signers.
    """
    fields = value.fields((*_SIGNERS, *_CLAIMS))
    claims = {key: fields[key].text() for key in _CLAIMS if key in fields}
    if not claims:
        raise value.mistake(f"{value.name} has no requirement", f"set one of {', '.join(_CLAIMS)}")
    keys, identities = _signers(value, fields)
    return Demand(
        "provenance",
        keys,
        identities,
        source_repository=claims.get("sourceRepository", "").removesuffix(".git"),
        ref=claims.get("ref", ""),
        workflow=claims.get("workflow", ""),
        builder=claims.get("builder", ""),
        line=value.line,
    )


def _signers(
    value: _Value,
    fields: Mapping[str, _Value],
) -> tuple[tuple[str, ...], tuple[Identity, ...]]:
    """Return the allowed signers: the paths of public keys, and identities.

    Raises `TargetError` if there are neither keys nor identities, because then no image could ever
    be proved.
    """
    keys = fields["keys"].items() if "keys" in fields else ()
    identities = fields["identities"].items() if "identities" in fields else ()
    if not keys and not identities:
        raise value.mistake(
            f"{value.name} has no keys and no identities", f"set {' or '.join(_SIGNERS)}"
        )
    if len(keys) > MOST_ITEMS or len(identities) > MOST_ITEMS:
        raise value.mistake(
            f"{value.name} has more than {MOST_ITEMS} keys or identities", "remove some"
        )
    distinct_paths = dict.fromkeys(map(_path, keys))
    distinct_identities = dict.fromkeys(map(_signer, identities))
    return tuple(distinct_paths), tuple(distinct_identities)


def _signer(value: _Value) -> Identity:
    """Return a signer's identity: its subject, and the URL of the issuer that vouches for the
    subject.

    Raises `TargetError` if the subject or the issuer is missing.
    """
    fields = value.fields(_IDENTITY)
    for key in _IDENTITY:
        if key not in fields:
            raise value.mistake(f"{value.name} has no {key}", f"set {key}: …")
    identity = Identity(fields["subject"].text(), fields["issuer"].text())
    if "*" in identity.issuer:
        raise fields["issuer"].mistake(
            f"{value.name}.issuer cannot contain wildcards", "use the issuer's full URL"
        )
    return identity


def template_in(files: Files, path: str, line: int) -> str:
    """Check the syntax of the commit message template at `path`, and return its text.

    Raises a `TargetError` that names `line`, the config line that refers to the template.
    """
    place = f"line {line}:"
    try:
        text = text_of(files, path)
    except TargetError as error:
        message = f"{place} commit.template: {path}: {error.message}"
        raise TargetError(message, hint="use a text file in this repository") from error
    if text is None:
        message = f"{place} commit.template: there is no file {path}"
        raise TargetError(message, hint="add it, or correct the path")
    if len(text) > LONGEST_TEMPLATE:
        message = f"{place} commit.template: {path} is larger than 64 KiB"
        raise TargetError(message, hint="shorten it")
    try:
        check_template(text)
    except Malformed as error:
        message = f"{place} commit.template: {path}: {error.message}"
        raise TargetError(message, hint=error.hint) from error
    return text


def with_keys(demand: Demand, files: Files) -> Demand:
    """Return the demand (a proof that the config requires) with the contents of its public keys,
    which are files in the repository.

    Raises a `TargetError` that names the config line if a key cannot be read.
    """
    texts = []  # pairs of a key's path and its text
    for path in demand.keys:
        place = f"line {demand.line}: {path}"
        try:
            text = text_of(files, path)
        except TargetError as error:
            hint = "use a text file in this repository"
            raise TargetError(f"{place}: {error.message}", hint=hint) from error
        if text is None:
            hint = "add the public key, or correct the path"
            raise TargetError(f"{place}: there is no such file", hint=hint)
        is_too_large = len(text) > LONGEST_TEMPLATE
        if is_too_large:
            hint = "use a file with only public keys"
            raise TargetError(f"{place}: it is larger than 64 KiB", hint=hint)
        texts.append((path, text))
    return replace(demand, texts=tuple(texts))

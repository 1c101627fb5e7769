"""Reads `.image-update/config`, and the files it refers to: commit message templates
and public keys.

Every mistake is an error with a line number, because a misread rule would silently have no effect.
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
# trailers that every commit has; case does not matter
_OURS = (
    "application",
    "promoted-from",
    "proof",
)
NOT_READ = "is not read: the config file is"
_WAY_OUT = "nothing will be written to this branch until the repository's owners fix the file"


def config_in(files: Files) -> RepositoryConfig:
    """Return the config in a snapshot. Raises a TargetError with the file and line.

    A file that people might mistake for the config is an error, because its reviews and freezes
    would have no effect.
    """
    for path in MISTAKEN:
        if path in files and files[path].mode != "040000":
            raise TargetError(
                f"{NOT_READ} {PATH}",
                hint=f"rename it to {PATH}, or delete it; {_WAY_OUT}",
                subject=path,
            )
    if PATH not in files or files[PATH].mode == "040000":  # a folder of state files is not a config
        return NO_CONFIG
    with of_config():
        return read_config(text_of(files, PATH) or "")


@contextmanager
def of_config() -> Iterator[None]:
    """Turn a `TargetError` raised inside the block into an error about the config file that
    mentions the option to ignore the file.
    """
    try:
        yield
    except TargetError as error:
        hint = "; ".join(filter(None, (error.hint, _WAY_OUT)))
        raise TargetError(error.message, hint=hint, subject=PATH) from error


@lru_cache(maxsize=8)  # a branch that has moved is read again, but the file is usually the same
def read_config(text: str) -> RepositoryConfig:
    """Return the config in the file's text.

    Raises a TargetError with the first mistake, its line, and the fix.
    """
    config, mistakes = check_config(text)
    if mistakes:
        raise mistakes[0]
    return config


def check_config(text: str) -> tuple[RepositoryConfig, tuple[TargetError, ...]]:
    """Return the config in the file's text, and all mistakes in it, each with its line and the fix.

    A config with mistakes is only for `lint`: rules and freezes keep their positions, but a rule
    with an unreadable `match` applies to everything. At most `MOST_MISTAKES` mistakes are returned.
    """
    file = _File(text)
    config = NO_CONFIG
    try:
        config = _whole_config(_Value(_root_node(text), "", file))
    except TargetError as error:
        file.mistakes.append(error)
    except _Enough:
        pass
    return config, tuple(file.mistakes)


def _root_node(text: str) -> Node:
    if len(text) > LARGEST:
        raise TargetError(
            f"line 1: the file is larger than {LARGEST // 1024} KiB",
            hint="use fewer rules",
        )
    try:
        tree = parse(text)
    except TargetError as error:
        found = re.search(r", line (\d+)$", error.message)
        if found:
            lines = text.split("\n")[int(found[1]) - 1 :]
            if lines and re.match(r" *\t", lines[0]):
                hint = "indent with spaces, as YAML requires"
                raise TargetError(f"line {found[1]} is indented with a tab", hint=hint) from error
        raise TargetError(error.message, hint="fix the YAML") from error
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


class _Enough(Exception):
    """The maximum number of mistakes has been reached."""


@dataclass
class _File:
    """The config file's text, and everything found in the text so far."""

    text: str
    mistakes: list[TargetError] = field(default_factory=list)
    globs: int = 0
    # each path, and the first line that uses it
    templates: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Value:
    """A node in the file.

    In messages, a node's name is its path in the file, such as `rules[2].match.paths`; "" means the
    file.
    """

    node: Node
    name: str
    file: _File

    def at(self, key: str, node: Node) -> _Value:
        return _Value(node, f"{self.name}.{key}".lstrip("."), self.file)

    @property
    def line(self) -> int:
        return self.file.text.count("\n", 0, self.node.start) + 1

    def wrong(self, what: str, hint: str) -> TargetError:
        return TargetError(f"line {self.line}: {what}", hint=hint)

    def note(self, mistake: TargetError) -> None:
        """Record a mistake, so that reading can continue."""
        self.file.mistakes.append(mistake)
        if len(self.file.mistakes) >= MOST_MISTAKES:
            raise _Enough

    def fields(self, known: tuple[str, ...]) -> dict[str, _Value]:
        """Return the values by key.

        A misspelled key is treated as the known key that it resembles, so that the known key is not
        reported as missing.
        """
        found: dict[str, _Value] = {}
        meant: dict[str, _Value] = {}
        children = self.children()
        keys = {key.value: key for key, _ in pairs(resolved(self.node))}
        for name, value in children.items():
            if name in known:
                found[name] = value
                continue
            near = get_close_matches(name, known, 1, 0.6)
            hint = (
                f"did you mean {near[0]}? the keys are {', '.join(known)}"
                if near
                else f"use {', '.join(known)}"
            )
            where = f" in {self.name}" if self.name else ""
            self.note(
                self.at(name, keys[name]).wrong(f"unknown key {shortened(name, 50)!r}{where}", hint)
            )
            meant.update({key: self.at(key, value.node) for key in near})
        return {**meant, **found}

    def children(self) -> dict[str, _Value]:
        """Return the values of a mapping by key."""
        node = resolved(self.node)
        what = self.name or "the file"
        if node.kind != "mapping" or node.tag:
            raise self.wrong(f"{what} is not a mapping", "use `key: value` lines")
        children: dict[str, _Value] = {}
        for name, child in pairs(node):
            key = self.at("", name)
            if name.kind != "scalar" or name.tag not in _TAGS:
                self.note(key.wrong(f"a key in {what} is not a word", "use a plain word"))
            elif name.value in children:
                self.note(
                    key.wrong(f"{shortened(name.value, 50)!r} appears twice in {what}", "keep one")
                )
            else:
                children[name.value] = self.at(name.value, child)
        return children

    def items(self, most: int = LARGEST, hint: str = "remove some") -> tuple[_Value, ...]:
        node = resolved(self.node)
        if node.kind != "sequence" or node.tag:
            raise self.wrong(f"{self.name} is not a list", "put one item on each line, after `- `")
        if len(node.children) > most:
            raise self.wrong(f"{self.name} has more than {most} entries", hint)
        return tuple(_Value(item, f"an entry of {self.name}", self.file) for item in node.children)

    def texts(self, most: int = MOST_ITEMS) -> tuple[str, ...]:
        found = (_try(value, _Value.text, "") for value in self.items(most))
        return tuple(dict.fromkeys(found))

    def text(self) -> str:
        node = resolved(self.node)
        if node.kind == "scalar" and node.style and not node.value.strip():
            raise self.wrong(f"{self.name} is empty", "put a string between the quotes")
        if node.kind != "scalar" or node.tag not in _TAGS or node.null:
            raise self.wrong(f"{self.name} is not a string", 'quote it: "…"')
        if len(node.value) > LONGEST:
            raise self.wrong(
                f"{self.name} has more than {LONGEST} characters", "use a shorter string"
            )
        return node.value.strip()

    def parsed(self, parse: Callable[[str], T]) -> T:
        """Return the result of calling `parse` with the value's text."""
        try:
            return parse(self.text())
        except Malformed as error:
            raise self.wrong(f"{self.name}: {error.message}", error.hint) from error

    def flag(self) -> bool:
        node = resolved(self.node)
        if (
            node.kind == "scalar"
            and not node.style
            and not node.tag
            and node.value in (*_TRUE, *_FALSE)
        ):
            return node.value in _TRUE
        raise self.wrong(
            f"{self.name} is neither true nor false", "use true or false, without quotes"
        )


def _try(value: _Value | None, read: Callable[[_Value], T], otherwise: T) -> T:
    """Return the result of `read` on a value.

    If the value is missing or has a mistake, return the default. The mistake is recorded.
    """
    if value is None:
        return otherwise
    try:
        return read(value)
    except TargetError as error:
        value.note(error)
        return otherwise


def _fields(value: _Value | None, known: tuple[str, ...]) -> dict[str, _Value]:
    return _try(value, lambda value: value.fields(known), {})


def _whole_config(file: _Value) -> RepositoryConfig:
    """Return the whole config.

    Raises `TargetError` if the file has the wrong structure or version, and `_Enough`.
    """
    fields = file.fields(_FILE)
    version = fields.get("version")
    if version is None:
        file.note(file.wrong("version is missing", "put `version: 1` on the first line"))
    elif (said := _try(version, _Value.text, "1")) != "1":
        hint = "use `version: 1`; newer versions of the file need a newer Image Update"
        raise version.wrong(f"version {shortened(said, 50)!r} is not supported", hint)
    elif resolved(version.node).style:
        file.note(
            version.wrong("version is a string", "use the number, without quotes: version: 1")
        )
    lists: dict[str, list[_Value]] = {}
    for key in ("rules", "freezes"):
        items = _try(
            fields.get(key),
            partial(_Value.items, most=MOST[key], hint="use wider globs"),
            None,
        )
        lists[key] = [
            replace(item, name=f"{key}[{number}]") for number, item in enumerate(items or (), 1)
        ]
    prefix = _try(fields.get("branchPrefix"), _branch_prefix, None)
    return RepositoryConfig(
        replace(_wishes(fields), branch_prefix=prefix),
        tuple(map(_rule, lists["rules"])),
        tuple(map(_freeze, lists["freezes"])),
        tuple(file.file.templates.items()),
        _try(fields.get("memorySigners"), _memory_signers, None),
        _refused(fields.get("check")),
    )


def _refused(value: _Value | None) -> tuple[str, ...]:
    """Return the order rules for which `check` fails."""
    fields = _fields(value, ("refuse",))
    none: tuple[_Value, ...] = ()
    words = _try(fields.get("refuse"), lambda value: value.items(MOST_ITEMS), none)
    for word in words:
        if (said := _try(word, _Value.text, REFUSED[0])) not in REFUSED:
            word.note(
                word.wrong(f"{word.name} is {shortened(said, 50)!r}", f"use {' or '.join(REFUSED)}")
            )
    return tuple(dict.fromkeys(_try(word, _Value.text, "") for word in words))


def _rule(value: _Value) -> Rule:
    before = len(value.file.mistakes)
    fields = _fields(value, _RULE)
    wishes = _wishes(fields)
    # an unreadable wish still counts as a rule
    if wishes == Wishes() and len(value.file.mistakes) == before:
        value.note(value.wrong(f"{value.name} has no rules", f"set one of {', '.join(_WISHES)}"))
    return Rule(_match(fields.get("match")), wishes, value.line)


def _freeze(value: _Value) -> Freeze:
    fields = _try(value, lambda value: value.fields(_FREEZE), None)
    for key in ("schedule", "duration", "reason"):
        if fields is not None and key not in fields:
            value.note(value.wrong(f"{value.name} has no {key}", f"set {key}: …"))
    given = fields or {}
    return Freeze(
        _try(given.get("schedule"), lambda value: value.parsed(schedule), ""),
        _try(given.get("duration"), lambda value: value.parsed(seconds_of), 0),
        _try(
            given.get("timeZone"),
            lambda value: value.parsed(zone_of),
            zone_of("UTC"),
        ),
        " ".join(_try(given.get("reason"), _Value.text, "").split()),
        _match(given.get("match")),
        value.line,
    )


def _match(value: _Value | None) -> Match:
    """Return the match, or a match for everything if it is missing or partly unreadable."""
    if value is None:
        return EVERYTHING
    before = len(value.file.mistakes)
    fields = _fields(value, _MATCH)
    if not fields and len(value.file.mistakes) == before:
        value.note(value.wrong(f"{value.name} is empty", f"set one of {', '.join(_MATCH)}"))
    lists: dict[str, tuple[str, ...]] = {}
    for key, node in fields.items():
        globs = _try(node, _globs, None)
        if globs == ():
            value.note(
                node.wrong(
                    f"{node.name} is empty, so it matches nothing",
                    'use globs, such as ["team-a/*"]',
                )
            )
        lists[key] = globs or ()
    if len(value.file.mistakes) > before:
        return EVERYTHING
    return Match(
        tuple(map(name_glob, lists.get("applications", ()))),
        tuple(map(name_glob, lists.get("projects", ()))),
        tuple(map(path_glob, lists.get("paths", ()))),
        tuple(map(name_glob, lists.get("images", ()))),
    )


def _globs(value: _Value) -> tuple[str, ...]:
    """Return the globs in a list. Raises `TargetError` if the file has too many globs."""
    texts = value.texts(MOST["globs"])
    value.file.globs += len(texts)
    if value.file.globs > MOST["globs"]:
        raise value.wrong(f"the file has more than {MOST['globs']} globs", "use wider globs")
    return texts


def _wishes(fields: Mapping[str, _Value]) -> Wishes:
    commit = _fields(fields.get("commit"), _COMMIT)
    requests = _fields(fields.get("pullRequests"), _REQUESTS)

    def read(key: str, how: Callable[[_Value], T], of: Mapping[str, _Value] = fields) -> T | None:
        return _try(of.get(key), how, None)

    template = read("template", _path, commit)
    if template:
        commit["template"].file.templates.setdefault(template, commit["template"].line)
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
    if not is_name(text := value.text()):
        hint = "remove < > and control characters; the address belongs in authorEmail"
        raise value.wrong(f"{value.name} is not a name that Git accepts", hint)
    return text


def _email_address(value: _Value) -> str:
    if not is_address(text := value.text()):
        raise value.wrong(
            f"{value.name} is not an email address",
            "use only the address, such as bot@example.com",
        )
    return text


def _path(value: _Value) -> str:
    path = value.text()
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or not path.strip("./") or not path.isprintable():
        raise value.wrong(
            f"{value.name} is not a path within the repository",
            "use a path relative to the repository root",
        )
    return "/".join(part for part in parts if part not in ("", "."))


def _trailers_of(value: _Value) -> tuple[tuple[str, str], ...]:
    children = value.children()
    if len(children) > MOST_ITEMS:
        raise value.wrong(f"{value.name} has more than {MOST_ITEMS} entries", "remove some")
    found = {}
    for key, child in children.items():
        found[key] = _try(child, _Value.text, "")
        if not TRAILER_KEY.fullmatch(key):
            hint = "use letters, digits, and dashes"
            value.note(child.wrong(f"{value.name}: {shortened(key, 50)!r} is not a key", hint))
        elif key.lower() in _OURS:
            what = f"{value.name}: each commit already has the trailer {key}"
            value.note(child.wrong(what, "use another key"))
    return tuple(found.items())


def _grouping(value: _Value) -> Grouping:
    text = value.text()
    if text not in GROUPS:
        raise value.wrong(
            f"{value.name}: {shortened(text, 50)!r} is not a group", f"use {', '.join(GROUPS)}"
        )
    return GROUPS[text]


def _tag_order(value: _Value) -> str:
    value.parsed(parse_tag_order)
    return value.text()


def _push_options(value: _Value) -> tuple[str, ...]:
    texts = value.texts()
    if not all(map(str.isprintable, texts)):
        raise value.wrong(
            f"{value.name}: a string has a line break or another control character", "remove it"
        )
    return texts


def _writes_of(value: _Value) -> Writes:
    fields = value.fields(_WRITES)
    if not fields:
        raise value.wrong(f"{value.name} is empty", f"set one of {', '.join(_WRITES)}")
    lists = {key: _globs(node) for key, node in fields.items()}
    for key, node in fields.items():
        if any(text.startswith("/") for text in lists[key]):
            hint = "remove the slash: globs start at the repository's root"
            raise node.wrong(f"{node.name}: a glob that begins with a slash matches nothing", hint)
    return Writes(
        lists.get("paths"),
        lists.get("branches"),
        value.line,
    )


def _signatures(value: _Value) -> Demand:
    return Demand("signature", *_signers(value, value.fields(_SIGNERS)), line=value.line)


def _branch_prefix(value: _Value) -> str:
    text = value.text()
    if not _PREFIX.fullmatch(text) or ".." in text or text.endswith((".lock", ".")):
        raise value.wrong(
            f"{value.name} cannot be the start of a branch name",
            "use letters, digits, dashes, and single slashes, such as bots/image-update",
        )
    return text


def _memory_signers(value: _Value) -> Demand | None:
    paths = tuple(dict.fromkeys(map(_path, value.items(MOST_ITEMS))))
    return Demand("signature", paths, line=value.line) if paths else None


def _provenance(value: _Value) -> Demand:
    fields = value.fields((*_SIGNERS, *_CLAIMS))
    claims = {key: fields[key].text() for key in _CLAIMS if key in fields}
    if not claims:
        raise value.wrong(f"{value.name} has no requirement", f"set one of {', '.join(_CLAIMS)}")
    return Demand(
        "provenance",
        *_signers(value, fields),
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
    """Return the key paths and the identities. If both are missing, an image could never be
    proved.
    """
    keys, whom = (fields[key].items() if key in fields else () for key in _SIGNERS)
    if not keys and not whom:
        raise value.wrong(
            f"{value.name} has no keys and no identities", f"set {' or '.join(_SIGNERS)}"
        )
    if len(keys) > MOST_ITEMS or len(whom) > MOST_ITEMS:
        raise value.wrong(
            f"{value.name} has more than {MOST_ITEMS} keys or identities", "remove some"
        )
    paths = dict.fromkeys(map(_path, keys))
    identities = dict.fromkeys(map(_signer, whom))
    return tuple(paths), tuple(identities)


def _signer(value: _Value) -> Identity:
    fields = value.fields(_IDENTITY)
    for key in _IDENTITY:
        if key not in fields:
            raise value.wrong(f"{value.name} has no {key}", f"set {key}: …")
    identity = Identity(fields["subject"].text(), fields["issuer"].text())
    if "*" in identity.issuer:
        raise fields["issuer"].wrong(
            f"{value.name}.issuer cannot contain wildcards", "use the issuer's full URL"
        )
    return identity


def template_in(files: Files, path: str, line: int) -> str:
    """Return the template's text.

    Raises a TargetError with the config line that refers to the template.
    """
    where = f"line {line}: "
    try:
        text = text_of(files, path)
    except TargetError as error:
        message = f"{where}commit.template: {path}: {error.message}"
        raise TargetError(message, hint="use a text file in this repository") from error
    if text is None:
        raise TargetError(
            f"{where}commit.template: there is no file {path}",
            hint="add it, or correct the path",
        )
    if len(text) > LONGEST_TEMPLATE:
        raise TargetError(
            f"{where}commit.template: {path} is larger than 64 KiB",
            hint="shorten it",
        )
    try:
        check_template(text)
    except Malformed as error:
        raise TargetError(
            f"{where}commit.template: {path}: {error.message}",
            hint=error.hint,
        ) from error
    return text


def with_keys(demand: Demand, files: Files) -> Demand:
    """Return the demand with the content of its key files.

    Raises a TargetError with the config line.
    """
    texts = []
    for path in demand.keys:
        where = f"line {demand.line}: {path}: "
        try:
            text = text_of(files, path)
        except TargetError as error:
            raise TargetError(
                f"{where}{error.message}",
                hint="use a text file in this repository",
            ) from error
        if text is None:
            raise TargetError(
                f"{where}there is no such file",
                hint="add the public key, or correct the path",
            )
        if len(text) > LONGEST_TEMPLATE:
            raise TargetError(
                f"{where}it is larger than 64 KiB",
                hint="use a file with only public keys",
            )
        texts.append((path, text))
    return replace(demand, texts=tuple(texts))

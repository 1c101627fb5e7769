"""Reads `.image-update/config`, and the files that it names: templates for commit messages, and public keys.

Every mistake is an error that names its line, because a misread rule has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import TypeVar, get_args

from task.editors.file_text import text_of
from task.editors.yaml.tree import Node, pairs, parse, refuse_odd_breaks, resolved
from task.errors import Malformed, TargetError
from task.model import Demand, Files, Grouping, Identity, Wishes, Writes
from task.policy.tag_order import parse_tag_order
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
LONGEST = 500  # characters of one value
MOST = {"rules": 200, "freezes": 50, "globs": 1000}  # in the whole file
MOST_ITEMS = 100  # in one list of labels or people, or of trailers
MOST_MISTAKES = 100  # mistakes that are reported for one file
GROUPS: Mapping[str, Grouping] = {name: name for name in get_args(Grouping)}
_TAGS = ("", "!", "tag:yaml.org,2002:str")  # the YAML tags of a string
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_WISHES = (
    "commit",
    "pullRequests",
    "pinDigest",
    "tagOrder",
    "pushOptions",
    "minimumAge",
    "writes",
    "signatures",
    "provenance",
)
_FILE = ("version", *_WISHES, "rules", "freezes")
_COMMIT = ("authorName", "authorEmail", "template", "trailers", "signOff")
_FLAGS, _LISTS = ("enabled", "autoMerge", "draft"), ("labels", "reviewers", "assignees")
_REQUESTS = (*_FLAGS, "group", *_LISTS)
_WRITES = ("paths", "branches")
_SIGNERS = ("keys", "identities")
_CLAIMS = ("sourceRepository", "ref", "workflow", "builder")
_IDENTITY = ("subject", "issuer")
_RULE = ("match", *_WISHES)
_FREEZE = ("schedule", "duration", "timeZone", "reason", "match")
_MATCH = ("applications", "projects", "paths", "images")
_OURS = ("application", "promoted-from", "proof")  # trailers that each commit has; the case of a key does not matter
_NOTHING: Mapping[str, Node] = {}
NOT_READ = "is not read: the config is the file"
_WAY_OUT = "--no-repository-config leaves the file out of a run"


def config_in(files: Files) -> RepositoryConfig:
    """Return the config in a snapshot. Raises TargetError, which names the file and the line.

    A file that people take for the config is an error, because its reviews and freezes would have no effect.
    """
    for path in MISTAKEN:
        if path in files and files[path].mode != "040000":
            raise TargetError(f"{NOT_READ} {PATH}", hint=f"rename it to {PATH}, or delete it; {_WAY_OUT}", subject=path)
    if PATH not in files or files[PATH].mode == "040000":  # a folder of state files is not a config
        return NO_CONFIG
    try:
        return read_config(text_of(files, PATH) or "")
    except TargetError as error:
        raise of_config(error) from error


def of_config(error: TargetError) -> TargetError:
    """Return the error as one about the file, with the option that ignores the file."""
    return TargetError(error.message, hint="; ".join(filter(None, (error.hint, _WAY_OUT))), subject=PATH)


@lru_cache(maxsize=8)  # a branch that moved is read again, usually with the same file
def read_config(text: str) -> RepositoryConfig:
    """Return the config in a text. Raises TargetError, which names the first mistake, its line and the correction."""
    config, mistakes = check_config(text)
    if mistakes:
        raise mistakes[0]
    return config


def check_config(text: str) -> tuple[RepositoryConfig, tuple[TargetError, ...]]:
    """Return the config in a text, and all its mistakes, each with its line and the correction.

    A config with mistakes is only for `lint`: its rules and freezes have their places, but one with an unreadable
    `match` is for everything. At most `MOST_MISTAKES` are returned.
    """
    try:
        reader = _Reader(text, _root(text))
    except TargetError as error:
        return NO_CONFIG, (error,)
    try:
        config = reader.config()
    except TargetError as error:
        return NO_CONFIG, (*reader.mistakes, error)
    except _Enough:
        return NO_CONFIG, tuple(reader.mistakes)
    return config, tuple(reader.mistakes)


def _root(text: str) -> Node:
    if len(text) > LARGEST:
        raise TargetError(f"line 1: the file is larger than {LARGEST // 1024} KiB", hint="write fewer rules")
    try:
        tree = parse(text)
    except TargetError as error:
        found = re.search(r", line (\d+)$", error.message)
        if found and re.match(r" *\t", "".join(text.split("\n")[int(found[1]) - 1 :][:1])):
            hint = "indent with spaces, as YAML wants it"
            raise TargetError(f"line {found[1]}: a tab indents the line", hint=hint) from error
        raise TargetError(error.message, hint="correct the YAML") from error
    refuse_odd_breaks(tree)
    if tree.root is None or tree.root.null:
        raise TargetError("line 1: the file says nothing", hint="write `version: 1` in its first line, or delete it")
    if len(tree.roots) > 1:
        line = tree.line(tree.roots[1])
        raise TargetError(f"line {line}: a second YAML document", hint="write everything in one document")
    return tree.root


class _Enough(Exception):
    """There are as many mistakes as are reported."""


class _Reader:
    """Reads one document. In messages, the name of a value is its path in the file: `rules[2].match.paths`.

    A mistake is noted, and reading continues around it. An error that is raised is noted by the next `_try`.
    """

    def __init__(self, text: str, root: Node) -> None:
        self.mistakes: list[TargetError] = []
        self._text, self._root = text, root
        self._globs = 0
        self._templates: dict[str, int] = {}

    def config(self) -> RepositoryConfig:
        """Return the whole config. Raises `TargetError` for another shape or version of the file, and `_Enough`."""
        fields = self._fields(self._root, "", _FILE)
        if "version" not in fields:
            self._note(self._wrong(self._root, "version is missing", "write `version: 1` in the first line"))
        elif (version := self._try(partial(self._text_of, fields["version"], "version"), "1")) != "1":
            hint = "write `version: 1`; a later version of the file needs a later Image Update"
            raise self._wrong(fields["version"], f"version {shortened(version, 50)!r} is not known", hint)
        elif resolved(fields["version"]).style:
            wrong = self._wrong(fields["version"], "version is a text", "write the number, without quotes: version: 1")
            self._note(wrong)
        none: tuple[Node, ...] = ()
        lists = {
            key: self._try(partial(self._items, fields[key], key), none) if key in fields else none
            for key in ("rules", "freezes")
        }
        return RepositoryConfig(
            self._wishes(fields, ""),
            tuple(self._rule(node, f"rules[{number}]") for number, node in enumerate(lists["rules"], 1)),
            tuple(self._freeze(node, f"freezes[{number}]") for number, node in enumerate(lists["freezes"], 1)),
            tuple(self._templates.items()),
        )

    def _try(self, read: Callable[[], T], otherwise: T) -> T:
        """Return the result of `read`. If it fails, note the mistake and return the other value."""
        try:
            return read()
        except TargetError as error:
            self._note(error)
            return otherwise

    def _note(self, mistake: TargetError) -> None:
        self.mistakes.append(mistake)
        if len(self.mistakes) >= MOST_MISTAKES:
            raise _Enough

    def _rule(self, node: Node, what: str) -> Rule:
        before = len(self.mistakes)
        fields = self._try(partial(self._fields, node, what, _RULE), None)
        if fields is None:
            return Rule(EVERYTHING, Wishes(), self._line(node))
        wishes = self._wishes(fields, f"{what}.")
        if wishes == Wishes() and len(self.mistakes) == before:  # an unreadable wish would decide something
            self._note(self._wrong(node, f"{what} decides nothing", f"add keys of {', '.join(_WISHES)}"))
        match = self._match(fields["match"], f"{what}.match") if "match" in fields else EVERYTHING
        return Rule(match, wishes, self._line(node))

    def _freeze(self, node: Node, what: str) -> Freeze:
        fields = self._try(partial(self._fields, node, what, _FREEZE), None)
        if fields is None:
            return Freeze("", 0, zone_of("UTC"), "", EVERYTHING, self._line(node))
        for key in ("schedule", "duration", "reason"):
            if key not in fields:
                self._note(self._wrong(node, f"{what} has no {key}", f"write {key}: …"))

        def read(key: str, value: Callable[[str], T], otherwise: T) -> T:
            def checked() -> T:
                text = self._text_of(fields[key], f"{what}.{key}")
                try:
                    return value(text)
                except Malformed as error:
                    raise self._wrong(fields[key], f"{what}.{key}: {error.message}", error.hint) from error

            return self._try(checked, otherwise) if key in fields else otherwise

        return Freeze(
            read("schedule", schedule, ""),
            read("duration", seconds_of, 0),
            read("timeZone", zone_of, zone_of("UTC")),
            " ".join(read("reason", str, "").split()),
            self._match(fields["match"], f"{what}.match") if "match" in fields else EVERYTHING,
            self._line(node),
        )

    def _match(self, node: Node, what: str) -> Match:
        """Return the match, or one for everything if any part of it is unreadable."""
        before = len(self.mistakes)
        fields = self._try(partial(self._fields, node, what, _MATCH), _NOTHING)
        if not fields and len(self.mistakes) == before:
            self._note(self._wrong(node, f"{what} names nothing", f"give one of {', '.join(_MATCH)}"))
        lists: dict[str, tuple[str, ...]] = {}
        for key, one in fields.items():
            globs = self._try(partial(self._globs_of, one, f"{what}.{key}"), None)
            if globs == ():
                hint = 'write globs, such as ["team-a/*"]'
                self._note(self._wrong(one, f"{what}.{key} is empty, and fits nothing", hint))
            lists[key] = globs or ()
        if len(self.mistakes) > before:
            return EVERYTHING
        return Match(
            tuple(map(name_glob, lists.get("applications", ()))),
            tuple(map(name_glob, lists.get("projects", ()))),
            tuple(map(path_glob, lists.get("paths", ()))),
            tuple(map(name_glob, lists.get("images", ()))),
        )

    def _wishes(self, fields: Mapping[str, Node], before: str) -> Wishes:
        def part(key: str, known: tuple[str, ...]) -> Mapping[str, Node]:
            return (
                self._try(partial(self._fields, fields[key], f"{before}{key}", known), _NOTHING)
                if key in fields
                else {}
            )

        commit, requests = part("commit", _COMMIT), part("pullRequests", _REQUESTS)

        def read(of: Mapping[str, Node], where: str, key: str, value: Callable[[Node, str], T]) -> T | None:
            return self._try(partial(value, of[key], f"{before}{where}{key}"), None) if key in of else None

        template = read(commit, "commit.", "template", self._path)
        if template:
            self._templates.setdefault(template, self._line(commit["template"]))
        lists = {key: read(requests, "pullRequests.", key, partial(self._texts, most=MOST_ITEMS)) for key in _LISTS}
        return Wishes(
            author_name=read(commit, "commit.", "authorName", self._name),
            author_email=read(commit, "commit.", "authorEmail", self._address),
            template=template,
            trailers=read(commit, "commit.", "trailers", self._trailers),
            sign_off=read(commit, "commit.", "signOff", self._flag),
            pull_request=read(requests, "pullRequests.", "enabled", self._flag),
            group=read(requests, "pullRequests.", "group", self._group),
            labels=lists["labels"],
            reviewers=lists["reviewers"],
            assignees=lists["assignees"],
            draft=read(requests, "pullRequests.", "draft", self._flag),
            auto_merge=read(requests, "pullRequests.", "autoMerge", self._flag),
            pin_digest=read(fields, "", "pinDigest", self._flag),
            tag_order=read(fields, "", "tagOrder", partial(self._checked, parse_tag_order)),
            minimum_age=read(fields, "", "minimumAge", self._age),
            push_options=read(fields, "", "pushOptions", self._push_options),
            writes=read(fields, "", "writes", self._writes),
            signatures=read(fields, "", "signatures", self._signatures),
            provenance=read(fields, "", "provenance", self._provenance),
        )

    def _signatures(self, node: Node, what: str) -> Demand:
        fields = self._fields(node, what, _SIGNERS)
        return Demand("signature", *self._signers(node, fields, what), line=self._line(node))

    def _provenance(self, node: Node, what: str) -> Demand:
        fields = self._fields(node, what, (*_SIGNERS, *_CLAIMS))
        claims = {key: self._text_of(fields[key], f"{what}.{key}") for key in _CLAIMS if key in fields}
        if not claims:
            raise self._wrong(node, f"{what} asks for nothing", f"give one of {', '.join(_CLAIMS)}")
        return Demand(
            "provenance",
            *self._signers(node, fields, what),
            source_repository=claims.get("sourceRepository", "").removesuffix(".git"),
            ref=claims.get("ref", ""),
            workflow=claims.get("workflow", ""),
            builder=claims.get("builder", ""),
            line=self._line(node),
        )

    def _signers(
        self, node: Node, fields: Mapping[str, Node], what: str
    ) -> tuple[tuple[str, ...], tuple[Identity, ...]]:
        """Return the paths of keys, and the identities. Without either, nobody could prove anything."""
        keys = self._items(fields["keys"], f"{what}.keys") if "keys" in fields else ()
        whom = self._items(fields["identities"], f"{what}.identities") if "identities" in fields else ()
        if not keys and not whom:
            raise self._wrong(node, f"{what} names nobody who may sign", f"give {' or '.join(_SIGNERS)}")
        if len(keys) > MOST_ITEMS or len(whom) > MOST_ITEMS:
            raise self._wrong(node, f"{what} has more than {MOST_ITEMS} keys or identities", "leave some out")
        paths = tuple(dict.fromkeys(self._path(one, f"an entry of {what}.keys") for one in keys))
        return paths, tuple(dict.fromkeys(self._identity(one, f"an entry of {what}.identities") for one in whom))

    def _identity(self, node: Node, what: str) -> Identity:
        fields = self._fields(node, what, _IDENTITY)
        for key in _IDENTITY:
            if key not in fields:
                raise self._wrong(node, f"{what} has no {key}", f"write {key}: …")
        subject, issuer = (self._text_of(fields[key], f"{what}.{key}") for key in _IDENTITY)
        if "*" in issuer:
            raise self._wrong(fields["issuer"], f"{what}.issuer is no glob", "write the issuer's whole URL")
        return Identity(subject, issuer)

    def _writes(self, node: Node, what: str) -> Writes:
        fields = self._fields(node, what, _WRITES)
        if not fields:
            raise self._wrong(node, f"{what} names nothing", f"give one of {', '.join(_WRITES)}")
        lists = {key: self._globs_of(one, f"{what}.{key}") for key, one in fields.items()}
        for key, one in fields.items():
            if any(text.startswith("/") for text in lists[key]):
                hint = "write it without the slash, from the repository's root"
                raise self._wrong(one, f"{what}.{key}: a glob begins with a slash, and fits nothing", hint)
        return Writes(lists.get("paths"), lists.get("branches"), self._line(node))

    def _globs_of(self, node: Node, what: str) -> tuple[str, ...]:
        """Return the texts of a list of globs. Raises `TargetError` if the file has too many."""
        texts = self._texts(node, what, MOST["globs"])
        self._globs += len(texts)
        if self._globs > MOST["globs"]:
            raise self._wrong(node, f"the file has more than {MOST['globs']} globs", "use wider globs")
        return texts

    def _checked(self, check: Callable[[str], object], node: Node, what: str) -> str:
        """Return a text that `check` takes."""
        text = self._text_of(node, what)
        try:
            check(text)
        except Malformed as error:
            raise self._wrong(node, f"{what}: {error.message}", error.hint) from error
        return text

    def _name(self, node: Node, what: str) -> str:
        text = self._text_of(node, what)
        if not is_name(text):
            hint = "leave out < > and control characters; authorEmail takes the address"
            raise self._wrong(node, f"{what} is not a name that Git takes", hint)
        return text

    def _address(self, node: Node, what: str) -> str:
        text = self._text_of(node, what)
        if not is_address(text):
            hint = "write the address alone, such as bot@example.com"
            raise self._wrong(node, f"{what} is not an e-mail address", hint)
        return text

    def _path(self, node: Node, what: str) -> str:
        path = self._text_of(node, what)
        parts = path.split("/")
        if path.startswith("/") or ".." in parts or not path.strip("./") or not path.isprintable():
            raise self._wrong(
                node, f"{what} is not a path within the repository", "write it from the repository's root"
            )
        return "/".join(part for part in parts if part not in ("", "."))

    def _trailers(self, node: Node, what: str) -> tuple[tuple[str, str], ...]:
        nodes = self._children(node, what)
        if len(nodes) > MOST_ITEMS:
            raise self._wrong(node, f"{what} has more than {MOST_ITEMS} entries", "leave some out")
        found = {}
        for key, one in nodes.items():
            found[key] = self._try(partial(self._text_of, one, f"{what}.{key}"), "")
            if not TRAILER_KEY.fullmatch(key):
                hint = "use letters, digits and dashes"
                self._note(self._wrong(one, f"{what}: {shortened(key, 50)!r} is not a key", hint))
            elif key.lower() in _OURS:
                wrong = self._wrong(one, f"{what}: each commit has a trailer {key} of its own", "choose another key")
                self._note(wrong)
        return tuple(found.items())

    def _group(self, node: Node, what: str) -> Grouping:
        text = self._text_of(node, what)
        if text not in GROUPS:
            raise self._wrong(node, f"{what}: {shortened(text, 50)!r} is not a group", f"write {', '.join(GROUPS)}")
        return GROUPS[text]

    def _fields(self, node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
        """Return the values by key.

        A misspelt key counts as the key that it is similar to, so that this is not missing as well.
        """
        found: dict[str, Node] = {}
        meant: dict[str, Node] = {}
        children = self._children(node, what)
        keys = {key.value: key for key, _ in pairs(resolved(node))}
        for name, one in children.items():
            if name in known:
                found[name] = one
                continue
            near = get_close_matches(name, known, 1, 0.6)
            hint = f"did you mean {near[0]}? the keys are {', '.join(known)}" if near else f"use {', '.join(known)}"
            where = f" in {what}" if what else ""
            self._note(self._wrong(keys[name], f"the key {shortened(name, 50)!r} is not known{where}", hint))
            meant.update(dict.fromkeys(near, one))
        return {**meant, **found}

    def _children(self, node: Node, what: str) -> dict[str, Node]:
        node = resolved(node)
        if node.kind != "mapping" or node.tag:
            raise self._wrong(node, f"{what or 'the file'} is not a mapping", "write `key: value` lines")
        children: dict[str, Node] = {}
        for key, one in pairs(node):
            if key.kind != "scalar" or key.tag not in _TAGS:
                self._note(self._wrong(key, f"a key of {what or 'the file'} is not a word", "write a plain word"))
            elif key.value in children:
                message = f"{shortened(key.value, 50)!r} appears twice in {what or 'the file'}"
                self._note(self._wrong(key, message, "keep one"))
            else:
                children[key.value] = one
        return children

    def _items(self, node: Node, what: str) -> tuple[Node, ...]:
        found = resolved(node)
        if found.kind != "sequence" or found.tag:
            raise self._wrong(node, f"{what} is not a list", "write each on a line of its own, behind `- `")
        if len(found.children) > MOST.get(what, LARGEST):
            raise self._wrong(node, f"{what} has more than {MOST[what]} entries", "use wider globs")
        return found.children

    def _texts(self, node: Node, what: str, most: int) -> tuple[str, ...]:
        items = self._items(node, what)
        if len(items) > most:
            raise self._wrong(node, f"{what} has more than {most} entries", "leave some out")
        each = (self._try(partial(self._text_of, one, f"an entry of {what}"), "") for one in items)
        return tuple(dict.fromkeys(each))

    def _age(self, node: Node, what: str) -> int:
        return seconds_of(self._checked(seconds_of, node, what))

    def _push_options(self, node: Node, what: str) -> tuple[str, ...]:
        texts = self._texts(node, what, MOST_ITEMS)
        if not all(map(str.isprintable, texts)):
            raise self._wrong(node, f"{what}: a text has a line break or another control character", "remove it")
        return texts

    def _text_of(self, node: Node, what: str) -> str:
        found = resolved(node)
        if found.kind == "scalar" and found.style and not found.value.strip():
            raise self._wrong(node, f"{what} is empty", "write a text between the quotes")
        if found.kind != "scalar" or found.tag not in _TAGS or found.null:
            raise self._wrong(node, f"{what} is not a text", 'write it in quotes: "…"')
        if len(found.value) > LONGEST:
            raise self._wrong(node, f"{what} has more than {LONGEST} characters", "write a shorter text")
        return found.value.strip()

    def _flag(self, node: Node, what: str) -> bool:
        found = resolved(node)
        if found.kind == "scalar" and not found.style and not found.tag and found.value in (*_TRUE, *_FALSE):
            return found.value in _TRUE
        raise self._wrong(node, f"{what} is neither true nor false", "write true or false, without quotes")

    def _line(self, node: Node) -> int:
        return self._text.count("\n", 0, node.start) + 1

    def _wrong(self, node: Node, what: str, hint: str) -> TargetError:
        return TargetError(f"line {self._line(node)}: {what}", hint=hint)


def template_in(files: Files, path: str, line: int) -> str:
    """Return the template's text. Raises TargetError, which has the line of the config that names the template."""
    where = f"line {line}: "
    try:
        text = text_of(files, path)
    except TargetError as error:
        raise TargetError(
            f"{where}commit.template: {path}: {error.message}", hint="name a text file of this repository"
        ) from error
    if text is None:
        raise TargetError(f"{where}commit.template: there is no file {path}", hint="add it, or correct the path")
    if len(text) > LONGEST_TEMPLATE:
        raise TargetError(f"{where}commit.template: {path} is larger than 64 KiB", hint="shorten it")
    try:
        check_template(text)
    except Malformed as error:
        raise TargetError(f"{where}commit.template: {path}: {error.message}", hint=error.hint) from error
    return text


def with_keys(demand: Demand, files: Files) -> Demand:
    """Return the demand with the texts of its keys. Raises TargetError, which has the line of the config."""
    texts = []
    for path in demand.keys:
        where = f"line {demand.line}: {path}: "
        try:
            text = text_of(files, path)
        except TargetError as error:
            raise TargetError(f"{where}{error.message}", hint="name a text file of this repository") from error
        if text is None:
            raise TargetError(f"{where}there is no such file", hint="add the public key, or correct the path")
        if len(text) > LONGEST_TEMPLATE:
            raise TargetError(f"{where}it is larger than 64 KiB", hint="name a file with public keys only")
        texts.append((path, text))
    return replace(demand, texts=tuple(texts))

"""Reads `.image-update/config`. Every mistake is an error that names its line: a rule that is misread rules nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import get_args

from task.editors.file_text import text_of
from task.editors.yaml.tree import Document, Node, pairs, parse, resolved
from task.errors import Malformed, TargetError
from task.model import Files, Grouping, Wishes
from task.repository_config.config import EVERYTHING, NO_CONFIG, PATH, Freeze, Match, RepositoryConfig, Rule
from task.repository_config.freezes import check_schedule, seconds_of, zone_of
from task.repository_config.globs import name_glob, path_glob
from task.templates.trailers import KEY as TRAILER_KEY
from task.text import shortened

LARGEST = 256 * 1024  # characters
LONGEST = 500  # characters of one value
MOST = {"rules": 200, "freezes": 50, "globs": 1000}  # of the whole file
MOST_ITEMS = 100  # of one list of labels or people, or of trailers
GROUPS: Mapping[str, Grouping] = {name: name for name in get_args(Grouping)}
_TAGS = ("", "!", "tag:yaml.org,2002:str")  # the tags of a string
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_WISHES = ("commit", "pullRequests", "pinDigest")
_FILE = ("version", *_WISHES, "rules", "freezes")
_COMMIT = ("authorName", "authorEmail", "template", "trailers", "signOff")
_FLAGS, _LISTS = ("enabled", "autoMerge", "draft"), ("labels", "reviewers", "assignees")
_REQUESTS = (*_FLAGS, "group", *_LISTS)
_RULE = ("match", *_WISHES)
_FREEZE = ("schedule", "duration", "timeZone", "reason", "match")
_MATCH = ("applications", "projects", "paths", "images")
_OURS = ("application",)  # trailers that each commit has; a key means the same in any case
_WAY_OUT = "--no-repository-config leaves the file out of a run"


def config_in(files: Files) -> RepositoryConfig:
    """Return what the file of a snapshot says. The TargetError names the file and the line."""
    if PATH not in files or files[PATH].mode == "040000":  # a folder of state files is no config
        return NO_CONFIG
    try:
        return read_config(text_of(files, PATH) or "")
    except TargetError as error:
        raise of_config(error) from error


def of_config(error: TargetError) -> TargetError:
    """Return the error as one of the file, with the option that leaves the file out."""
    return TargetError(error.message, hint="; ".join(filter(None, (error.hint, _WAY_OUT))), subject=PATH)


@lru_cache(maxsize=8)  # a branch that moved is read again, mostly with the same file
def read_config(text: str) -> RepositoryConfig:
    """Return what the text says. The TargetError names the mistake, its line and the correction."""
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
    if not tree.documents or tree.documents[0].root.null:
        raise TargetError("line 1: the file says nothing", hint="write `version: 1` in its first line, or delete it")
    if len(tree.documents) > 1:
        line = tree.line(tree.documents[1].root)
        raise TargetError(f"line {line}: a second YAML document", hint="write everything in one document")
    return _Reader(text, tree.documents[0]).config()


class _Reader:
    """Reads one document. What a message calls a value is its path in the file: `rules[2].match.paths`."""

    def __init__(self, text: str, document: Document) -> None:
        self._text, self._document = text, document
        self._globs = 0
        self._templates: dict[str, int] = {}

    def config(self) -> RepositoryConfig:
        """Return the whole file."""
        fields = self._fields(self._document.root, "", _FILE)
        if "version" not in fields:
            raise self._wrong(self._document.root, "version is missing", "write `version: 1` in the first line")
        if (version := self._text_of(fields["version"], "version")) != "1":
            hint = "write `version: 1`; a later version of the file needs a later Image Update"
            raise self._wrong(fields["version"], f"version {shortened(version, 50)!r} is not known", hint)
        if resolved(self._document, fields["version"]).style:
            raise self._wrong(fields["version"], "version is a text", "write the number, without quotes: version: 1")
        rules = self._items(fields["rules"], "rules") if "rules" in fields else []
        freezes = self._items(fields["freezes"], "freezes") if "freezes" in fields else []
        return RepositoryConfig(
            self._wishes(fields, ""),
            tuple(self._rule(node, f"rules[{number}]") for number, node in enumerate(rules, 1)),
            tuple(self._freeze(node, f"freezes[{number}]") for number, node in enumerate(freezes, 1)),
            tuple(self._templates.items()),
        )

    def _rule(self, node: Node, what: str) -> Rule:
        fields = self._fields(node, what, _RULE)
        if "match" not in fields:
            raise self._wrong(node, f"{what} has no match", "say what it is about, or write its keys at the top level")
        wishes = self._wishes(fields, f"{what}.")
        if wishes == Wishes():
            raise self._wrong(node, f"{what} decides nothing", f"add keys of {', '.join(_WISHES)}")
        return Rule(self._match(fields["match"], f"{what}.match"), wishes, self._line(node))

    def _freeze(self, node: Node, what: str) -> Freeze:
        fields = self._fields(node, what, _FREEZE)
        for key in ("schedule", "duration", "reason"):
            if key not in fields:
                raise self._wrong(node, f"{what} has no {key}", f"write {key}: …")
        texts = {key: self._text_of(one, f"{what}.{key}") for key, one in fields.items() if key != "match"}
        key = "schedule"
        try:
            check_schedule(texts[key])
            key = "duration"
            seconds = seconds_of(texts[key])
            key = "timeZone"
            zone = zone_of(texts.get(key, "UTC"))
        except Malformed as error:
            raise self._wrong(fields[key], f"{what}.{key}: {error.message}", error.hint) from error
        match = self._match(fields["match"], f"{what}.match") if "match" in fields else EVERYTHING
        return Freeze(texts["schedule"], seconds, zone, " ".join(texts["reason"].split()), match, self._line(node))

    def _match(self, node: Node, what: str) -> Match:
        fields = self._fields(node, what, _MATCH)
        if not fields:
            raise self._wrong(node, f"{what} names nothing", f"give one of {', '.join(_MATCH)}")
        lists = {}
        for key, one in fields.items():
            lists[key] = self._texts(one, f"{what}.{key}", MOST["globs"])
            if not lists[key]:
                raise self._wrong(one, f"{what}.{key} is empty, and fits nothing", 'write globs, such as ["team-a/*"]')
            self._globs += len(lists[key])
        if self._globs > MOST["globs"]:
            raise self._wrong(node, f"the file has more than {MOST['globs']} globs", "use wider globs")
        return Match(
            tuple(map(name_glob, lists.get("applications", ()))),
            tuple(map(name_glob, lists.get("projects", ()))),
            tuple(map(path_glob, lists.get("paths", ()))),
            tuple(map(name_glob, lists.get("images", ()))),
        )

    def _wishes(self, fields: Mapping[str, Node], before: str) -> Wishes:
        what = f"{before}commit"
        commit = self._fields(fields["commit"], what, _COMMIT) if "commit" in fields else {}
        person = {key: self._part_of_a_person(commit, key, f"{what}.{key}") for key in ("authorName", "authorEmail")}
        template = trailers = sign_off = None
        if "template" in commit:
            template = self._path(commit["template"], f"{what}.template")
            self._templates.setdefault(template, self._line(commit["template"]))
        if "trailers" in commit:
            trailers = self._trailers(commit["trailers"], f"{what}.trailers")
        if "signOff" in commit:
            sign_off = self._flag(commit["signOff"], f"{what}.signOff")

        what = f"{before}pullRequests"
        requests = self._fields(fields["pullRequests"], what, _REQUESTS) if "pullRequests" in fields else {}
        flags = {key: self._flag(requests[key], f"{what}.{key}") for key in _FLAGS if key in requests}
        lists = {key: self._texts(requests[key], f"{what}.{key}", MOST_ITEMS) for key in _LISTS if key in requests}
        group = self._group(requests["group"], f"{what}.group") if "group" in requests else None
        return Wishes(
            author_name=person["authorName"],
            author_email=person["authorEmail"],
            template=template,
            trailers=trailers,
            sign_off=sign_off,
            pull_request=flags.get("enabled"),
            group=group,
            labels=lists.get("labels"),
            reviewers=lists.get("reviewers"),
            assignees=lists.get("assignees"),
            draft=flags.get("draft"),
            auto_merge=flags.get("autoMerge"),
            pin_digest=self._flag(fields["pinDigest"], f"{before}pinDigest") if "pinDigest" in fields else None,
        )

    def _part_of_a_person(self, fields: Mapping[str, Node], key: str, what: str) -> str | None:
        if key not in fields:
            return None
        text = self._text_of(fields[key], what)
        if not text.isprintable() or set(text) & set("<>"):
            raise self._wrong(fields[key], f"{what} is not a name or address that Git takes", "leave out < >")
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
        found = {key: self._text_of(one, f"{what}.{key}") for key, one in self._children(node, what).items()}
        if len(found) > MOST_ITEMS:
            raise self._wrong(node, f"{what} has more than {MOST_ITEMS} entries", "leave some out")
        for key in found:
            if not TRAILER_KEY.fullmatch(key):
                raise self._wrong(
                    node, f"{what}: {shortened(key, 50)!r} is not a key", "use letters, digits and dashes"
                )
            if key.lower() in _OURS:
                raise self._wrong(node, f"{what}: each commit has a trailer {key} of its own", "choose another key")
        return tuple(found.items())

    def _group(self, node: Node, what: str) -> Grouping:
        text = self._text_of(node, what)
        if text not in GROUPS:
            raise self._wrong(node, f"{what}: {shortened(text, 50)!r} is no group", f"write {', '.join(GROUPS)}")
        return GROUPS[text]

    def _fields(self, node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
        children = self._children(node, what)
        for key, _ in pairs(resolved(self._document, node)):
            if key.value not in known:
                near = get_close_matches(key.value, known, 1, 0.6)
                hint = f"did you mean {near[0]}? the keys are {', '.join(known)}" if near else f"use {', '.join(known)}"
                where = f" in {what}" if what else ""
                raise self._wrong(key, f"the key {shortened(key.value, 50)!r} is not known{where}", hint)
        return children

    def _children(self, node: Node, what: str) -> dict[str, Node]:
        node = resolved(self._document, node)
        if node.kind != "mapping" or node.tag:
            raise self._wrong(node, f"{what or 'the file'} is not a mapping", "write `key: value` lines")
        children: dict[str, Node] = {}
        for key, one in pairs(node):
            if key.kind != "scalar" or key.tag not in _TAGS:
                raise self._wrong(key, f"a key of {what or 'the file'} is not a word", "write a plain word")
            if key.value in children:
                raise self._wrong(
                    key, f"{shortened(key.value, 50)!r} appears twice in {what or 'the file'}", "keep one"
                )
            children[key.value] = one
        return children

    def _items(self, node: Node, what: str) -> tuple[Node, ...]:
        found = resolved(self._document, node)
        if found.kind != "sequence" or found.tag:
            raise self._wrong(node, f"{what} is not a list", "write each on a line of its own, behind `- `")
        if len(found.children) > MOST.get(what, LARGEST):
            raise self._wrong(node, f"{what} has more than {MOST[what]} entries", "use wider globs")
        return found.children

    def _texts(self, node: Node, what: str, most: int) -> tuple[str, ...]:
        items = self._items(node, what)
        if len(items) > most:
            raise self._wrong(node, f"{what} has more than {most} entries", "leave some out")
        return tuple(dict.fromkeys(self._text_of(one, f"an entry of {what}") for one in items))

    def _text_of(self, node: Node, what: str) -> str:
        found = resolved(self._document, node)
        if found.kind == "scalar" and found.style and not found.value.strip():
            raise self._wrong(node, f"{what} is empty", "write a text between the quotes")
        if found.kind != "scalar" or found.tag not in _TAGS or found.null:
            raise self._wrong(node, f"{what} is not a text", 'write it in quotes: "…"')
        if len(found.value) > LONGEST:
            raise self._wrong(node, f"{what} has more than {LONGEST} characters", "write a shorter text")
        return found.value.strip()

    def _flag(self, node: Node, what: str) -> bool:
        found = resolved(self._document, node)
        if found.kind == "scalar" and not found.style and not found.tag and found.value in (*_TRUE, *_FALSE):
            return found.value in _TRUE
        raise self._wrong(node, f"{what} is neither true nor false", "write true or false, without quotes")

    def _line(self, node: Node) -> int:
        return self._text.count("\n", 0, node.start) + 1

    def _wrong(self, node: Node, what: str, hint: str) -> TargetError:
        return TargetError(f"line {self._line(node)}: {what}", hint=hint)

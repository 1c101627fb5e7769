"""The list of builds waiting on one head branch: a file on the memory branch.

It is the only record of these builds: the head branch, its commit, and its request are not needed.
(Builds deferred by a hold or a freeze are in the state file.) The file is YAML in a fixed format,
so people can read it. `waiting_builds.list_after` creates it, `memory_branch` writes it, and
`head_branches` and `status` read it.

Anyone who can push to the memory branch can edit the file. So readers reject everything that does
not match the format, and every entry is reevaluated before anything is written: `together` decides,
and `write_back.refuse_files` checks the files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TypeVar

from task.editors.yaml.spelling import spell
from task.editors.yaml.tree import Node, pairs, parse
from task.errors import Malformed, TargetError
from task.image import parse_image
from task.model import Build, Files, Hold, Keys, Meant, Subscription, Versioned, Written
from task.timestamps import utc

FOLDER = ".image-update/waiting"
VERSION = "1"
ABOUT = (
    "# The builds waiting on one head branch of Image Update, and the declined ones.\n"
    "# Each run reads this list, decides all builds again, and creates the branch from it.\n"
)
LONGEST_NAME = 200  # bytes in the file name; longer names are hashed
LARGEST = 1_000_000  # characters
DEEPEST = 8  # levels of lists and mappings
MOST_BUILDS = 1000
LONGEST_WORD = 4096  # characters
SPELLED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
T = TypeVar("T")
Data = Mapping[str, object]  # a mapping in the file: strings, lists of strings, and mappings
BuildKey = tuple[str, str, str, str, str]  # Application, alias, image, target, path


@dataclass(frozen=True)
class HeadCommit:
    """The identity of our commit on a head branch, no matter who signed it."""

    tree: str
    parent: str


@dataclass(frozen=True)
class KnownRequest:
    """The newest request that a run has seen for a head branch, and its state at the time."""

    number: str
    url: str
    state: str  # "open", "merged", "closed", "gone"


@dataclass(frozen=True)
class BaseThen(Versioned):
    """The base branch's version of an image, and what was remembered about it, when a build was
    listed.
    """

    tag: str = ""
    digest: str = ""
    written: Written | None = None
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedBuild(Versioned):
    """A waiting build: proposed on a head branch, and not merged yet."""

    application: str  # namespace/name
    alias: str
    image: str  # as in `image-list`
    tag: str
    digest: str
    image_digest: str = ""  # from its event, if only the tag is written
    project: str = ""
    target: str = ""  # as `Subscription.target`
    path: str = ""
    folder: str = ""  # the folder of the Application's state file
    source: str = ""  # the Application's source path
    kind: str = ""  # type of that source: "Helm", …
    keys: Keys = Keys()
    build: Build = Build()
    base: BaseThen = BaseThen()
    admitted: str = ""  # why it was admitted
    proof: str = ""
    promoted_from: str = ""
    event: str = ""  # the event's origin: "registry event, harbor"
    since: str = ""
    left_out: str = ""  # why it is not in the head branch's commit
    rollback: Meant | None = None  # set if it is a person's rollback
    skipped: tuple[str, ...] = ()  # the versions that the rollback skips

    @property
    def key(self) -> BuildKey:
        """The identity of the build's entry: Application, alias, image, target, path."""
        return (
            self.application,
            self.alias,
            parse_image(self.image).identity,
            self.target,
            self.path,
        )

    @property
    def declined_key(self) -> tuple[str, str, str]:
        """The identity of the build's entry in `declined`: Application, alias, image."""
        application, alias, image, _target, _path = self.key
        return application, alias, image


@dataclass(frozen=True)
class ListedRelease:
    """A hold on the base that a person has ended: it is already gone from the head branch, but
    still applies on the base until the merge.
    """

    application: str  # namespace/name
    folder: str  # the folder of the Application's state file
    file: str  # the write-back file, as in the state file
    image: str  # as in the state file; "" for the hold on the whole Application
    hold: Hold = Hold("")  # empty if no image was held
    deferred: str = ""  # the deferred version, which waits with the release or is dropped

    @property
    def app(self) -> tuple[str, str]:
        """The Application's namespace and name."""
        namespace, _, name = self.application.partition("/")
        return namespace, name

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of the hold."""
        return self.application, self.folder, self.file, self.image


@dataclass(frozen=True)
class DeclinedBuild:
    """A build that a person declined by closing its request."""

    application: str
    alias: str
    image: str
    written: Written
    url: str = ""  # URL of that request

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the build's entry: Application, alias, image."""
        return self.application, self.alias, parse_image(self.image).identity


@dataclass(frozen=True)
class WaitingList:
    """The builds waiting on one head branch, and the known state of that branch."""

    head: str
    builds: tuple[ListedBuild, ...] = ()
    releases: tuple[ListedRelease, ...] = ()
    declined: tuple[DeclinedBuild, ...] = ()
    request: KnownRequest | None = None
    commit: HeadCommit | None = None  # our last commit on the head branch
    # The commit before that, recorded until the last one is known to have arrived. Until then, the
    # branch is ours at either commit.
    replaces: HeadCommit | None = None
    arrived: bool = True  # whether the last commit is known to have arrived
    closing: str = ""  # why a run closes the request, which then does not count as declined

    @property
    def proposes_anything(self) -> bool:
        """Whether the list contains builds or releases to propose."""
        return bool(self.builds or self.releases)

    @property
    def empty(self) -> bool:
        """Whether the list contains nothing that a later run needs."""
        return not (self.proposes_anything or self.declined or self.closing or self.commit)

    def is_our_commit(self, tree: str, parent: str) -> bool:
        """Return whether a commit with this tree and parent is ours."""
        return bool(tree) and HeadCommit(tree, parent) in (self.commit, self.replaces)


def key_of_entry(sub: Subscription) -> BuildKey:
    """Return the key of a subscription's builds in a list: (Application, alias, image, target,
    path).
    """
    entry = sub.entry
    return sub.application.key, entry.alias, entry.image.identity, sub.target, sub.path


def list_path(head: str) -> str:
    """Return the path of a head branch's list on the memory branch, such as
    `.image-update/waiting/image-update%2Fweb-1a2b3c4d`.
    """
    raw = head.encode("utf-8", "surrogateescape")
    name = "".join(chr(byte) if byte in SPELLED else f"%{byte:02X}" for byte in raw)
    if len(name) > LONGEST_NAME:  # the hash distinguishes long names that begin alike
        name = f"{name[:50]}%{sha256(raw).hexdigest()}"
    return f"{FOLDER}/{name}"


def is_list_path(path: str) -> bool:
    """Return whether a path on the memory branch belongs to a list of waiting builds."""
    folder, _, name = path.rpartition("/")
    return folder == FOLDER and bool(name)


def list_of(files: Files, head: str) -> WaitingList:
    """Return a head branch's list of waiting builds from the memory branch's files, or an empty
    list if there is no file for it.

    Raises `TargetError` if the file is not a valid list.
    """
    file = files.get(list_path(head))
    if file is None:
        return WaitingList(head)
    if file.problem or file.mode != "100644":
        raise _unreadable_list(head, file.problem or "it is not a regular file")
    try:
        waiting_list = read_list(file.text)
    except TargetError as error:
        raise _unreadable_list(head, error.message) from error
    if waiting_list.head != head:
        raise _unreadable_list(head, f"it is the list for {waiting_list.head[:100]!r}")
    return waiting_list


def _unreadable_list(head: str, why: str) -> TargetError:
    """Return the error for an invalid list of the builds waiting on a head branch. `why` is the
    reason.
    """
    message = f"cannot read the list of builds waiting on {head}: {why}"
    hint = (
        "delete this file from the memory branch; each waiting image will return with its next"
        " build"
    )
    return TargetError(message, hint=hint, subject=list_path(head))


def read_list(text: str) -> WaitingList:
    """Parse the YAML of a list of waiting builds. Raises `TargetError`, with the line if it is
    known.
    """
    if len(text) > LARGEST:
        raise TargetError("it is larger than 1 MB")
    tree = parse(text)
    if len(tree.roots) != 1:
        raise TargetError("it must be a single YAML document")
    try:
        return _whole_list(_plain_value(tree.root, 0))
    except Malformed as error:
        raise TargetError(error.message) from error


def write_list(waiting_list: WaitingList) -> str:
    """Return a list of waiting builds as YAML that `read_list` can parse."""
    # `vars` works because the fields have the same names in the file
    releases = [{**vars(release), "hold": vars(release.hold)} for release in waiting_list.releases]
    declined_builds = [
        {
            "application": declined.application,
            "alias": declined.alias,
            "image": declined.image,
            "build": _data_of_written(declined.written),
            "request": declined.url,
        }
        for declined in waiting_list.declined
    ]
    data: dict[str, object] = {
        "version": VERSION,
        "head": waiting_list.head,
        "commit": _commit_data(waiting_list.commit),
        "replaces": _commit_data(waiting_list.replaces),
        "arrived": "" if waiting_list.arrived else "unknown",
        "closing": waiting_list.closing,
        "request": vars(waiting_list.request) if waiting_list.request else {},
        "builds": [_build_data(build) for build in waiting_list.builds],
        "releases": releases,
        "declined": declined_builds,
    }
    return ABOUT + "".join(f"{line}\n" for line in _block_lines(data))


def _commit_data(commit: HeadCommit | None) -> Data:
    """Return a commit as a mapping for the file, or an empty mapping if there is no commit."""
    return vars(commit) if commit else {}


def _data_of_written(written: Written | None) -> Data:
    """Return a build that was written to Git as a mapping for the file, or an empty mapping if
    there is no build.
    """
    if written is None:
        return {}
    return {
        "tag": written.tag,
        "digest": written.digest,
        "imageDigest": written.image_digest,
        **_identity_data(written.build),
    }


def _identity_data(build: Build) -> Data:
    """Return a build's position in the order of builds (counter, commit, time) as a mapping for the
    file.
    """
    return {**vars(build), "sequence": "" if build.sequence is None else str(build.sequence)}


def _build_data(listed: ListedBuild) -> Data:
    """Return a waiting build as a mapping for the file."""
    base = {
        "tag": listed.base.tag,
        "digest": listed.base.digest,
        "written": _data_of_written(listed.base.written),
        "replaced": list(listed.base.replaced),
    }
    return {
        "application": listed.application,
        "project": listed.project,
        "alias": listed.alias,
        "image": listed.image,
        "tag": listed.tag,
        "digest": listed.digest,
        "imageDigest": listed.image_digest,
        "since": listed.since,
        "leftOut": listed.left_out,
        "admitted": listed.admitted,
        "proof": listed.proof,
        "promotedFrom": listed.promoted_from,
        "event": listed.event,
        "build": _identity_data(listed.build),
        "base": base,
        "target": {"kind": listed.target, "path": listed.path, "keys": _keys_data(listed.keys)},
        "folder": listed.folder,
        "source": {"path": listed.source, "kind": listed.kind},
        "rollback": vars(listed.rollback) if listed.rollback else {},
        "skipped": list(listed.skipped),
    }


KEY_NAMES = {
    "name": "name",
    "tag": "tag",
    "spec": "spec",
    "kustomizeName": "kustomize_name",
    "manifestsName": "manifests_name",
    "digest": "digest",
}


def _keys_data(keys: Keys) -> Data:
    """Return a write-back target's keys as a mapping for the file, keyed by their names in the
    file.
    """
    return {name: getattr(keys, field_name) for name, field_name in KEY_NAMES.items()}


def _block_lines(data: Data) -> list[str]:
    """Return the data as lines of YAML in block style. Empty values are left out."""
    lines: list[str] = []
    for key, value in data.items():
        if isinstance(value, Mapping):
            nested_lines = _block_lines(value)
            if nested_lines:
                lines.append(f"{key}:")
                lines += [f"  {line}" for line in nested_lines]
        elif isinstance(value, list):
            if value:
                lines.append(f"{key}:")
            for item in value:
                lines += _item_lines(item)
        elif value:
            lines.append(f"{key}: {_quoted_word(str(value))}")
    return lines


def _item_lines(item: object) -> list[str]:
    """Return the lines of YAML for one list item: `- ` before the first line, and the other lines
    indented to match.
    """
    if not isinstance(item, Mapping):
        return [f"- {_quoted_word(str(item))}"]
    first_line, *other_lines = _block_lines(item)
    return [f"- {first_line}", *(f"  {line}" for line in other_lines)]


def _quoted_word(text: str) -> str:
    """Return a string as a YAML scalar, quoted if necessary."""
    return spell(text.encode("utf-8", "replace").decode())


def _plain_value(node: Node, depth: int) -> object:
    """Return the string, list, or mapping that a YAML node represents. Raises `Malformed` for any
    other YAML feature, and for values that are too large.

    `depth` is the number of lists and mappings around the node.
    """
    has_other_feature = bool(node.anchor or node.tag or node.kind == "alias")
    if depth > DEEPEST or has_other_feature:
        raise Malformed("it has an anchor, an alias, a tag, or too many levels")

    if node.kind == "scalar":
        if len(node.value) > LONGEST_WORD:
            raise Malformed(f"a value has more than {LONGEST_WORD} characters")
        return "" if node.null else node.value  # `key: null` and `key: ~` are empty, like `key:`

    if node.kind == "sequence":
        # one more item than allowed, so that `each` still reports a list that is too long
        first_children = node.children[: MOST_BUILDS + 1]
        return [_plain_value(child, depth + 1) for child in first_children]

    values: dict[str, object] = {}
    for key, value in pairs(node):
        if key.kind != "scalar" or key.value in values:
            raise Malformed(f"the key {key.value[:50]!r} appears twice or is not a string")
        values[key.value] = _plain_value(value, depth + 1)
    return values


@dataclass(frozen=True)
class _FieldsOf:
    """A reader that reads each field of a mapping once. `end` rejects fields that were not read."""

    what: str  # the name of the mapping in error messages
    data: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, what: str, value: object) -> _FieldsOf:
        """Return the fields of a parsed value. `what` names it in error messages."""
        if value in ("", None):
            return cls(what)
        if not isinstance(value, dict):
            raise Malformed(f"{what} is not a mapping")
        return cls(what, dict(value))

    def word(self, name: str, pattern: str = "") -> str:
        """Return a string field, or "" if it is missing. Raises `Malformed` if the value is not a
        string, or does not match the regular expression `pattern`.
        """
        error = Malformed(f"{name} in {self.what} has an unexpected value")
        value = self.data.pop(name, "")
        if not isinstance(value, str):
            raise error
        if value and pattern and not re.fullmatch(pattern, value):
            raise error
        return value

    def needed(self, name: str, pattern: str = "") -> str:
        """Return a string field that must not be missing or empty."""
        value = self.word(name, pattern)
        if not value:
            raise Malformed(f"{name} is missing in {self.what}")
        return value

    def time(self, name: str) -> str:
        """Return a timestamp in UTC, or "" if it is missing."""
        value = self.word(name)
        return utc(value) if value else ""

    def part(self, name: str) -> _FieldsOf:
        """Return the fields of a nested mapping. There are none if the mapping is missing."""
        return _FieldsOf.of(name, self.data.pop(name, None))

    def each(self, name: str, read: Callable[[object], T]) -> tuple[T, ...]:
        """Return the items of a list field, each converted by the function `read`. Raises
        `Malformed` if the value is not a list or is too long.
        """
        value = self.data.pop(name, [])
        if value == "":  # an empty value in the file
            return ()
        if not isinstance(value, list) or len(value) > MOST_BUILDS:
            raise Malformed(f"{name} is not a list or has more than {MOST_BUILDS} items")
        return tuple(read(item) for item in value)

    def end(self) -> None:
        """Raise `Malformed` if a field was not read."""
        if self.data:
            unread = next(iter(self.data))
            raise Malformed(f"{self.what} has an unknown field {unread[:50]!r}")


_OID = "[0-9a-f]{40}|[0-9a-f]{64}"
_APPLICATION = r"[^\s/]{0,253}/[^\s/]{1,253}"
_STATE = "open|merged|closed|gone"


def _whole_list(data: object) -> WaitingList:
    """Return the list of waiting builds, created from the file's plain values. Raises `Malformed`
    for a missing, unknown, or unexpected value.
    """
    fields = _FieldsOf.of("the list", data)
    fields.needed("version", VERSION)  # raises an error for any other version
    head = fields.needed("head")
    request = fields.part("request")
    waiting_list = WaitingList(
        head=head,
        builds=fields.each("builds", _listed_build),
        releases=fields.each("releases", _release),
        declined=fields.each("declined", _declined_build),
        request=_request(request) if request.data else None,
        commit=_head_commit(fields.part("commit")),
        replaces=_head_commit(fields.part("replaces")),
        arrived=not fields.word("arrived", "unknown"),  # "" or "unknown"
        closing=fields.word("closing"),
    )
    fields.end()

    distinct_entries = {build.key for build in waiting_list.builds}
    if len(distinct_entries) != len(waiting_list.builds):
        raise Malformed("two builds are for the same entry")
    distinct_holds = {release.key for release in waiting_list.releases}
    if len(distinct_holds) != len(waiting_list.releases):
        raise Malformed("two releases are for the same hold")
    return waiting_list


def _head_commit(fields: _FieldsOf) -> HeadCommit | None:
    """Return our commit on the head branch, or None if the mapping is empty."""
    if not fields.data:
        return None
    commit = HeadCommit(fields.needed("tree", _OID), fields.word("parent", _OID))
    fields.end()
    return commit


def _request(fields: _FieldsOf) -> KnownRequest:
    """Return the head branch's pull request, as the last run saw it."""
    request = KnownRequest(
        number=fields.needed("number", "[0-9]{1,20}"),
        url=fields.word("url"),
        state=fields.needed("state", _STATE),
    )
    fields.end()
    return request


def _identity_of_build(fields: _FieldsOf) -> Build:
    """Return a build's position in the order of builds: its sequence number, counter, commit, and
    time.

    `fields.end` is not called, because the mapping may have other fields too.
    """
    number = fields.word("sequence", "[0-9]{1,20}")
    return Build(
        sequence=int(number) if number else None,
        counter=fields.word("counter"),
        commit=fields.word("commit"),
        repository=fields.word("repository"),
        created=fields.time("created"),
    )


def _written_build(fields: _FieldsOf) -> Written:
    """Return a build that was written: its version, and its position in the order of builds."""
    tag = fields.word("tag")
    digest = fields.word("digest")
    image_digest = fields.word("imageDigest")
    written = Written(tag, digest, _identity_of_build(fields), image_digest)
    fields.end()
    return written


def _declined_build(data: object) -> DeclinedBuild:
    """Return a build that a person has declined by closing its pull request."""
    fields = _FieldsOf.of("a declined build", data)
    declined = DeclinedBuild(
        application=fields.needed("application", _APPLICATION),
        alias=fields.word("alias"),
        image=parse_image(fields.needed("image")).name,
        written=_written_build(fields.part("build")),
        url=fields.word("request"),
    )
    fields.end()
    return declined


def _listed_build(data: object) -> ListedBuild:
    """Return a waiting build from its mapping in the file. Raises `Malformed` for a missing,
    unknown, or unexpected value.
    """
    fields = _FieldsOf.of("a build", data)
    target = fields.part("target")
    source = fields.part("source")
    keys = target.part("keys")
    identity = fields.part("build")
    base = fields.part("base")
    rollback = fields.part("rollback")
    listed = ListedBuild(
        application=fields.needed("application", _APPLICATION),
        project=fields.word("project"),
        alias=fields.word("alias"),
        image=parse_image(fields.needed("image")).name,
        tag=fields.word("tag"),
        digest=fields.word("digest"),
        image_digest=fields.word("imageDigest"),
        since=fields.time("since"),
        left_out=fields.word("leftOut"),
        admitted=fields.word("admitted"),
        proof=fields.word("proof"),
        promoted_from=fields.word("promotedFrom"),
        event=fields.word("event"),
        target=target.needed("kind"),
        path=_inside_repository(target.word("path")),
        keys=Keys(**{field_name: keys.word(name) for name, field_name in KEY_NAMES.items()}),
        folder=_inside_repository(fields.word("folder")),
        source=_inside_repository(source.word("path")),
        kind=source.word("kind", "Helm|Kustomize|Plugin|Directory"),
        build=_identity_of_build(identity),
        base=_base_when_listed(base),
        rollback=_meant_rollback(rollback) if rollback.data else None,
        skipped=fields.each("skipped", _string_item),
    )
    for part in (fields, target, source, keys, identity):  # the others have already been checked
        part.end()  # raises an error for fields that were not read
    _refuse_invalid_version(listed)
    return listed


def _refuse_invalid_version(listed: ListedBuild) -> None:
    """Raise `Malformed` if the tag or digest is invalid, or if both are missing."""
    reference = listed.image
    if listed.tag:
        reference += f":{listed.tag}"
    if listed.digest:
        reference += f"@{listed.digest}"
    parse_image(reference)  # raises `Malformed` if the tag or digest is invalid
    if not listed.tag and not listed.digest:
        raise Malformed("a build has neither a tag nor a digest")


def _release(data: object) -> ListedRelease:
    """Return a release (a hold that a person has ended) from its mapping in the file."""
    fields = _FieldsOf.of("a release", data)
    hold = fields.part("hold")
    release = ListedRelease(
        application=fields.needed("application", _APPLICATION),
        folder=_inside_repository(fields.word("folder")),
        file=fields.needed("file"),
        image=fields.word("image"),
        hold=Hold(
            reason=hold.word("reason"),
            by=hold.word("by"),
            at=hold.time("at"),
            until=hold.time("until"),
        ),
        deferred=fields.word("deferred"),
    )
    fields.end()
    hold.end()
    return release


def _base_when_listed(fields: _FieldsOf) -> BaseThen:
    """Return the base branch's version of an image when a build was listed, and what was remembered
    about the image then.
    """
    written = fields.part("written")
    base = BaseThen(
        tag=fields.word("tag"),
        digest=fields.word("digest"),
        written=_written_build(written) if written.data else None,
        replaced=fields.each("replaced", _string_item),
    )
    fields.end()
    return base


def _meant_rollback(fields: _FieldsOf) -> Meant:
    """Return a rollback: its target, and the version that it replaces."""
    rollback = Meant(
        to=fields.word("to"),
        tag=fields.word("tag"),
        digest=fields.word("digest"),
        was=fields.word("was"),
    )
    fields.end()
    return rollback


def _string_item(value: object) -> str:
    """Return an item of a list of strings. Raises `Malformed` if it is empty or not a string."""
    if not isinstance(value, str) or not value:
        raise Malformed("an item is not a string")
    return value


def _inside_repository(path: str) -> str:
    """Return the path if it is inside the repository and in its shortest form (without `.`, `..`,
    and double slashes). Raises `Malformed` otherwise.
    """
    shortest = posixpath.normpath(path) if path else ""
    is_outside = shortest.startswith(("/", ".."))
    if is_outside or "\0" in shortest or shortest != path.rstrip("/"):
        raise Malformed(f"{path[:100]!r} is not a path inside the repository")
    return path


def declined_by(waiting_list: WaitingList, url: str) -> WaitingList:
    """Return the list after a person has closed its pull request: all waiting builds are declined.

    `url` is the URL of the request. Only the newest declined builds are remembered.
    """
    newly_declined: dict[tuple[str, str, str], DeclinedBuild] = {}
    for build in waiting_list.builds:
        written = Written(build.tag, build.digest, build.build)
        newly_declined[build.declined_key] = DeclinedBuild(
            application=build.application,
            alias=build.alias,
            image=build.image,
            written=written,
            url=url,
        )
    others = [build for build in waiting_list.declined if build.key not in newly_declined]
    all_declined = (*others, *newly_declined.values())
    newest_declined = all_declined[-MOST_BUILDS:]  # `read_list` rejects a longer list
    return replace(waiting_list, builds=(), releases=(), declined=newest_declined)

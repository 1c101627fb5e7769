"""The domain types. All are frozen, so a change creates a new value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from task.errors import Exit, TaskError, Trouble, Troubled
from task.proof import Demand, Proof

Strategy = Literal["semver", "newest-build", "alphabetical", "digest"]
Kind = Literal["Helm", "Kustomize", "Plugin", "Directory", ""]
TargetKind = Literal[
    "helm-override",
    "kustomize-override",
    "plugin-override",
    "kustomization",
    "helmvalues",
    "manifests",
    "live",
    "flux",
]
VerdictName = Literal["update", "unchanged", "refuse", "defer", "error"]
Through = Literal["git", "github"]  # how to commit: with git and a push, or through the GitHub API
Grouping = Literal["repository", "project", "application", "image"]


class Versioned:
    """A record with a tag and a digest, each of which may be ""."""

    tag: str
    digest: str

    @property
    def version(self) -> str:
        """Return `tag`, `tag@digest`, or just the digest."""
        if self.tag and self.digest:
            return f"{self.tag}@{self.digest}"
        return self.tag or self.digest


@dataclass(frozen=True)
class Image(Versioned):
    """An image reference: `name` as written, `registry` and `repository` in normal form."""

    name: str  # as written, without tag and digest: "nginx", "localhost:5000/acme/api"
    registry: str  # "docker.io" if the name has none
    repository: str  # "library/nginx", "acme/api"
    tag: str = ""
    digest: str = ""  # "sha256:…"

    @property
    def identity(self) -> str:
        """The repository in normal form.

        It is the same for `nginx` and `docker.io/library/nginx`.
        """
        return f"{self.registry}/{self.repository}"

    @property
    def reference(self) -> str:
        """The full reference, as container runtimes accept it."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}@{self.digest}" if self.digest else f"{self.name}{tag}"


@dataclass(frozen=True)
class Entry:
    """An entry in `image-list`: `alias=name:constraint@digest`."""

    alias: str  # "" if the entry has none
    image: Image  # without a tag; the digest is as written, and is ignored, as in AIU
    constraint: str  # the tag part, trimmed; "" if the entry has none
    text: str  # as written, trimmed


@dataclass(frozen=True)
class Parameter:
    """A Helm parameter of an Application's source."""

    name: str
    value: str
    force_string: bool = False


@dataclass(frozen=True)
class Source:
    """The parts of an Application's source that a write-back needs."""

    repo: str
    path: str = ""
    revision: str = ""  # "" and "HEAD": the repository's default branch
    chart: str = ""
    ref: str = ""
    kind: Kind = ""  # from the status, otherwise from the section in the spec; "" until Git is read
    section: Kind = ""  # the section in the spec for this source
    parameters: tuple[Parameter, ...] = ()  # helm.parameters
    images: tuple[str, ...] = ()  # kustomize.images
    env: tuple[tuple[str, str], ...] = ()  # plugin.env
    value_files: tuple[str, ...] = ()  # helm.valueFiles
    values: str = ""  # helm.valuesObject, else helm.values, as YAML
    values_field: str = ""  # which of the two fields that is
    file_parameters: tuple[str, ...] = ()  # the names in helm.fileParameters
    recurse: bool = False  # directory.recurse
    name: str = ""  # the name of one of several sources, for Argo CD's own commands


@dataclass(frozen=True)
class KeySecret:
    """A field of a Kubernetes Secret with the public key that an image's signature is verified
    with.
    """

    namespace: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.key})"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an Application is deployed. The spec has the cluster's URL or name."""

    server: str = ""
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class Tracker:
    """A resource that tracks images and is deployed from Git: an Argo CD Application, or a Flux v1
    HelmRelease.
    """

    namespace: str
    name: str
    # Image Updater's, without the annotation prefix
    annotations: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    live: tuple[str, ...] = ()  # the running images, as written
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""  # "apps/web.yaml:12", "cluster"
    # Only for Applications; "" also means unknown.
    project: str = ""
    destination: Destination = Destination()
    sync: str = ""  # status.sync.status
    health: str = ""  # status.health.status
    generated_by: str = ""  # namespace/name of the ApplicationSet that it was rendered from
    request_labels: tuple[str, ...] = ()  # for its pull requests, from its ImageUpdater

    @property
    def key(self) -> str:
        """`namespace/name`, its name in reports and messages."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Application(Tracker):
    """An Argo CD Application, with the data needed to read its annotations."""

    multi: bool = False  # whether it has spec.sources instead of spec.source
    from_resource: frozenset[str] = frozenset()  # the annotations that were set by its ImageUpdater
    resource: str = ""  # namespace/name of that ImageUpdater
    resource_origin: str = ""  # its location, like `origin`
    reference: str = ""  # the reference of an ImageUpdater that selects it, as in messages
    # By alias, from its ImageUpdater, because there is no annotation for this; "" means every
    # image.
    signing_keys: Mapping[str, KeySecret] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """Which tags an entry accepts, and which of two tags is newer."""

    strategy: Strategy = "semver"
    constraints: tuple[
        str, ...
    ] = ()  # the entry's constraint and that of `semver:<constraint>`; all of them must match
    allow: str | None = None  # RE2 pattern, unanchored; None means any tag
    ignore: tuple[str, ...] = ()  # Go filepath.Match globs
    platforms: tuple[str, ...] = ()
    pin_digest: bool = False
    pull_secret: str = ""  # the annotation with the registry credentials
    tag_order: str = ""  # the tag order, as written; "" means the strategy's order
    minimum_age: int = 0  # seconds, for `scan` and `promote`


@dataclass(frozen=True)
class Keys:
    """The keys of an image in a target, from the per-image annotations; "" without such an
    annotation.
    """

    name: str = ""  # helm.image-name / plugin.image-name
    tag: str = ""  # helm.image-tag / plugin.image-tag
    spec: str = ""  # helm.image-spec / plugin.image-spec; wins over name and tag
    kustomize_name: str = ""  # kustomize.image-name
    manifests_name: str = ""  # manifests.image-name
    digest: str = ""  # helm.image-digest


@dataclass(frozen=True)
class Claim:
    """An image-list entry, and the names of its image in a target; "" without such an
    annotation.
    """

    alias: str
    identity: str  # of its image
    tag: str = ""
    kustomize_name: str = ""
    manifests_name: str = ""


@dataclass(frozen=True)
class Target:
    """A place to write: a file (or, for `kustomization` and `manifests`, a folder) and the keys in
    it.
    """

    kind: TargetKind
    path: str  # from the repository's root, "/"-separated, no leading "/", no ".."; "" is the root
    keys: Keys
    image: Image  # the entry's image; its spelling is used if the file does not have a name yet
    source: Source  # the Application's source; its parameters, images, and env are carried along
    application: str = ""  # namespace/name
    alias: str = ""
    recurse: bool = False  # for manifests: include subfolders
    # other spellings of `path`, used if they exist and `path` does not
    fallbacks: tuple[str, ...] = ()
    # whether the spec's parameters, images, and env are carried along; None means only into our own
    # lists and new ones
    carry: bool | None = None
    managed: tuple[
        str, ...
    ] = ()  # parameters, image identities, and variables that any alias of the Application writes
    others: tuple[Claim, ...] = ()  # the Application's other image-list entries
    values: tuple[
        str, ...
    ] = ()  # the values files in this repository that Helm reads, in Helm's order


@dataclass(frozen=True)
class File:
    """A path in a snapshot. Absent paths do not have a File."""

    text: str  # "" for anything other than a requested regular file
    mode: str = "100644"  # Git's: 100644, 100755, 120000 symlink, 160000 submodule, 040000 folder
    # why it cannot be edited: "not UTF-8 text", "larger than 10 MB", …
    problem: str = ""


Files = Mapping[str, File]


@dataclass(frozen=True)
class Place:
    """A path that a snapshot must contain: a file's content, whether it exists, or all manifests in
    a folder.

    `names` means all files in a folder and its subfolders, without their contents. `files` adds
    their contents and links.
    """

    path: str
    want: Literal["text", "exists", "folder", "tree", "names", "files"] = "text"


@dataclass(frozen=True)
class Snapshot:
    """The requested files at one commit of the base branch."""

    repo: str
    branch: str  # the base branch's name, "HEAD" resolved
    tip: str  # commit id
    files: Files
    message: str = ""  # that commit's message
    memory_files: Files = field(default_factory=dict)  # on the memory branch: states and lists
    memory_tip: str = ""  # "" if there is no such branch
    # the name and tip of the memory branch that `memory_files` comes from, if this base has no
    # memory branch, and has taken over the one of a base that is gone
    inherited: tuple[str, str] | None = None
    renamed_from: str = ""  # the base that is gone
    # memory branches whose base is gone, and which this base cannot take over, each with the name
    # of its base
    orphaned: tuple[tuple[str, str], ...] = ()
    prefix: str = "image-update"  # of our own branches
    # the part of the memory branch that is ignored because no allowed key signed it, in words
    unsigned: str = ""
    # the files at the default branch's tip, if that is a different commit
    default: Files = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """The tip of a head branch."""

    branch: str
    tip: str  # commit id
    tree: str
    parent: str  # "" if the commit does not have exactly one parent
    message: str = ""
    by: str = ""  # the commit's author


@dataclass(frozen=True)
class Reading(Versioned):
    """The current image in a target. All fields are "" if the target does not have the image."""

    name: str = ""
    tag: str = ""
    digest: str = ""
    # False if the target must be rewritten even though its text is right, such as the number 1.10
    sound: bool = True
    file: str = ""  # the file to write
    # tags of the image's other entries, which an update also replaces
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edit:
    """A changed scalar, for commit messages and reports."""

    path: str
    key: str
    old: str
    new: str


@dataclass(frozen=True)
class Person:
    """The author and committer of a commit."""

    name: str
    email: str


@dataclass(frozen=True)
class Changeset:
    """The commit to create on top of `tip`, for one head branch."""

    repo: str  # the Application's own URL, without userinfo
    base: str  # a branch name
    head: str  # the base, unless `git-branch` or a pull request uses a different branch
    tip: str
    files: Files  # only changed files, with their new content and mode
    message: str
    author: Person
    # the head branch's tip; "" if it does not exist, None if it was not read
    head_commit: str | None = None
    # the head branch belongs to someone else: the commit is on top of the branch's own tip, `tip`
    on_top: bool = False
    push_options: tuple[str, ...] = ()  # for the server


@dataclass(frozen=True)
class LandedCommit:
    """The result of landing a changeset."""

    commit: str  # "" for a prediction
    tree: str
    pushed: bool = True  # False if the head branch already had exactly this
    through: Through = "git"
    memory_commit: str = ""  # the memory branch's commit that was pushed with it


@dataclass(frozen=True)
class FileVersion:
    """A version of a file on a branch, and the commit that wrote it. The commit's fields are "" if
    it is too far back.
    """

    text: str | None  # None if there was no file, or if it is not text
    commit: str = ""
    at: str = ""  # RFC 3339, UTC
    by: str = ""  # the author's name
    message: str = ""


Fact = Literal["exists", "digest", "created", "platforms", "labels", "tags"]


@dataclass(frozen=True)
class Question:
    """Facts about an image that a rule needs and that are not in the event or in Git.

    They come from a registry.
    """

    image: Image  # with the tag, the digest, or both
    facts: tuple[Fact, ...]
    platforms: tuple[
        str, ...
    ] = ()  # "os/arch[/variant]": only these members of an index count; () means all
    secret: str = ""  # the `pull-secret` annotation, as written
    namespace: str = ""  # the Application's, because it may use secrets there
    signed_by: KeySecret | None = None  # for a question about signatures, like the next field
    demands: tuple[Demand, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A registry's response. Facts that were not requested are empty."""

    exists: bool = True
    digest: str = ""  # of the tag's manifest, which may be an index
    created: str = ""  # RFC 3339, UTC, "2026-11-21T06:00:00.123Z"; "" without a date
    platforms: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()  # of the image's repository
    error: TaskError | None = None  # why there is no response


@dataclass(frozen=True)
class Proposal:
    """The desired state of a pull request. There is one for each repository, base, and head."""

    repo: str  # the Application's own URL
    base: str
    head: str
    title: str
    body: str
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    draft: bool = False
    auto_merge: bool = False
    prefix: str = "image-update"  # of our own head branches


@dataclass(frozen=True)
class Proposed:
    """The current state of a pull request."""

    url: str  # the web page
    number: str
    # "gone" means closed by the forge because its branch was deleted
    state: Literal["open", "merged", "closed", "gone"]
    title: str = ""
    body: str = ""
    head_commit: str = ""
    merge_commit: str = ""  # "" unless the request was merged
    conflicts: bool = False  # with its base, according to the forge
    # whether the forge will merge it automatically; None if unknown
    auto_merge: bool | None = None
    thrown_out: str = ""  # why the merge queue removed it; "" if it did not, or if a person did
    note: str = ""  # a harmless failure, such as "GitHub cannot merge automatically here: …"


Fate = Literal["waits", "merged", "superseded", "deferred", "dropped"]


@dataclass(frozen=True)
class HeadBuildRow:
    """A build that was waiting on a head branch before this run, and what happened to it."""

    # namespace/name; "" for lines of a file that are not about an Application of this run
    application: str
    alias: str
    tag: str
    digest: str
    head: str
    outcome: Fate
    because: str
    pull_request: str = ""  # its page


@dataclass(frozen=True)
class Build:
    """A build's position in the order of an image's builds; "" and None mean unknown."""

    sequence: int | None = None
    # the counter of `sequence`, because numbers from two counters cannot be compared; "" for
    # --sequence
    counter: str = ""
    commit: str = ""
    repository: str = ""  # the commit's repository, without userinfo
    created: str = ""  # RFC 3339, UTC


@dataclass(frozen=True)
class Event:
    """A push of an image, as reported by a registry or a pipeline."""

    image: Image  # with a tag; an image from a pipeline may have only a digest
    form: str = ""  # the form: "harbor", "quay", …; "lines" is our own
    at: str = ""  # RFC 3339, UTC; when it happened, according to the registry
    build: Build = Build()  # from our own lines
    run: str = ""  # the page of the pipeline that built it, from our own lines
    claimed: bool = True  # whether the registry has to confirm it

    @property
    def origin(self) -> str:
        """Where the build is from, as a phrase: `registry event, harbor`."""
        if self.claimed:
            return f"registry event, {self.form}"
        return f"pipeline event, {self.run}" if self.run else "pipeline event"


@dataclass(frozen=True)
class Written(Versioned):
    """A build of an image, as in the state file."""

    tag: str = ""
    digest: str = ""
    build: Build = Build()
    image_digest: str = ""  # the digest from its event, if only the tag is written


@dataclass(frozen=True)
class Hold:
    """What stops updates of one image or of all images of an Application: a person's hold, or a
    freeze.
    """

    reason: str
    by: str = ""
    at: str = ""  # RFC 3339, UTC
    until: str = ""  # RFC 3339, UTC; "" means until released
    source: str = ""  # for a freeze: its location in the config

    @property
    def is_freeze(self) -> bool:
        """Whether this is a freeze in the repository's config, rather than a person's hold."""
        return self.source != ""


@dataclass(frozen=True)
class Meant(Versioned):
    """The last rollback: its target, the version that the target stood for, and the version that
    was replaced.
    """

    to: str  # "previous" or "3-back"; "" for a tag
    tag: str = ""
    digest: str = ""
    was: str = ""  # on a head branch, this means that a person's rollback is waiting there


@dataclass(frozen=True)
class Memory:
    """The memory of an image-list entry."""

    written: Written | None = None  # the newest build that was ever written
    # Versions (`tag`, `tag@digest`, or digest) that a repeated run must not restore; newest first.
    replaced: tuple[str, ...] = ()
    # Versions whose rollout failed after a newer build had landed; newest first. Rollbacks that
    # look for a good version skip them.
    failed: tuple[str, ...] = ()
    hold: Hold | None = None
    deferred: Written | None = None  # the newest build that a hold or a freeze kept back
    rollback: Meant | None = None


@dataclass(frozen=True)
class State:
    """The hold and the images' memories of an Application in a write-back file.

    A state file has one State for each write-back file.
    """

    hold: Hold | None = None  # on all images
    # By alias. The key of an entry without an alias is its image's name, as spelled in
    # `image-list`.
    images: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True)
class Writes:
    """The files and branches that the repository's config allows Applications to write, as globs;
    None means any.
    """

    paths: tuple[str, ...] | None = None
    branches: tuple[str, ...] | None = None
    line: int = field(default=0, compare=False)  # in the config
    only: str = ""  # the only file that this applies to; "" means all of them


@dataclass(frozen=True)
class Wishes:
    """An Application's settings in the repository's config; None if not set."""

    author_name: str | None = None
    author_email: str | None = None
    # the path of the commit message template, from the repository's root
    template: str | None = None
    trailers: tuple[tuple[str, str], ...] | None = None
    sign_off: bool | None = None
    pull_request: bool | None = None
    group: Grouping | None = None  # which updates share a pull request
    labels: tuple[str, ...] | None = None
    reviewers: tuple[str, ...] | None = None
    assignees: tuple[str, ...] | None = None
    draft: bool | None = None
    auto_merge: bool | None = None
    pin_digest: bool | None = None
    tag_order: str | None = None
    push_options: tuple[str, ...] | None = None
    minimum_age: int | None = None  # seconds
    writes: Writes | None = None
    signatures: Demand | None = None
    provenance: Demand | None = None
    branch_prefix: str | None = None  # for our own branches; only for the whole repository


@dataclass(frozen=True)
class Tracked:
    """An image that an Application or HelmRelease tracks.

    This is known even if its annotations are invalid.
    """

    application: Tracker
    entry: Entry


@dataclass(frozen=True)
class Subscription(Tracked):
    """A write-back target of an image-list entry: which tags the Application accepts, and where to
    write them.
    """

    policy: Policy
    keys: Keys
    source: Source
    target: str  # "override", "kustomization", "helmvalues", "manifests", "file", "flux"
    path: str  # of the target, from the repository's root; for "override", of the file
    repo: str  # the Application's own URL
    base: str = ""  # "" means the repository's default branch
    head_template: str = ""  # the part of `git-branch` after the colon; "" means the base branch
    method: Literal["git", "argocd"] = "git"
    credentials: str = ""  # "secret:ns/name"; "" means the credentials for the URL
    fallbacks: tuple[str, ...] = ()
    managed: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()  # for all entries of the Application, including this one
    pull_request: bool = False
    # the folder of the Application's first write-back file in this repository, which determines the
    # state's path
    home: str = ""
    # Paths of the same entry's other targets on the same branch, which also get the version.
    beside: tuple[str, ...] = ()
    locked: str = ""  # why Flux's own annotations stop updates, or ""
    # the key that must have signed the image, in addition to the command line's requirements
    signed_by: KeySecret | None = None
    wishes: Wishes = Wishes()  # from the repository's config, once read
    freeze: Hold | None = None  # the active freeze in the repository's config
    writes: tuple[
        Writes, ...
    ] = ()  # from the configs of all relevant branches; each must allow the change
    demands: tuple[
        Demand, ...
    ] = ()  # from the configs of the branches to write to, with the content of their keys
    neighbour: str = ""  # another Application whose path contains the file: namespace/name

    def image_at(self, version: Versioned) -> Image:
        """Return the entry's image with this tag and digest."""
        return replace(self.entry.image, tag=version.tag, digest=version.digest)

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """The fields that identify it. The repository's config does not change them."""
        return self.application.key, self.entry.text, self.repo, self.target, self.path


@dataclass(frozen=True, kw_only=True)
class Problem(Troubled):
    """An element of `errors[]`: a trouble of this run, and where it is."""

    trouble: Trouble = field(kw_only=False)
    application: str = ""  # namespace/name; "" if it is not about an Application
    key: str = ""  # the annotation, without its prefix
    value: str = ""
    # whether it is advice about an unread source rather than a mistake
    advice: bool = False
    field: tuple[
        str | int, ...
    ] = ()  # in the manifest of the message: ("spec", "applicationRefs", 0)
    place: str = ""  # `file:line` in the repository that `check` judges


@dataclass(frozen=True)
class Flaw(Troubled):
    """A mistake in an annotation, and the entry whose update it prevents."""

    text: str  # the image-list entry as written; "" for a key that does not belong to an entry
    entry: Entry | None  # None if the entry itself cannot be parsed
    key: str  # the annotation, without its prefix
    value: str
    trouble: Trouble
    misspelled: bool = False  # whether the key is misspelled: it is similar to a known key
    strategy: Strategy | None = None  # the entry's strategy, if the annotation is valid


@dataclass(frozen=True)
class Subscribed:
    """The Subscriptions from an Application's annotations, and the flaws in the annotations."""

    application: Tracker
    subscriptions: tuple[Subscription, ...]
    flaws: tuple[Flaw, ...]


@dataclass(frozen=True)
class Verdict:
    """The rules' decision, with the reason in one sentence."""

    verdict: VerdictName
    rule: str
    because: str
    hint: str = ""  # what to do about an error
    exit: Exit = Exit.CONFIGURATION  # of a run with this error

    @classmethod
    def of(cls, trouble: Trouble) -> Verdict:
        """Return the error verdict for this trouble."""
        return cls("error", trouble.rule, trouble.message, trouble.hint, trouble.exit)

    @property
    def trouble(self) -> Trouble:
        """The verdict as a trouble."""
        return Trouble(self.rule, self.because, self.hint, exit=self.exit)


@dataclass(frozen=True)
class Compared:
    """The two sides that `check` compares: a base and a change."""

    base: str  # a branch, tag, or commit
    head: str
    repository: str = ""  # its URL; "" is the checkout in the current directory
    # the branch that the change will be merged into, according to the CI system. Its current tip is
    # the base, unless `base` is a commit: in a merge queue, that commit includes the requests
    # before this one
    branch: str = ""
    # the forge's merge of the two sides; it only counts if these are its parents
    merge: str = ""


@dataclass(frozen=True)
class Judged:
    """The verdict on a tracked image and a candidate, as shown in a report."""

    subscription: Tracked
    candidate: Image
    judged: Verdict
    current: Reading = Reading()
    branch: str = ""  # the base branch's name in Git; "" if Git was not read
    head: str = ""  # the branch to write to: the base branch or a head branch
    kind: TargetKind | None = None  # None if Git was not read
    source: str = ""  # namespace/name of the Application whose version is promoted
    proof: Proof | None = None  # what was proved about the candidate
    # who writes the refused version to the same place: "namespace/name (alias)"
    overridden_by: str = ""
    line: int = 0  # in the file, for `check`; 0 if unknown

    @property
    def verdict(self) -> VerdictName:
        """The verdict: "update", "unchanged", "refuse", "defer", or "error"."""
        return self.judged.verdict

    @property
    def rule(self) -> str:
        """The rule that decided."""
        return self.judged.rule

    @property
    def because(self) -> str:
        """The reason, in one sentence."""
        return self.judged.because

    @property
    def hint(self) -> str:
        """How to fix an error."""
        return self.judged.hint

    @property
    def exit(self) -> Exit:
        """The exit code of a run with this error."""
        return self.judged.exit

    @property
    def place(self) -> str:
        """The `file:line` of the version, or "" if it is unknown."""
        file = self.current.file
        return f"{file}:{self.line or 1}" if file else ""


@dataclass(frozen=True)
class Decision(Judged):
    """The decision about a subscription and a candidate, with the reason."""

    subscription: Subscription
    # facts that the rules needed and that no registry could provide, and what to do
    unchecked: Trouble | None = None
    created: str = ""  # the values file to create
    # a key to add to the file, and an existing key that is almost the same
    misspelled: tuple[str, str] | None = None
    shared: tuple[str, ...] = ()  # other keys in the file that also change, because of an anchor
    event: str = ""  # where the build is from: "registry event, harbor"; "" means the CI job
    built: str = ""  # the build's digest, even if only its tag is written; "" if unknown
    owner: str = ""  # who reverts the patch of a live Application: "ApplicationSet web"


@dataclass(frozen=True)
class Unusable(Judged):
    """The error for a tracked image with an invalid annotation, which does not have a
    subscription.
    """

    strategy: Strategy | None = None  # the entry's strategy, if that annotation is valid


@dataclass(frozen=True)
class Commit:
    """A commit that landed or, for `plan`, that would land."""

    repo: str
    branch: str
    head: str
    commit: str | None
    tree: str
    files: tuple[str, ...]
    applications: tuple[str, ...]
    attempts: int = 1
    diff: str | None = None
    pull_request: str | None = None
    already_there: bool = False  # whether the branch already had it
    rollback: bool = False  # whether it restores the previous version after a failed rollout
    through: Through | None = None  # how it was committed; None if by another run
    remembers: bool = False  # on the memory branch: holds and waiting builds
    notes: bool = False  # it only records that a version failed, which does not count as an update
    url: str = ""  # its page on the forge; "" if the forge is unknown


@dataclass(frozen=True)
class Timings:
    """When a run started, and how many seconds its phases took."""

    started: str  # RFC 3339, UTC
    find: float  # finding the Applications and, in `scan`, listing tags
    land: float  # reading, deciding, committing, and pushing, in all repositories concurrently
    follow: float  # refreshes, pull requests, and waiting after the push

    @property
    def total(self) -> float:
        """The total seconds of all phases."""
        return self.find + self.land + self.follow


@dataclass(frozen=True)
class Report:
    """Everything that a run found and did."""

    command: str
    images: tuple[Image, ...]
    considered: int  # number of Applications considered
    decisions: tuple[Decision | Unusable, ...]
    commits: tuple[Commit, ...]
    problems: tuple[Problem, ...]
    exit: int
    # None for a run that failed before it started, such as with a usage error
    timings: Timings | None = None
    dry: bool = False  # whether it only shows what would happen
    undone: tuple[Decision, ...] = ()  # the decisions in the rollback commits after failed rollouts
    waiting: tuple[HeadBuildRow, ...] = ()  # builds that were waiting on head branches before
    earlier: tuple[Commit, ...] = ()  # commits of earlier runs that already have these builds
    source: str = ""  # the page of the commit that was built, or else its ID
    pipeline_run: str = ""
    passed_over: int = 0  # events that are not a push of a tagged image
    base: str = ""  # the commits that `check` compared
    head: str = ""

    @property
    def updates(self) -> tuple[Decision, ...]:
        """The decisions that updated an image."""
        return tuple(
            decision
            for decision in self.decisions
            if isinstance(decision, Decision) and decision.verdict == "update"
        )


@dataclass(frozen=True)
class Found:
    """A manifest from a source of Applications, with its origin, or why a manifest could not be
    read.
    """

    item: Mapping[str, Any]
    origin: str = ""  # "apps/web.yaml:12"
    trouble: Trouble | None = None
    # (repository, branch, path) of a manifest from Git
    place: tuple[str, str, str] | None = None
    generated_by: str = ""  # "namespace/name" of the ApplicationSet that generates this Application
    owner: Mapping[str, Any] | None = None  # that ApplicationSet
    # the template of an ApplicationSet that could not be rendered, with placeholders for unknown
    # text
    template: bool = False
    subject: str = ""  # "namespace/name" that the trouble is about
    text: str = ""  # of the file from Git, in which `lint` looks for lines
    # whether the trouble is advice about an unread source rather than a mistake
    advice: bool = False

    @property
    def concerns_us(self) -> bool:
        """Whether the manifest's kind is read, or generates such manifests."""
        return self.is_application or self.item.get("kind") in ("ImageUpdater", "HelmRelease")

    @property
    def is_application(self) -> bool:
        """Whether this is an Application or an ApplicationSet."""
        return self.item.get("kind") in ("Application", "ApplicationSet")

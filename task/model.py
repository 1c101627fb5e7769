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
Through = Literal["git", "github"]  # how to commit: with git and a push, or through GitHub's API
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
    """An image reference, with `name` as written, and `registry` and `repository` normalized."""

    name: str  # as written, without tag and digest: "nginx", "localhost:5000/acme/api"
    registry: str  # "docker.io" if the name has none
    repository: str  # "library/nginx", "acme/api"
    tag: str = ""
    digest: str = ""  # "sha256:…"

    @property
    def identity(self) -> str:
        """The normalized name of the repository, including its registry.

        `nginx` and `docker.io/library/nginx` have the same identity.
        """
        return f"{self.registry}/{self.repository}"

    @property
    def reference(self) -> str:
        """The full reference, in the form that container runtimes accept."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}@{self.digest}" if self.digest else f"{self.name}{tag}"


@dataclass(frozen=True)
class Entry:
    """An entry in `image-list`: `alias=name:constraint@digest`."""

    alias: str  # "" if the entry has none
    image: Image  # has no tag; the digest is as written, and is ignored, as in AIU
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
    # taken from the status, or else from the section in the spec; "" until Git is read
    kind: Kind = ""
    section: Kind = ""  # the kind of section that the spec contains for this source
    parameters: tuple[Parameter, ...] = ()  # helm.parameters
    images: tuple[str, ...] = ()  # kustomize.images
    env: tuple[tuple[str, str], ...] = ()  # plugin.env
    value_files: tuple[str, ...] = ()  # helm.valueFiles
    values: str = ""  # helm.valuesObject, else helm.values, as YAML
    values_field: str = ""  # which of those two fields contains the values
    file_parameters: tuple[str, ...] = ()  # the names in helm.fileParameters
    recurse: bool = False  # directory.recurse
    name: str = ""  # the source's name if there are several, for Argo CD's own commands


@dataclass(frozen=True)
class KeySecret:
    """A field of a Kubernetes Secret that contains the public key for verifying an image's
    signature.
    """

    namespace: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.key})"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an Application is deployed. The spec identifies the cluster by URL or by name."""

    server: str = ""
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class Tracker:
    """A resource that tracks images and is deployed from Git: an Argo CD Application or a Flux v1
    HelmRelease.
    """

    namespace: str
    name: str
    # Image Updater's annotations, without the annotation prefix
    annotations: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    live: tuple[str, ...] = ()  # the running images, as written
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""  # "apps/web.yaml:12", "cluster"
    # The following fields are only set for Applications; "" also means unknown.
    project: str = ""
    destination: Destination = Destination()
    sync: str = ""  # status.sync.status
    health: str = ""  # status.health.status
    generated_by: str = ""  # namespace/name of the ApplicationSet that generated it
    request_labels: tuple[str, ...] = ()  # labels for its pull requests, set by its ImageUpdater

    @property
    def key(self) -> str:
        """`namespace/name`, which identifies the resource in reports and messages."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Application(Tracker):
    """An Argo CD Application, with everything needed to interpret its annotations."""

    multi: bool = False  # whether the spec contains `sources` instead of `source`
    from_resource: frozenset[str] = frozenset()  # the annotations that its ImageUpdater set
    resource: str = ""  # namespace/name of that ImageUpdater
    resource_origin: str = ""  # where that ImageUpdater was found, like `origin`
    reference: str = ""  # how messages refer to an ImageUpdater that selects the Application
    # Public keys by alias; "" applies to every image. They come from the Application's
    # ImageUpdater, because there is no annotation for them.
    signing_keys: Mapping[str, KeySecret] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """Which tags an entry accepts, and which of two tags is newer."""

    strategy: Strategy = "semver"
    constraints: tuple[
        str, ...
    ] = ()  # the entry's constraint, and the one in `semver:<constraint>`; all of them must match
    allow: str | None = None  # RE2 pattern, unanchored; None means any tag
    ignore: tuple[str, ...] = ()  # Go filepath.Match globs
    platforms: tuple[str, ...] = ()
    pin_digest: bool = False
    pull_secret: str = ""  # the annotation that specifies the registry credentials
    tag_order: str = ""  # as written; "" means the strategy's own order
    minimum_age: int = 0  # in seconds; for `scan` and `promote`


@dataclass(frozen=True)
class Keys:
    """The keys under which an image is written in a target, from the per-image annotations. A key
    is "" if there is no such annotation.
    """

    name: str = ""  # helm.image-name / plugin.image-name
    tag: str = ""  # helm.image-tag / plugin.image-tag
    spec: str = ""  # helm.image-spec / plugin.image-spec; takes precedence over name and tag
    kustomize_name: str = ""  # kustomize.image-name
    manifests_name: str = ""  # manifests.image-name
    digest: str = ""  # helm.image-digest


@dataclass(frozen=True)
class Claim:
    """An image-list entry, and the names under which its image is written in a target. A name is ""
    if there is no such annotation.
    """

    alias: str
    identity: str  # the image's identity
    tag: str = ""
    kustomize_name: str = ""
    manifests_name: str = ""


@dataclass(frozen=True)
class Target:
    """A place to write to: a file (or, for `kustomization` and `manifests`, a folder) and the keys
    in it.
    """

    kind: TargetKind
    # relative to the repository's root, "/"-separated, no leading "/", no ".."; "" is the root
    path: str
    keys: Keys
    # the entry's image, whose spelling is used if the file does not contain a name yet
    image: Image
    source: Source  # the Application's source, whose parameters, images, and env are carried along
    application: str = ""  # namespace/name
    alias: str = ""
    recurse: bool = False  # whether to include subfolders, for manifests
    # alternative spellings of `path`, used if they exist and `path` does not
    fallbacks: tuple[str, ...] = ()
    # whether the spec's parameters, images, and env are carried
    # along; None means only into lists that are ours or new
    carry: bool | None = None
    managed: tuple[
        str, ...
    ] = ()  # parameters, image identities, and variables that the Application's aliases write
    others: tuple[Claim, ...] = ()  # the Application's other image-list entries
    values: tuple[
        str, ...
    ] = ()  # the values files in this repository that Helm reads, in Helm's order


@dataclass(frozen=True)
class File:
    """A path in a snapshot. Paths that do not exist have no File."""

    text: str  # "" unless it is a regular file whose content was requested
    # Git's mode: 100644, 100755, 120000 symlink, 160000 submodule, 040000 folder
    mode: str = "100644"
    # why the file cannot be edited: "not UTF-8 text", "larger than 10 MB", …
    problem: str = ""


Files = Mapping[str, File]


@dataclass(frozen=True)
class Place:
    """A path that a snapshot must cover. What is needed is a file's content, whether the file
    exists, or all manifests in a folder.

    `names` requests all files in a folder and its subfolders, without their contents. `files` adds
    the contents and links.
    """

    path: str
    want: Literal["text", "exists", "folder", "tree", "names", "files"] = "text"


@dataclass(frozen=True)
class Snapshot:
    """The requested files at one commit on the base branch."""

    repo: str
    branch: str  # the name of the base branch, with "HEAD" resolved
    tip: str  # commit ID; "" if the files are from two commits
    files: Files
    message: str = ""  # the message of the commit `tip`
    # files on the memory branch: states and lists
    memory_files: Files = field(default_factory=dict)
    memory_tip: str = ""  # "" if there is no memory branch
    # The name and tip of the memory branch that `memory_files` comes from, if this base has no
    # memory branch of its own, and has taken over that of a base that no longer exists.
    inherited: tuple[str, str] | None = None
    renamed_from: str = ""  # the base that no longer exists
    # memory branches whose base no longer exists, and which
    # this base cannot take over, each with the name of its base
    orphaned: tuple[tuple[str, str], ...] = ()
    prefix: str = "image-update"  # the prefix of our own branches
    # which part of the memory branch is ignored because it
    # is not signed with an allowed key, in words
    unsigned: str = ""
    # the files at the tip of the default branch, if that is a different commit
    default: Files = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """The tip of a head branch."""

    branch: str
    tip: str  # commit ID
    tree: str
    parent: str  # "" unless the commit has exactly one parent
    message: str = ""
    by: str = ""  # the commit's author


@dataclass(frozen=True)
class Reading(Versioned):
    """The current image in a target. All fields are "" if the target does not contain the image."""

    name: str = ""
    tag: str = ""
    digest: str = ""
    # False if the target must be rewritten even though its text is right, such as the number 1.10
    sound: bool = True
    file: str = ""  # the file to write to
    # tags of the same image's other entries, which an update would replace too
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

    repo: str  # the URL as written in the Application, without userinfo
    base: str  # a branch name
    head: str  # the same as the base, unless `git-branch` or a pull request uses a different branch
    tip: str
    files: Files  # only the changed files, with their new content and mode
    message: str
    author: Person
    # the tip of the head branch; "" if the branch does not exist, None if it was not read
    head_commit: str | None = None
    # whether the head branch belongs to someone else, so that the commit goes on top of the
    # branch's own tip, `tip`
    on_top: bool = False
    push_options: tuple[str, ...] = ()  # push options for the Git server


@dataclass(frozen=True)
class LandedCommit:
    """The result of landing a changeset."""

    commit: str  # "" if landing was only predicted
    tree: str
    pushed: bool = True  # False if the head branch already contained exactly this change
    through: Through = "git"
    memory_commit: str = ""  # the commit on the memory branch that was pushed along with it


@dataclass(frozen=True)
class FileVersion:
    """A version of a file on a branch, and the commit that wrote it. The commit's fields are "" if
    the commit is too far back in the history.
    """

    text: str | None  # None if the file did not exist or is not text
    commit: str = ""
    at: str = ""  # RFC 3339, UTC
    by: str = ""  # the author's name
    message: str = ""


Fact = Literal["exists", "digest", "created", "platforms", "labels", "tags"]


@dataclass(frozen=True)
class Question:
    """A question about facts that a rule needs to know about an image, and that are neither in the
    event nor in Git.

    A registry answers it.
    """

    image: Image  # has the tag, the digest, or both
    facts: tuple[Fact, ...]
    platforms: tuple[
        str, ...
        # "os/arch[/variant]": consider only these members of an image index; () means all of them
    ] = ()
    secret: str = ""  # the `pull-secret` annotation, as written
    namespace: str = ""  # the namespace of the Application, because it may use secrets there
    signed_by: KeySecret | None = None  # like the next field, set for questions about signatures
    demands: tuple[Demand, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A registry's response. Fields for facts that were not requested are empty."""

    exists: bool = True
    digest: str = ""  # the digest of the tag's manifest, which may be an index
    created: str = ""  # RFC 3339, UTC, "2026-11-21T06:00:00.123Z"; "" if there is no date
    platforms: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()  # all tags of the image's repository
    error: TaskError | None = None  # why there was no response


@dataclass(frozen=True)
class Proposal:
    """The desired state of a pull request. There is one for each combination of repository, base,
    and head.
    """

    repo: str  # the URL as written in the Application
    base: str
    head: str
    title: str
    body: str
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    draft: bool = False
    auto_merge: bool = False
    prefix: str = "image-update"  # the prefix of our own head branches


@dataclass(frozen=True)
class Proposed:
    """The current state of a pull request."""

    url: str  # the URL of its web page
    number: str
    # "gone" means closed by the forge because its branch was deleted
    state: Literal["open", "merged", "closed", "gone"]
    title: str = ""
    body: str = ""
    head_commit: str = ""
    merge_commit: str = ""  # "" unless it was merged
    conflicts: bool = False  # whether it conflicts with its base, according to the forge
    # whether the forge will merge it automatically; None if unknown
    auto_merge: bool | None = None
    # why the merge queue removed it; "" if it was not removed, or if a person removed it
    thrown_out: str = ""
    note: str = ""  # a harmless failure, such as "GitHub cannot merge automatically here: …"


Fate = Literal["waits", "merged", "superseded", "deferred", "dropped"]


@dataclass(frozen=True)
class HeadBuildRow:
    """A build that was waiting on a head branch before this run, and what happened to it."""

    # namespace/name; "" for a line that is not about an Application of this run
    application: str
    alias: str
    tag: str
    digest: str
    head: str
    outcome: Fate
    because: str
    pull_request: str = ""  # the URL of its page


@dataclass(frozen=True)
class Build:
    """A build's position among the builds of an image. "" and None mean unknown."""

    sequence: int | None = None
    # the counter that `sequence` comes from, because numbers from different counters cannot be
    # compared; "" for --sequence
    counter: str = ""
    commit: str = ""
    repository: str = ""  # the repository that contains the commit, without userinfo
    created: str = ""  # RFC 3339, UTC


@dataclass(frozen=True)
class Event:
    """An image push, as reported by a registry or a pipeline."""

    image: Image  # has a tag; an image from a pipeline may have only a digest
    form: str = ""  # the event's format: "harbor", "quay", …; "lines" is our own
    at: str = ""  # when it happened, according to the registry; RFC 3339, UTC
    build: Build = Build()  # taken from our own lines format
    run: str = ""  # the page of the pipeline that built the image, taken from our own lines format
    claimed: bool = True  # whether the registry has to confirm the event

    @property
    def origin(self) -> str:
        """Where the build comes from, as a phrase: `registry event, harbor`."""
        if self.claimed:
            return f"registry event, {self.form}"
        return f"pipeline event, {self.run}" if self.run else "pipeline event"


@dataclass(frozen=True)
class Written(Versioned):
    """A build of an image, as recorded in the state file."""

    tag: str = ""
    digest: str = ""
    build: Build = Build()
    image_digest: str = ""  # the digest in the build's event, if only the tag is written


@dataclass(frozen=True)
class Hold:
    """A block on updates of one image or of all images of an Application: a person's hold, or
    a freeze.
    """

    reason: str
    by: str = ""
    at: str = ""  # RFC 3339, UTC
    until: str = ""  # RFC 3339, UTC; "" means until someone releases it
    source: str = ""  # for a freeze: where it is in the config

    @property
    def is_freeze(self) -> bool:
        """Whether this is a freeze from the repository's config, rather than a person's hold."""
        return self.source != ""


@dataclass(frozen=True)
class Meant(Versioned):
    """The last rollback: its target as requested, the version that this target referred to, and the
    version that was replaced.
    """

    to: str  # "previous" or "3-back"; "" if a tag was requested
    tag: str = ""
    digest: str = ""
    was: str = ""  # on a head branch, a value here means that a person's rollback is waiting there


@dataclass(frozen=True)
class Memory:
    """What is remembered about an image-list entry."""

    written: Written | None = None  # the newest build ever written
    # Versions (`tag`, `tag@digest`, or digest) that a repeated run must not restore; newest first.
    replaced: tuple[str, ...] = ()
    # Versions whose rollout failed after a newer build had landed; newest first. A rollback that
    # looks for a good version skips them.
    failed: tuple[str, ...] = ()
    hold: Hold | None = None
    deferred: Written | None = None  # the newest build held back by a hold or a freeze
    rollback: Meant | None = None


@dataclass(frozen=True)
class State:
    """An Application's hold and its images' memories, for one write-back file.

    A state file contains one State for each write-back file.
    """

    hold: Hold | None = None  # a hold on all images
    # Keyed by alias, or, for an entry without an alias, by
    # its image's name as spelled in `image-list`.
    images: Mapping[str, Memory] = field(default_factory=dict)


@dataclass(frozen=True)
class Writes:
    """The files and branches that the repository's config allows Applications to write to, as
    globs. None means any.
    """

    paths: tuple[str, ...] | None = None
    branches: tuple[str, ...] | None = None
    line: int = field(default=0, compare=False)  # the line in the config
    only: str = ""  # the only file that this applies to; "" means every file


@dataclass(frozen=True)
class Wishes:
    """An Application's settings from the repository's config. None means not set."""

    author_name: str | None = None
    author_email: str | None = None
    # the path of the commit message template, relative to the repository's root
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
    minimum_age: int | None = None  # in seconds
    writes: Writes | None = None
    signatures: Demand | None = None
    provenance: Demand | None = None
    # the prefix of our own branches; can only be set for the whole repository
    branch_prefix: str | None = None


@dataclass(frozen=True)
class Tracked:
    """An image that an Application or HelmRelease tracks.

    It is known even if the annotations are invalid.
    """

    application: Tracker
    entry: Entry


@dataclass(frozen=True)
class Subscription(Tracked):
    """One write-back target of an image-list entry: which tags the Application accepts, and where
    to write them.
    """

    policy: Policy
    keys: Keys
    source: Source
    target: str  # "override", "kustomization", "helmvalues", "manifests", "file", "flux"
    # path of the target, or for "override", of the file; relative to the repository's root
    path: str
    repo: str  # the URL as written in the Application
    base: str = ""  # "" means the repository's default branch
    # the part of `git-branch` after the colon; "" means that the base branch is written to
    head_template: str = ""
    method: Literal["git", "argocd"] = "git"
    credentials: str = ""  # "secret:ns/name"; "" means the credentials configured for the URL
    fallbacks: tuple[str, ...] = ()
    managed: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()  # claims of all the Application's entries, including this one
    pull_request: bool = False
    # the folder of the Application's first write-back file in
    # this repository, which determines the path of the state file
    home: str = ""
    # Paths of the same entry's other targets on the same branch. They receive the version too.
    beside: tuple[str, ...] = ()
    locked: str = ""  # why Flux's own annotations prevent updates, or ""
    # the key that must have signed the image, on top of the command line's requirements
    signed_by: KeySecret | None = None
    wishes: Wishes = Wishes()  # settings from the repository's config, once it has been read
    freeze: Hold | None = None  # the freeze in the repository's config, if one is active
    writes: tuple[
        Writes, ...
    ] = ()  # from the configs of all relevant branches, each of which must allow the change
    demands: tuple[
        Demand, ...
    ] = ()  # from the configs of the branches to write to, with the contents of their key files
    neighbour: str = ""  # namespace/name of another Application whose path contains the file

    def image_at(self, version: Versioned) -> Image:
        """Return the entry's image with this tag and digest."""
        return replace(self.entry.image, tag=version.tag, digest=version.digest)

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """The fields that identify the subscription. The repository's config does not
        change them.
        """
        return self.application.key, self.entry.text, self.repo, self.target, self.path


@dataclass(frozen=True, kw_only=True)
class Problem(Troubled):
    """An element of `errors[]`: one of this run's troubles, and its location."""

    trouble: Trouble = field(kw_only=False)
    application: str = ""  # namespace/name; "" if the problem is not about an Application
    key: str = ""  # the name of the annotation, without its prefix
    value: str = ""
    # whether this is advice about an unread source rather than a mistake
    advice: bool = False
    field: tuple[
        str | int, ...
    ] = ()  # the field in the manifest that the message is about: ("spec", "applicationRefs", 0)
    place: str = ""  # `file:line` in the repository that `check` judges


@dataclass(frozen=True)
class Flaw(Troubled):
    """A mistake in an annotation, and the entry that it prevents from being updated."""

    text: str  # the image-list entry as written; "" for a key that does not belong to any entry
    entry: Entry | None  # None if the entry itself cannot be parsed
    key: str  # the name of the annotation, without its prefix
    value: str
    trouble: Trouble
    misspelled: bool = False  # whether the key is misspelled, because it is similar to a known key
    strategy: Strategy | None = None  # the entry's strategy, if the annotation is valid


@dataclass(frozen=True)
class Subscribed:
    """The Subscriptions that result from an Application's annotations, and the flaws in the
    annotations.
    """

    application: Tracker
    subscriptions: tuple[Subscription, ...]
    flaws: tuple[Flaw, ...]


@dataclass(frozen=True)
class Verdict:
    """The rules' decision, with the reason in one sentence."""

    verdict: VerdictName
    rule: str
    because: str
    hint: str = ""  # how to fix an error
    exit: Exit = Exit.CONFIGURATION  # the exit code of a run with this error

    @classmethod
    def of(cls, trouble: Trouble) -> Verdict:
        """Return a verdict "error" for this trouble."""
        return cls("error", trouble.rule, trouble.message, trouble.hint, trouble.exit)

    @property
    def trouble(self) -> Trouble:
        """The verdict as a trouble."""
        return Trouble(self.rule, self.because, self.hint, exit=self.exit)


@dataclass(frozen=True)
class Compared:
    """The two sides that `check` compares: a base and a change."""

    base: str  # a branch, a tag, or a commit
    head: str
    repository: str = ""  # the repository's URL; "" means the checkout in the current directory
    # The branch that the change will be merged into, according to the CI
    # system. Its current tip is the base, unless `base` is a commit: in
    # a merge queue, that commit includes the requests ahead of this one.
    branch: str = ""
    # the forge's merge commit of the two sides, which only counts if they are its parents
    merge: str = ""


@dataclass(frozen=True)
class Judged:
    """The verdict on a tracked image and a candidate, as shown in a report."""

    subscription: Tracked
    candidate: Image
    judged: Verdict
    current: Reading = Reading()
    branch: str = ""  # the actual name of the base branch in Git; "" if Git was not read
    head: str = ""  # the branch to write to: the base branch or a head branch
    kind: TargetKind | None = None  # None if Git was not read
    source: str = ""  # namespace/name of the Application that the version is promoted from
    proof: Proof | None = None  # what was proved about the candidate
    # which entry writes the refused version to the same place: "namespace/name (alias)"
    overridden_by: str = ""
    line: int = 0  # line in the file, for `check`; 0 if unknown

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
        """The reason for the verdict, in one sentence."""
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
        """The `file:line` of the version, or "" if the file is unknown."""
        file = self.current.file
        return f"{file}:{self.line or 1}" if file else ""


@dataclass(frozen=True)
class Decision(Judged):
    """The decision about a subscription and a candidate, with the reason."""

    subscription: Subscription
    # what to do about facts that the rules needed, but that no registry could provide
    unchecked: Trouble | None = None
    created: str = ""  # the values file that would be created
    # a key to add to the file, and an existing key that is almost identical
    misspelled: tuple[str, str] | None = None
    shared: tuple[str, ...] = ()  # other keys in the file that change too, because of an anchor
    event: str = ""  # where the build comes from: "registry event, harbor"; "" means the CI job
    built: str = ""  # the build's digest, even if only its tag is written; "" if unknown
    owner: str = ""  # what reverts a patch to the live Application: "ApplicationSet web"


@dataclass(frozen=True)
class Unusable(Judged):
    """The error for a tracked image that has no subscription because an annotation is invalid."""

    strategy: Strategy | None = None  # the entry's strategy, if its annotation is valid


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
    already_there: bool = False  # whether the branch already contained the commit
    rollback: bool = False  # whether it restores the previous version after a failed rollout
    through: Through | None = None  # how it was committed; None if another run did it
    # whether it is on the memory branch, which stores holds and waiting builds
    remembers: bool = False
    # whether it only records that a version failed, which does not count as an update
    notes: bool = False
    url: str = ""  # the URL of its page on the forge; "" if the forge is unknown


@dataclass(frozen=True)
class Timings:
    """When a run started, and how many seconds its phases took."""

    started: str  # RFC 3339, UTC
    find: float  # time to find the Applications and, in `scan`, to list tags
    land: float  # time to read, decide, commit, and push, in all repositories concurrently
    follow: float  # time for refreshes, pull requests, and waiting after the push

    @property
    def total(self) -> float:
        """The total duration of all phases in seconds."""
        return self.find + self.land + self.follow


@dataclass(frozen=True)
class Report:
    """Everything that a run found and did."""

    command: str
    images: tuple[Image, ...]
    considered: int  # the number of Applications considered
    decisions: tuple[Decision | Unusable, ...]
    commits: tuple[Commit, ...]
    problems: tuple[Problem, ...]
    exit: int
    # None if the run failed before it started, such as with a usage error
    timings: Timings | None = None
    dry: bool = False  # whether it only reports what would happen
    undone: tuple[Decision, ...] = ()  # decisions behind the commits that roll back failed rollouts
    waiting: tuple[HeadBuildRow, ...] = ()  # builds that were already waiting on head branches
    earlier: tuple[Commit, ...] = ()  # commits of earlier runs that already have these builds
    source: str = ""  # the page of the commit that was built, or else the commit's ID
    pipeline_run: str = ""
    passed_over: int = 0  # the number of events that are not pushes of a tagged image
    base: str = ""  # the base commit that `check` compared
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
    """A manifest from a source of Applications, together with its origin, or the reason why a
    manifest could not be read.
    """

    item: Mapping[str, Any]
    origin: str = ""  # "apps/web.yaml:12"
    trouble: Trouble | None = None
    # (repository, branch, path) of a manifest from Git
    place: tuple[str, str, str] | None = None
    generated_by: str = ""  # "namespace/name" of the ApplicationSet that generates this Application
    owner: Mapping[str, Any] | None = None  # that ApplicationSet
    # whether this is the template of an ApplicationSet that could not be rendered, with
    # placeholders for unknown text
    template: bool = False
    subject: str = ""  # "namespace/name" of the object that the trouble is about
    text: str = ""  # the content of the file in Git, in which `lint` looks up line numbers
    # whether the trouble is advice about an unread source rather than a mistake
    advice: bool = False

    @property
    def concerns_us(self) -> bool:
        """Whether the manifest is of a kind that we read, or of a kind that generates such
        manifests.
        """
        return self.is_application or self.item.get("kind") in ("ImageUpdater", "HelmRelease")

    @property
    def is_application(self) -> bool:
        """Whether this is an Application or an ApplicationSet."""
        return self.item.get("kind") in ("Application", "ApplicationSet")

"""Reads from a repository in a registry: tags, manifests, blobs, and the manifests that refer to an
image.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Any
from urllib.parse import quote, urljoin

from task.errors import RegistryDownError, RegistryError, TamperedError
from task.files import read_file
from task.http import Response
from task.plain_data import mappings, parsed_json, texts
from task.registry.api import RegistryApi
from task.registry.docker_config import RegistryLogin
from task.registry.manifest import (
    ACCEPT,
    INDEXES,
    Config,
    Manifest,
    Member,
    digest_of,
    is_digest,
    signed_payload,
)
from task.urls import origin, split

_NEXT = re.compile(r'<([^<>]*)>[^,<]*?;\s*rel\s*=\s*"?next"?(?=[\s;,]|$)')
# tags per page; most registries allow the first number, and all others return 400 for it
_PAGES = (10_000, 1000)
# the syntax of a tag in the OCI distribution specification
_REFERENCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_MOST_SHOWN = 100
_FORM = 2  # the version of the cache file format; files of other versions are ignored
# Limits on all pages of a list together, because any server may claim to be a registry.
_MOST_BYTES = 64 * 1024 * 1024
_MOST_PAGES = 1000
_MOST_TAGS = 1_000_000
_LONGEST = 300.0  # seconds
_LARGEST_CACHE = 1 << 30  # bytes; cache files are written by this program
_NO_HEAD = (405, 501)  # statuses if HEAD is not supported
_NO_API = (400, 404, 405, 501)  # statuses if OCI 1.1's referrers API is not supported


@dataclass(frozen=True)
class Referrer:
    """A manifest that refers to an image, such as a signature, an attestation, or an SBOM."""

    digest: str
    media_type: str
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


class AnswerCache:
    """A cache of the known facts about a repository's images, in memory and (for later runs) in a
    folder.

    Thread-safe.

    The manifest or config with a given digest never changes, so its entry remains valid forever. A
    tag can move, so its last known digest is only a hint, which is verified with one HEAD request.
    """

    def __init__(self, folder: str = "", name: str = "") -> None:
        """Load the facts about the repository `name` from its file in the folder. Without a folder,
        the cache exists only in memory.
        """
        self.members: dict[str, tuple[Member, ...]] = {}  # keyed by the manifest's digest
        self.configs: dict[str, Config] = {}  # keyed by the digest of the image's manifest
        self.tags: dict[str, str] = {}  # tag → last known digest
        self._lock = Lock()
        self._changed = False
        self._path = ""
        if folder:
            file_name = f"{sha256(name.encode()).hexdigest()[:32]}.json"
            self._path = os.path.join(folder, file_name)
            self._load()

    def store_tag(self, tag: str, digest: str) -> None:
        """Store a tag's current digest."""
        if tag and self.tags.get(tag) != digest:
            self._changed = True
            self.tags[tag] = digest

    def store_members(self, digest: str, members: tuple[Member, ...]) -> None:
        """Store a manifest's images."""
        self._changed = True
        self.members[digest] = members

    def store_config(self, digest: str, config: Config) -> None:
        """Store an image's config."""
        self._changed = True
        self.configs[digest] = config

    def save(self) -> None:
        """If the facts have changed, write them to the cache file atomically.

        Errors are ignored, because they only cost the next run a few extra requests.
        """
        if not self._path or not self._changed:
            return
        # iterate over copies, because other threads may add entries
        members = {
            digest: [member._asdict() for member in images]
            for digest, images in dict(self.members).items()
        }
        configs = {digest: vars(config) for digest, config in dict(self.configs).items()}
        data = {
            "form": _FORM,
            "tags": dict(self.tags),
            "members": members,
            "configs": configs,
        }
        temporary_path = f"{self._path}.{os.getpid()}"
        with self._lock, suppress(OSError):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(data, file)
            os.replace(temporary_path, self._path)
            self._changed = False

    def _load(self) -> None:
        """Load the facts from the cache file if it is valid and in the current format."""
        # An invalid file is not an error, because other runs use the same folder, and its volume
        # may be full or shared with strangers.
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            data: Mapping[str, Any] = parsed_json(read_file(self._path, _LARGEST_CACHE))
            if data["form"] != _FORM:
                return
            tags = {
                str(tag): str(digest)
                for tag, digest in data["tags"].items()
                if is_digest(str(digest))
            }
            members = {
                digest: tuple(map(_stored_member, images))
                for digest, images in data["members"].items()
            }
            configs = {
                digest: Config(
                    created=str(fields["created"]),
                    platform=str(fields["platform"]),
                    labels=dict(fields["labels"]),
                )
                for digest, fields in data["configs"].items()
            }
            # assigned only now, because any of the steps above may fail
            self.tags = tags
            self.members = members
            self.configs = configs


class ImageRepository:
    """A repository, accessed with one login, and the known facts about its images."""

    def __init__(
        self,
        api: RegistryApi,
        name: str,
        login: RegistryLogin | None,
        memory: AnswerCache,
    ) -> None:
        self.name = name
        self.memory = memory
        self._api = api
        self._login = login
        self._all_tags: tuple[str, ...] | None = None  # None until listed
        self._lock = Lock()

    def head(self, reference: str) -> str | None:
        """Send a HEAD request for the manifest with this tag or digest, and return its digest.

        The result is "" if the registry does not send a digest, or None if the manifest does not
        exist.
        """
        answer = self._manifest("HEAD", reference)
        if answer.status in _NO_HEAD:  # a GET request also returns the digest
            manifest = self.manifest(reference)
            return manifest.digest if manifest else None
        if answer.status == 404:
            return None
        digest = answer.headers.get("Docker-Content-Digest", "").strip()
        return digest if is_digest(digest) else ""

    def manifest(self, reference: str) -> Manifest | None:
        """Return the manifest with this tag or digest, or None if it does not exist.

        Raises `TamperedError` if the manifest's bytes do not match the requested digest, or the
        digest that the registry sent.
        """
        answer = self._manifest("GET", reference)
        if answer.status == 404:
            return None
        data = self._json(answer, f"manifest of {reference[:_MOST_SHOWN]}")
        body = answer.body
        if data.get("schemaVersion") == 1:
            # The digest of a Docker schema 1 manifest does not cover its signatures.
            body = signed_payload(body, data)
        sent_digest = answer.headers.get("Docker-Content-Digest", "").strip()
        digest = self._verified_digest(body, reference, sent_digest)
        content_type = answer.headers.get("Content-Type", "")
        media_type = content_type.partition(";")[0].strip().lower()
        return Manifest(digest, media_type, data)

    def blob(self, digest: str) -> bytes:
        """Return the content of the blob with this digest.

        Raises `TamperedError` if the content does not match the digest, and `RegistryError` if
        there is no such blob.
        """
        if not is_digest(digest):
            raise self._registry_error(
                f"refers to a blob by {digest[:_MOST_SHOWN]!r}, which is not a digest"
            )
        answer = self._api.ask("GET", self.name, f"/blobs/{digest}", self._login)
        if answer.status == 404:
            raise self._registry_error(
                f"does not have the blob {digest} that its own manifest refers to"
            )
        self._verified_digest(answer.body, digest, sent_digest="")  # only to raise an error
        return answer.body

    def json_blob(self, digest: str) -> Mapping[str, Any]:
        """Return the JSON object in a blob, such as an image's config, or {} if the blob is not a
        JSON object.
        """
        try:
            data = parsed_json(self.blob(digest))
        except ValueError:
            data = None
        return data if isinstance(data, dict) else {}

    def tags(self) -> tuple[str, ...]:
        """Return all tags, without duplicates, in the registry's order. The tags are listed only
        once per run.

        Raises `RegistryError` for a missing repository.
        """
        with self._lock:
            if self._all_tags is None:
                large_page, small_page = _PAGES
                tags = self._tags(
                    self._pages(f"/tags/list?n={large_page}", missing_statuses=(400,))
                )
                if tags is None:  # the registry does not allow pages of this size
                    tags = self._tags(self._pages(f"/tags/list?n={small_page}"))
                self._all_tags = tuple(tags or ())
            return self._all_tags

    def referrers(self, digest: str) -> tuple[Referrer, ...]:
        """Return the manifests that refer to the image with this digest, such as its signatures.

        These are listed by OCI 1.1's referrers API or, in older registries, under a tag that
        replaces the API.
        """
        oci_index = INDEXES[0]
        pages = list(self._pages(f"/referrers/{digest}", oci_index, missing_statuses=_NO_API))
        if not pages:  # the registry does not support the API
            # so clients maintain an index under the tag `sha256-<hex>` instead
            index = self.manifest(digest.replace(":", "-"))
            if index is not None:
                pages.append(index.data)
        referrers: list[Referrer] = []
        for page in pages:
            referrers.extend(_referrers(page))
        return tuple(referrers)

    def _tags(self, pages: Iterator[Mapping[str, Any]]) -> dict[str, None] | None:
        """Return the tags from all pages, or None if there are no pages.

        The tags are the keys of a dictionary, which removes duplicates and preserves the order.
        """
        tags: dict[str, None] | None = None
        for page in pages:
            # Docker's registry returns null for a repository without tags
            names = page.get("tags") or []
            if not isinstance(names, list) or not all(isinstance(tag, str) for tag in names):
                raise self._registry_error("returned an invalid list of tags")
            if tags is None:
                tags = {}
            tags.update(dict.fromkeys(names))
            if len(tags) > _MOST_TAGS:
                raise self._registry_error(f"lists more than {_MOST_TAGS:,} tags")
        return tags

    def _manifest(self, method: str, reference: str) -> Response:
        """Send a GET or HEAD request for the manifest with this tag or digest, and return the
        response.

        The status of the response to a HEAD request may mean that the server does not support HEAD.
        """
        if not is_digest(reference) and not _REFERENCE.fullmatch(reference):
            raise RegistryError(
                f"{reference[:_MOST_SHOWN]!r} is neither a tag nor a digest",
                hint="use name:tag",
            )
        expected = _NO_HEAD if method == "HEAD" else ()
        return self._api.ask(
            method,
            self.name,
            f"/manifests/{reference}",
            self._login,
            accept=ACCEPT,
            expected=expected,
        )

    def _pages(
        self,
        path: str,
        accept: str = "",
        missing_statuses: tuple[int, ...] = (),
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of a list, following the `Link` header of each response. If the first
        response has one of the `missing_statuses`, there are no pages.

        Raises `RegistryError` and its subclasses if the list is too long, takes too long, or
        continues on another server.
        """
        seen_paths: set[str] = set()
        size = 0
        end = time.monotonic() + _LONGEST
        while path:
            if path in seen_paths or len(seen_paths) >= _MOST_PAGES:
                raise self._registry_error("keeps returning more pages of a list")
            if time.monotonic() > end:
                raise RegistryDownError(
                    f"registry {self._api.endpoint.name} took more than {_LONGEST:g} seconds to"
                    f" return one list ({self.name})",
                    hint="run it again",
                )
            seen_paths.add(path)
            answer = self._page(path, accept, missing_statuses)
            if answer is None:
                return
            size += len(answer.body)
            if size > _MOST_BYTES:
                raise self._registry_error(f"returned a list of more than {_MOST_BYTES:,} bytes")
            yield self._json(answer, "list")
            path = self._next_page_path(answer)  # "" after the last page
            missing_statuses = ()  # allowed only for the first page

    def _page(
        self,
        path: str,
        accept: str,
        missing_statuses: tuple[int, ...],
    ) -> Response | None:
        """Request the page of a list at this path, and return the response, or None if its status
        is one of the `missing_statuses`.

        Raises `RegistryError` for a missing repository.
        """
        answer = self._api.ask(
            "GET",
            self.name,
            path,
            self._login,
            accept=accept,
            expected=missing_statuses,
        )
        if answer.status in missing_statuses:
            return None
        if answer.status == 404:
            raise RegistryError(
                f"registry {self._api.endpoint.name} has no repository {self.name}",
                hint=(
                    "check the image name; without credentials, some registries return this for"
                    " private images"
                ),
            )
        return answer

    def _next_page_path(self, answer: Response) -> str:
        """Return the path of a list's next page, as given in the `Link` header, or "" if there is
        none.

        Raises `RegistryError` if the next page is on another server, or in another repository.
        """
        match = _NEXT.search(answer.headers.get("Link", "")[:8192])
        if not match:
            return ""
        url = urljoin(answer.url, match.group(1))
        if split(url).server != split(answer.url).server:
            raise self._registry_error(
                f"continues its list on another host, {origin(url)[:_MOST_SHOWN]!r}"
            )
        # Use our own base URL for the next page, because a registry behind a proxy may return a
        # different path before `/v2/`.
        _before, in_repository, path = url.partition(f"/v2/{quote(self.name)}/")
        if not in_repository:
            raise self._registry_error("continues its list in another repository")
        return f"/{path}"

    def _json(self, answer: Response, what: str) -> Mapping[str, Any]:
        """Return the JSON object from a response. `what` describes the object in error messages.

        Raises `RegistryDownError` if the object is incomplete, and `RegistryError` if the response
        is anything else.
        """
        try:
            data = answer.json()
        except ValueError:
            begins_like_an_object = answer.body.lstrip().startswith(b"{")
            if begins_like_an_object:
                raise RegistryDownError(
                    f"registry {self._api.endpoint.name}: the {what} of {self.name} is incomplete",
                    hint="run it again",
                ) from None
            data = None
        if not isinstance(data, dict):
            raise self._registry_error(f"returned something other than a {what}")
        return data

    def _verified_digest(self, body: bytes, reference: str, sent_digest: str) -> str:
        """Verify the digest of a response's body, and return it.

        Raises `TamperedError` if the digest differs from the requested `reference` (if that is a
        digest) or from `sent_digest` (the digest in the response's header, if any).
        """
        expected_digests = [digest for digest in (reference, sent_digest) if is_digest(digest)]
        for digest in expected_digests:
            algorithm = digest.partition(":")[0]
            if digest_of(body, algorithm) != digest:
                raise TamperedError(
                    f"registry {self._api.endpoint.name} returned bytes that do not match {digest}"
                    f" ({self.name})",
                    hint="check the registry, and any proxy in front of it",
                )
        return expected_digests[0] if expected_digests else digest_of(body)

    def _registry_error(self, what: str) -> RegistryError:
        return RegistryError(
            f"registry {self._api.endpoint.name} {what} ({self.name})",
            hint="check the registry",
        )


def _stored_member(fields: Mapping[str, Any]) -> Member:
    """Create a member from its fields in the cache file."""
    return Member(**{name: str(text) for name, text in fields.items()})


def _referrers(page: Mapping[str, Any]) -> Iterator[Referrer]:
    """Yield the manifests that an index lists, skipping entries without a valid digest."""
    for entry in mappings(page, "manifests"):
        if not is_digest(str(entry.get("digest", ""))):
            continue
        media_type = str(entry.get("mediaType", ""))
        artifact_type = str(entry.get("artifactType") or "")
        yield Referrer(
            digest=entry["digest"],
            media_type=media_type,
            artifact_type=artifact_type,
            annotations=texts(entry, "annotations"),
        )

"""Finds out where a registry is: its URLs, and which certificates are trusted there."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from task.errors import UsageError
from task.files import read_text
from task.model import Image
from task.registry.docker_config import HUB, normal
from task.registry.registries_conf import RegistryConf, find_registry
from task.urls import is_loopback, split

_HUB_API = "https://registry-1.docker.io"


@dataclass(frozen=True)
class Endpoint:
    """One registry."""

    name: str  # as in the names of images: "docker.io", "ghcr.io", "localhost:5000"
    urls: tuple[str, ...]  # the first one that answers is used
    verify: bool = True
    ca: str = ""  # PEM text: authorities trusted besides the machine's
    limit: int = 0  # requests in a second; 0 is no limit

    @property
    def local(self) -> bool:
        """Whether the registry is on this machine, so that no proxy is used."""
        return all(is_loopback(split(url).host) for url in self.urls)


@dataclass(frozen=True)
class ImageLocation:
    """The registry and repository of one image."""

    endpoint: Endpoint
    repository: str  # the registry's name for it
    conf: RegistryConf | None  # the image's entry of registries.conf


def place_of(image: Image, entries: Sequence[RegistryConf], insecure: Collection[str], ca: str) -> ImageLocation:
    """Return where to ask for an image. Raises `UsageError` for an unreadable `ca_file`."""
    # `docker.io/nginx` names its registry, but `nginx` does not. An entry with `default: true` is for the second form.
    written = image.registry != HUB or normal(image.name.partition("/")[0]) == HUB
    conf = find_registry(entries, image.registry, image.repository, written=written)
    if conf is None:
        return ImageLocation(_inferred(image.registry, insecure, ca), image.repository, None)
    texts = [ca, conf.ca_data]
    if conf.ca_file:
        try:
            texts.append(read_text(conf.ca_file))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(
                f"registries.conf, {conf.name}: cannot read ca_file {conf.ca_file!r}: {reason}",
                hint="name a readable PEM file",
            ) from None
    name = image.registry if written else conf.prefix or HUB
    endpoint = Endpoint(name, (conf.api_url,), not conf.insecure, "\n".join(filter(None, texts)), conf.limit)

    repository = image.repository.removeprefix("library/") if image.registry == HUB else image.repository
    # AIU's `defaultns`. An entry for Docker Hub itself does not need it, because that is `library`.
    if "/" not in repository:
        hub = split(conf.api_url).host.endswith("docker.io") or conf.prefix in ("", HUB)
        repository = f"{conf.defaultns}/{repository}" if conf.defaultns else image.repository if hub else repository
    return ImageLocation(endpoint, repository, conf)


def _inferred(registry: str, insecure: Collection[str], ca: str) -> Endpoint:
    """Return the endpoint of a registry without an entry, by Docker's rules.

    It uses https. On this machine, and if the registry is in `insecure`, http is tried as well.
    """
    if registry == HUB:
        return Endpoint(HUB, (_HUB_API,), ca=ca)
    https, http = f"https://{registry}", f"http://{registry}"
    if is_loopback(split(f"//{registry}").host):
        return Endpoint(registry, (http, https), registry not in insecure, ca)
    if registry in insecure:
        has_port = bool(re.search(r":[0-9]+$", registry))  # a registry with its own port usually uses http
        return Endpoint(registry, (http, https) if has_port else (https, http), verify=False)
    return Endpoint(registry, (https,), ca=ca)

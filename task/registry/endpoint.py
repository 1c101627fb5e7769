"""Determines a registry's address, from Argo CD Image Updater's (AIU's) `registries.conf`, or else
by Docker's rules.

The file is parsed as strictly as in AIU, so an unknown key is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from task.annotations.keys import CredentialSource, parse_credential_source
from task.errors import Malformed, UsageError
from task.model import Image
from task.registry.docker_config import HUB, normal, text_of
from task.urls import is_loopback, split
from task.yaml_documents import NULL, Dialect, loaded

_HUB_API = "https://registry-1.docker.io"
_DEEPEST = 20
_URL = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:/[^\s?#@]*)?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_TRUE = ("true", "yes", "on", "y")
_FALSE = ("false", "no", "off", "n")
_SORTED = (
    "registries do not guarantee the order of their tags, so the order of the list would decide"
    " which image is"
    " deployed"
)


@dataclass(frozen=True)
class RegistryConf:
    """An entry in registries.conf."""

    name: str = ""
    api_url: str = ""  # without a trailing slash
    prefix: str = ""  # "" means Docker Hub
    # accepted, but without effect: AIU first requests /v2/, for which any first request suffices
    # here
    ping: bool = True
    credentials: CredentialSource | None = None
    credsexpire: float = 0.0  # seconds; 0 means never
    insecure: bool = False  # accept any certificate
    defaultns: str = ""
    limit: int = 0  # requests per second; 0 means no limit
    default: bool = False
    ca_file: str = ""
    ca_data: str = ""


def parse_registries_conf(text: str) -> tuple[RegistryConf, ...]:
    """Parse the text of a registries.conf, and return its entries, in order.

    Raises `Malformed` for an invalid file or entry.
    """
    documents = loaded(text, Dialect(_scalar, _key, deepest=_DEEPEST))
    if len(documents) > 1:
        raise Malformed("has more than one YAML document")
    data = documents[0] if documents else None
    if data is None:  # an empty file has no entries
        data = {}
    if not isinstance(data, dict):
        raise Malformed("is not a mapping with a registries key")
    _refuse_unknown_keys(data, ("registries",), "it")
    entries = data.get("registries") or []
    if not isinstance(entries, list):
        raise Malformed("registries is not a list")
    registries = tuple(_registry_entry(entry, number) for number, entry in enumerate(entries, 1))

    # no two entries may have the same prefix, or `default: true`
    unique_settings = [f"prefix {registry.prefix or 'docker.io'}" for registry in registries]
    unique_settings += ["default: true" for registry in registries if registry.default]
    for setting in unique_settings:
        if unique_settings.count(setting) > 1:
            raise Malformed(f"two registries have {setting}", "keep only one of them")
    return registries


def find_registry(
    entries: Sequence[RegistryConf],
    registry: str,
    repository: str,
    *,
    has_registry: bool,
) -> RegistryConf | None:
    """Return the registries.conf entry for an image, or None if there is none.

    An entry whose prefix equals the registry wins, followed by the entry with the longest prefix of
    the image's name (as in AIU since v0.17). An image name without a registry (not `has_registry`)
    belongs to the entry with `default: true`, or else to Docker Hub.
    """
    if not has_registry:
        for entry in entries:
            if entry.default:
                return entry

    registry_prefixes = ("", HUB) if registry == HUB else (registry,)
    with_registry = [entry for entry in entries if entry.prefix in registry_prefixes]
    # with trailing slashes, so that only whole path segments match: `ghcr.io/acme` is not a prefix
    # of `ghcr.io/acme-tools/web`
    name = f"{registry}/{repository}/"
    with_path = [entry for entry in entries if entry.prefix and name.startswith(f"{entry.prefix}/")]
    matching_entries = with_registry or with_path
    return max(matching_entries, key=lambda entry: len(entry.prefix), default=None)


def duration(text: str) -> float:
    """Convert a Go duration, such as `10h`, `1h30m`, or `1.5h`, to seconds. Raises `Malformed`."""
    without_sign = text.strip().removeprefix("+")
    if without_sign == "0":
        return 0.0
    if not re.fullmatch(f"(?:{_DURATION.pattern})+", without_sign):
        raise Malformed(f"{text[:50]!r} is not a duration", "use 10h, 30m, or 1h30m")
    seconds = 0.0
    for number, unit in _DURATION.findall(without_sign):
        seconds += float(number) * _UNITS[unit]
    return seconds


def _registry_entry(data: Any, number: int) -> RegistryConf:
    """Parse an entry in registries.conf. `number` is its position in the file, for messages. Raises
    `Malformed`.
    """
    if not isinstance(data, dict):
        raise Malformed(f"registry {number} is not a mapping")
    name = data.get("name")
    what = f"registry {name!r}" if isinstance(name, str) and name else f"registry {number}"
    _refuse_unknown_keys(data, (*_PARSERS, "tagsortmode"), what)
    _refuse_sorting(data.get("tagsortmode"), what)

    values = {}
    for key, value in data.items():
        if key not in _PARSERS:  # `tagsortmode`, which has no effect
            continue
        if not isinstance(value, str | None):
            raise Malformed(f"{what}: {key} is not a single value")
        text = value or ""
        if key != "ca_data":  # `ca_data` is PEM text of several lines
            text = text.strip()
        if not text:
            continue
        try:
            values[key] = _PARSERS[key](text)
        except Malformed as problem:
            raise Malformed(f"{what}: {key}: {problem.message}", problem.hint) from None

    registry = RegistryConf(**values)
    for key in ("name", "api_url"):
        if not getattr(registry, key):
            raise Malformed(f"{what}: {key} is missing")
    return registry


def _refuse_sorting(value: Any, what: str) -> None:
    """Raise `Malformed` unless an entry's `tagsortmode` is `none` or missing. `what` identifies the
    entry in the message.
    """
    mode = "?"  # stands for any value that is not a string, and is rejected below
    if isinstance(value, str | None):
        mode = value or "none"
    if mode.lower() == "none":
        return
    if mode.lower() in ("latest-first", "latest-last"):
        raise Malformed(
            f"{what}: tagsortmode {mode} is not supported: {_SORTED}",
            "remove it: newest-build looks up the dates automatically, and semver and alphabetical"
            " do not need them",
        )
    raise Malformed(
        f"{what}: tagsortmode {mode[:50]!r} does not exist",
        "remove it, or set it to none",
    )


def _api_url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise Malformed(
            "not a registry URL",
            "use https://host[:port], without credentials or a query",
        )
    return text.rstrip("/").removesuffix("/v2")  # each request adds `/v2`


def _prefix(text: str) -> str:
    """Parse an entry's `prefix`, such as `ghcr.io` or `ghcr.io/acme`, and return it with the host
    in lowercase. Raises `Malformed` for anything else.
    """
    is_url = "://" in text
    has_forbidden_character = any(character in text for character in " @?#")
    if is_url or has_forbidden_character:
        raise Malformed(
            f"{text[:100]!r} is not an image name prefix",
            "use host[:port] or host/path",
        )
    host, slash, path = text.strip("/").partition("/")
    host = host.lower()
    if host in ("index.docker.io", "registry-1.docker.io"):
        host = "docker.io"
    return f"{host}{slash}{path}"


def _flag(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise Malformed(f"{text[:50]!r} is neither true nor false")
    return text.lower() in _TRUE


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise Malformed(f"{text[:50]!r} is not a number of requests per second")
    return int(text[:9])  # a longer number is practically no limit


def _certificates(text: str) -> str:
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise Malformed(
            "does not contain a certificate", "use PEM text: -----BEGIN CERTIFICATE----- …"
        )
    return text


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "name": str,
    "api_url": _api_url,
    "prefix": _prefix,
    "ping": _flag,
    "credentials": parse_credential_source,
    "credsexpire": duration,
    "insecure": _flag,
    "defaultns": lambda text: text.strip("/"),
    "limit": _number,
    "default": _flag,
    "ca_file": str,
    "ca_data": _certificates,
}


def _refuse_unknown_keys(data: Mapping[Any, Any], known: Sequence[str], what: str) -> None:
    """Raise `Malformed` for any key that is not in `known`. `what` identifies the entry in the
    message.
    """
    for key in data:
        if key not in known:
            raise Malformed(
                f"{what}: unknown key {str(key)[:50]!r}",
                f"use one of {', '.join(known)}",
            )


def _scalar(event: Any) -> Any:
    return None if not event.style and event.value in NULL else event.value


def _key(value: Any, known: Mapping[Any, Any]) -> str:
    if not isinstance(value, str) or value in known:
        raise Malformed(f"key {str(value)[:50]!r} appears twice, or is not a string")
    return value


@dataclass(frozen=True)
class Endpoint:
    """A registry's addresses, and how to connect to it."""

    name: str  # as written in image names: "docker.io", "ghcr.io", "localhost:5000"
    urls: tuple[str, ...]  # the first URL that responds is used
    verify: bool = True
    ca: str = ""  # PEM: CA certificates to trust in addition to the machine's
    limit: int = 0  # requests per second; 0 means no limit

    @property
    def local(self) -> bool:
        """Whether the registry is on this machine, in which case no proxy is used."""
        return all(is_loopback(split(url).host) for url in self.urls)


def authorities_of(conf: RegistryConf) -> str:
    """Return the PEM text from an entry's `ca_file`, or "" if none is set. Raises `UsageError`."""
    if not conf.ca_file:
        return ""
    what = f"registries.conf, {conf.name}: cannot read ca_file"
    return text_of(conf.ca_file, what, hint="specify a readable PEM file")


def place_of(
    image: Image,
    entries: Sequence[RegistryConf],
    ca: str,
    authorities: Callable[[RegistryConf], str] = authorities_of,
) -> tuple[Endpoint, str, RegistryConf | None]:
    """Return an image's registry, its repository's name in that registry, and its entry in
    registries.conf (None if there is none).

    `entries` are all entries in registries.conf. `ca` is PEM text: CA certificates to trust in
    addition to the machine's. `authorities` reads an entry's `ca_file`; its errors are not caught.
    """
    # `docker.io/nginx` includes the registry, but `nginx` does not. An entry with `default: true`
    # applies only to the latter.
    first_part = image.name.partition("/")[0]
    has_registry = image.registry != HUB or normal(first_part) == HUB
    conf = find_registry(entries, image.registry, image.repository, has_registry=has_registry)
    if conf is None:
        return _unconfigured_endpoint(image.registry, ca), image.repository, None

    name = image.registry
    if not has_registry:  # an entry with `default: true` may be for any registry
        name = conf.prefix or HUB
    certificates = [ca, conf.ca_data, authorities(conf)]
    endpoint = Endpoint(
        name=name,
        urls=(conf.api_url,),
        verify=not conf.insecure,
        ca="\n".join(filter(None, certificates)),
        limit=conf.limit,
    )
    return endpoint, _repository_in(conf, image), conf


def _unconfigured_endpoint(registry: str, ca: str) -> Endpoint:
    """Return the endpoint, by Docker's rules, of a registry that registries.conf does not mention.

    `ca` is PEM text: CA certificates to trust in addition to the machine's.
    """
    urls = [_HUB_API if registry == HUB else f"https://{registry}"]
    # like Docker, try plain HTTP only for a registry on this machine
    if is_loopback(split(f"//{registry}").host):
        urls.insert(0, f"http://{registry}")
    return Endpoint(registry, tuple(urls), ca=ca)


def _repository_in(conf: RegistryConf, image: Image) -> str:
    """Return the name of the image's repository in the registry of this registries.conf entry. For
    example, `nginx` is `library/nginx` on Docker Hub.
    """
    repository = image.repository
    if image.registry == HUB:  # `library/` may have been added to a short name
        repository = repository.removeprefix("library/")
    if "/" in repository:
        return repository
    if conf.defaultns:
        return f"{conf.defaultns}/{repository}"
    is_at_hub = split(conf.api_url).host.endswith("docker.io") or conf.prefix in ("", HUB)
    if is_at_hub:  # for Docker Hub itself, AIU's `defaultns` is not required
        return image.repository
    return repository


def read_registries_conf(path: str) -> tuple[RegistryConf, ...]:
    """Read the file set with `--registries-conf`, and return its entries. Raises `UsageError`."""
    text = text_of(path, "--registries-conf: cannot read")
    try:
        return parse_registries_conf(text)
    except Malformed as problem:
        raise UsageError(
            f"--registries-conf: {path}: {problem.message}",
            hint=problem.hint,
        ) from None

"""Reads events in any of the formats below: a single document, a list, or consecutive documents
(JSON lines).

Unless the user sets the format, it is detected from each document's keys. An unknown format is an
error, because a registry that changes its format must not look like "nothing to do".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from task.ci.events import (
    aliyun,
    artifactory,
    azure_registry,
    cdevents,
    cloudevents,
    distribution,
    docker_hub,
    ecr,
    gitea_packages,
    github_packages,
    google,
    harbor,
    lines,
    nexus,
    quay,
)
from task.ci.events.event import Document, EventOrSkipped, Events, Skipped
from task.errors import Malformed
from task.model import Event
from task.plain_data import json_at
from task.text import and_more

LARGEST = 64_000_000  # bytes
MOST_EVENTS = 100_000
MOST_VALUES = 5_000_000  # objects and lists in total, which use memory; an event has about ten
_SHOWN = 6
_SPLIT = "split the file"
_AS_SENT = "pass it unchanged, as the registry sent it"


class Form(NamedTuple):
    """An event format."""

    title: str  # the format's name in messages
    known: Callable[[Document], bool]
    read: Callable[[Document, str], Iterable[EventOrSkipped]]


LINES = "lines"
FORMS: Mapping[str, Form] = {
    "distribution": Form("Docker Distribution", distribution.known, distribution.read),
    "harbor": Form("Harbor", harbor.known, harbor.read),
    "quay": Form("Quay", quay.known, quay.read),
    "docker-hub": Form("Docker Hub", docker_hub.known, docker_hub.read),
    "github": Form("GitHub", github_packages.known, github_packages.read),
    "ecr": Form("Amazon ECR (EventBridge)", ecr.known, ecr.read),
    "google": Form("Google Artifact Registry (Pub/Sub)", google.known, google.read),
    "azure": Form("Azure Container Registry", azure_registry.known, azure_registry.read),
    "artifactory": Form("Artifactory", artifactory.known, artifactory.read),
    "nexus": Form("Nexus", nexus.known, nexus.read),
    "gitea": Form("Gitea and Forgejo", gitea_packages.known, gitea_packages.read),
    "aliyun": Form("Alibaba Cloud", aliyun.known, aliyun.read),
    "cdevents": Form("CDEvents", cdevents.known, cdevents.read),
    "cloudevents": Form("CloudEvents about images", cloudevents.known, cloudevents.read),
    LINES: Form("Image Update's JSON lines", lines.known, lines.read),
}
REGISTRIES = tuple(name for name in FORMS if name != LINES)
ANY = "registry"  # any registry's format, but not Image Update's JSON lines or a builder's file
KNOWN = f"the supported forms are {', '.join(form.title for form in FORMS.values())}"


def events_in(text: str, form: str = "auto", registry: str = "") -> Events | None:
    """Parse a file's text, and return its events, or None if it appears to contain something else,
    such as a builder's output.

    `form` is the name of an event format, "registry" for any registry's format, or "auto". Only
    "auto" can return None; for other values, text in a different format is an error. `registry` is
    the registry's name in image references if it differs from the name in the events. Raises
    `Malformed`.
    """
    if text.count("{") + text.count("[") > MOST_VALUES:
        raise Malformed(f"it has over {MOST_VALUES:,} objects and lists", _SPLIT)
    is_detected = form == "auto"
    if is_detected:
        allowed_forms = tuple(FORMS)
    elif form == ANY:
        allowed_forms = REGISTRIES
    else:
        allowed_forms = (form,)
    is_missing = not text and not is_detected
    if is_missing:
        raise Malformed("it is empty", _AS_SENT)
    try:
        documents = list(_json_documents(text))
    except Malformed:
        looks_like_json = text.startswith(("{", "["))
        if is_detected and not looks_like_json:  # it may be a builder's text file
            return None
        raise
    if is_detected:
        has_event = any(_form_name(document, allowed_forms) for _position, document in documents)
        if not has_event:  # it may be a builder's JSON file
            return None
    if len(documents) > MOST_EVENTS:
        raise Malformed(
            f"it has {len(documents):,} events; at most {MOST_EVENTS:,} are accepted",
            _SPLIT,
        )
    return _events_in_documents(documents, allowed_forms, registry)


def _events_in_documents(
    documents: Iterable[tuple[str, Any]], allowed_forms: tuple[str, ...], registry: str
) -> Events:
    """Return the pushes in these documents, and the reasons why other events are skipped.

    Each document is a (position, JSON value), such as ("line 3", {…}). Raises `Malformed` for a
    document in a format that is not allowed, or for too many events.
    """
    pushes: list[Event] = []
    passed_over: list[str] = []
    for position, document in documents:
        for event in _events_in_document(position, document, allowed_forms, registry):
            if isinstance(event, Skipped):
                passed_over.append(event.why)
            else:
                pushes.append(event)
        # a document may contain several events
        if len(pushes) + len(passed_over) > MOST_EVENTS:
            raise Malformed(f"it has over {MOST_EVENTS:,} events", _SPLIT)
    return Events(tuple(pushes), tuple(passed_over))


def _json_documents(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the position and value of each JSON document in a text, such as ("line 3", {…}). If a
    document is a list, yield each element separately, such as ("event 2", {…}).

    Raises `Malformed` if the text is not JSON.
    """
    start = 0
    line = 1
    while start < len(text):
        try:
            document, end = json_at(text, start)
        except ValueError as problem:
            raise Malformed(
                f"line {line}: it cannot be parsed as JSON: {problem}",
                _AS_SENT,
            ) from None
        if isinstance(document, list):
            for number, element in enumerate(document, 1):
                yield f"event {number}", element
        else:
            yield f"line {line}", document
        next_start = end  # skip whitespace after the document
        while next_start < len(text) and text[next_start] in " \t\r\n":
            next_start += 1
        line += text.count("\n", start, next_start)
        start = next_start


def _form_name(document: Any, allowed_forms: Iterable[str]) -> str:
    """Return the name of the document's format, or "" if it is not one of the allowed formats."""
    if not isinstance(document, dict):
        return ""
    for name in allowed_forms:
        if FORMS[name].known(document):
            return name
    return ""


def _events_in_document(
    position: str, document: Any, allowed_forms: tuple[str, ...], registry: str
) -> Iterator[EventOrSkipped]:
    """Yield a document's events, each with the name of its format, such as "harbor".

    Raises `Malformed`, with the document's position in the message, if the document is not in an
    allowed format or its content is invalid.
    """
    name = _form_name(document, allowed_forms)
    if not name:
        raise Malformed(f"{position}: {_described_mismatch(document, allowed_forms)}", KNOWN)
    form = FORMS[name]
    try:
        for event in form.read(document, registry):
            if isinstance(event, Skipped):
                yield event
            else:
                yield replace(event, form=name)
    except Malformed as problem:
        raise Malformed(f"{position}, {form.title}: {problem.message}", problem.hint) from None


def _described_mismatch(document: Any, allowed_forms: tuple[str, ...]) -> str:
    """Return a description of the problem with a document that is not in an allowed format."""
    problem = "not a known event"
    if len(allowed_forms) == 1:
        problem = f"not an event from {FORMS[allowed_forms[0]].title}"
    return f"{problem}: {described_keys(document)}"


def described_keys(document: Any) -> str:
    """Describe a JSON value for a message by its keys. Its values are not shown, because they may
    be secrets.
    """
    if not isinstance(document, dict):
        return "it is not a JSON object"
    names = [repr(key[:40]) for key in document]
    return f"a JSON object with {and_more(names, _SHOWN)}" if names else "an empty JSON object"

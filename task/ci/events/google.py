"""Google Artifact Registry notifications: Pub/Sub messages, either bare or in an envelope.

Sources: https://cloud.google.com/artifact-registry/docs/configure-notifications and
https://cloud.google.com/pubsub/docs/push#receive_push (November 2026).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

from task.ci.events.event import Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.errors import Malformed
from task.plain_data import mapping, parsed_json, text

_ACTIONS = ("INSERT", "DELETE")


def known(document: Document) -> bool:
    """Return whether this is a notification, or an envelope that contains any message."""
    return _is_envelope(document) or _is_notification(document)


def _is_envelope(document: Document) -> bool:
    """Return whether this is the envelope in which Pub/Sub sends a message."""
    # Messages from `gcloud pubsub subscriptions pull` have an acknowledgment ID instead of a
    # subscription.
    has_sender = "subscription" in document or "ackId" in document
    return has_sender and isinstance(document.get("message"), dict)


def _is_notification(document: Document) -> bool:
    """Return whether this is a notification from Artifact Registry."""
    has_image = "digest" in document or "tag" in document
    return text(document, "action") in _ACTIONS and has_image and "target" not in document


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the notification's event. Raises `Malformed` for an envelope without a notification."""
    if not _is_envelope(document):
        yield _event_of_notification(document, None, registry)
        return
    message = mapping(document, "message")
    try:
        data = base64.b64decode(text(message, "data"), validate=True).decode()
    except ValueError:  # also raised for text that is not ASCII
        raise Malformed("its message data is not valid base64", "send it unchanged") from None
    try:
        notification = parsed_json(data)
    except ValueError as problem:
        problem_message = f"its message data cannot be parsed as JSON: {problem}"
        raise Malformed(problem_message, "send it unchanged") from None
    if not isinstance(notification, dict) or not _is_notification(notification):
        hint = "subscribe to the project's gcr topic"
        raise Malformed("its message is not from Artifact Registry", hint)
    yield _event_of_notification(notification, message.get("publishTime"), registry)


def _event_of_notification(document: Document, time: object, registry: str) -> EventOrSkipped:
    """Return a notification's event: the pushed image, or the reason why it is not a push."""
    action = text(document, "action")
    if action != "INSERT":
        return Skipped(f"its action is {action!r}")
    # Both fields contain the full name: HOST/PROJECT/REPOSITORY/IMAGE@sha256:… and …:TAG
    name_of_digest, _, digest = text(document, "digest").partition("@")
    name_of_tag, _, tag = text(document, "tag").rpartition(":")
    host, _, repository = (name_of_digest or name_of_tag).partition("/")
    return pushed(
        ImageLocation(host, repository),
        tag=tag,
        digest=digest,
        at=time,
        registry=registry,
    )

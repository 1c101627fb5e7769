"""Amazon ECR events, as sent by EventBridge.

Source: https://docs.aws.amazon.com/AmazonECR/latest/userguide/ecr-eventbridge.html (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from task.ci.events.event import CONFIGS, Document, EventOrSkipped, ImageLocation, Skipped, pushed
from task.plain_data import mapping, text


def known(document: Document) -> bool:
    """Return whether this is an ECR event."""
    return text(document, "source") == "aws.ecr" and "detail-type" in document


def host_of(account: str, region: str) -> str:
    """Return the host name of an account's registry in a region."""
    suffix = ".cn" if region.startswith("cn-") else ""
    return f"{account}.dkr.ecr.{region}.amazonaws.com{suffix}"


def read(document: Document, registry: str) -> Iterator[EventOrSkipped]:
    """Yield the event: the image pushed to ECR, or the reason why the event is not a push."""
    kind = text(document, "detail-type")
    detail = mapping(document, "detail")
    action = text(detail, "action-type")
    result = text(detail, "result")
    if kind != "ECR Image Action":
        yield Skipped(f"its type is {kind!r}")
    elif action != "PUSH" or result != "SUCCESS":
        yield Skipped(f"it is {action} {result}")
    elif text(detail, "artifact-media-type") not in ("", *CONFIGS):
        yield Skipped("it is a chart, a signature, or another artifact")
    else:
        host = host_of(text(document, "account"), text(document, "region"))
        yield pushed(
            ImageLocation(host, text(detail, "repository-name")),
            tag=text(detail, "image-tag"),
            digest=text(detail, "image-digest"),
            at=document.get("time"),
            registry=registry,
        )

"""Registry events: recorded, documented, and arbitrary input."""

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import scale

from task.ci.events import forms
from task.ci.events.event import Events
from task.ci.events.forms import FORMS, LINES, REGISTRIES, events_in
from task.ci.images_from import read_images_from
from task.errors import Malformed, UsageError
from task.model import Build
from task.option import OPTION
from task.settings import EventOptions

DATA = Path(__file__).parent.parent / "data" / "events"
RECORDED = {path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))}
CASES = [(form, one) for form, file in RECORDED.items() for one in file["cases"]]
PUSHES = [(form, one) for form, one in CASES if one["images"]]
OTHERS = [(form, one) for form, one in CASES if not one["images"]]
NEXUS = "registry.example:5000"  # events from Nexus do not name their registry
DIGEST = f"sha256:{'a' * 64}"


def named(case: tuple[str, dict[str, Any]]) -> str:
    return f"{case[0]}: {case[1]['name']}"


def read(form: str, payload: object, given: str = "auto") -> Events:
    registry = NEXUS if form == "nexus" else ""
    found = events_in(json.dumps(payload), given, registry)
    assert found is not None
    return found


def test_there_are_at_least_thirty_samples_of_each_kind_of_event() -> None:
    assert len(PUSHES) >= 30
    assert len(OTHERS) >= 30
    assert set(RECORDED) == set(REGISTRIES)


@pytest.mark.parametrize("case", PUSHES, ids=map(named, PUSHES))
@pytest.mark.parametrize("given", ["auto", "registry", "its own"])
def test_a_push_event_names_its_image(case: tuple[str, dict[str, Any]], given: str) -> None:
    form, one = case
    found = read(form, one["payload"], form if given == "its own" else given)
    assert [event.image.reference for event in found.pushes] == one["images"]
    assert {event.form for event in found.pushes} == {form}
    assert all(event.claimed for event in found.pushes)
    if "at" in one:
        assert [event.at for event in found.pushes] == [one["at"]] * len(one["images"])


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS, ids=map(named, OTHERS))
def test_events_other_than_pushes_of_tagged_images_are_skipped(
    case: tuple[str, dict[str, Any]],
) -> None:
    form, one = case
    found = read(form, one["payload"], form)
    assert found.pushes == ()
    assert len(found.passed_over) == one["passed_over"]
    assert all(found.passed_over)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=map(named, CASES))
def test_every_event_matches_exactly_one_format(case: tuple[str, dict[str, Any]]) -> None:
    payload = case[1]["payload"]
    documents = payload if isinstance(payload, list) else [payload]
    for document in documents:
        known = [name for name, form in FORMS.items() if form.known(document)]
        assert known == [case[0]]


def test_events_from_different_registries_may_be_mixed() -> None:
    payloads = [one["payload"] for form, one in CASES if form != "nexus"]
    lines = "\n".join(map(json.dumps, payloads))
    flat = [each for one in payloads for each in (one if isinstance(one, list) else [one])]
    images = [image for form, one in PUSHES if form != "nexus" for image in one["images"]]
    for text in (lines, json.dumps(flat), json.dumps(flat, indent=2)):
        found = events_in(text)
        assert found is not None
        assert [event.image.reference for event in found.pushes] == images


LINE: dict[str, Any] = {
    "image": "ghcr.io/acme/web:1.4.2",
    "digest": DIGEST,
    "sequence": 42,
    "sourceCommit": "0123ABC",
    "sourceRepository": "https://jane:secret@github.com/acme/web",
    "created": "2026-11-22T09:00:00+01:00",
    "pipelineRun": "https://ci.example/42",
}


def test_an_event_line_from_our_own_pipeline_identifies_its_build() -> None:
    found = events_in(json.dumps(LINE))
    assert found is not None
    (event,) = found.pushes
    assert event.image.reference == f"ghcr.io/acme/web:1.4.2@{DIGEST}"
    repository = "https://github.com/acme/web"
    assert event.build == Build(42, "", "0123abc", repository, "2026-11-22T08:00:00Z")
    assert (event.origin, event.claimed) == ("pipeline event, https://ci.example/42", False)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"sequenze": 1}, "line 2.*'sequenze'"),
        ({"digest": "sha256:abc"}, "digest"),
        ({"image": "ghcr.io/acme/web", "digest": ""}, "neither a tag nor a digest"),
        ({"image": None}, "empty"),
        ({"image": 3}, "its image is not a string"),
        ({"image": f"ghcr.io/acme/web@sha256:{'b' * 64}"}, "different digests"),
        ({"sequence": 1.5}, "its sequence is not a string"),
        ({"sequence": -1}, "its sequence.*not a build number"),
        ({"sequence": True}, "its sequence is not a string"),
        ({"sourceCommit": "main"}, "sourceCommit"),
        ({"created": "yesterday"}, "its created.*not a time"),
    ],
)
def test_a_mistake_in_an_event_line_is_reported_with_the_line_number(
    change: dict[str, Any], part: str
) -> None:
    text = f"{json.dumps({'image': 'a/b:1'})}\n{json.dumps(LINE | change)}\n"
    with pytest.raises(Malformed, match=rf"line 2.*({part})" if "line 2" not in part else part):
        events_in(text)


@pytest.mark.parametrize("given", ["registry", "harbor"])
def test_trusted_event_lines_are_rejected_from_a_webhook(given: str) -> None:
    with pytest.raises(Malformed, match="'image'"):
        events_in(json.dumps(LINE), given)


@pytest.mark.parametrize("how", [gzip.compress, lambda raw: raw.decode().encode("utf-16")])
def test_compressed_or_non_utf_8_events_cause_usage_errors(
    how: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "event"
    path.write_bytes(how(json.dumps(PUSHES[0][1]["payload"]).encode()))
    for form in ("auto", "registry"):
        with pytest.raises(UsageError, match="it is not a text file") as raised:
            read_images_from([str(path)], form)
        assert "UTF-8" in raised.value.hint


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "event"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(PUSHES[0][1]["payload"]).encode())
    assert read_images_from([str(path)], "registry").events


def test_the_error_for_an_unknown_event_format_lists_the_keys_in_the_event(tmp_path: Path) -> None:
    path = tmp_path / "event"
    path.write_text(json.dumps({"kind": "push", "secret": "s3cret"}))
    for form in ("auto", "registry", "quay"):
        with pytest.raises(UsageError, match="'kind', 'secret'") as raised:
            read_images_from([str(path)], form)
        assert "Harbor" in raised.value.hint
        assert "s3cret" not in f"{raised.value}{raised.value.hint}"


def test_an_unknown_event_among_known_events_is_an_error() -> None:
    push = PUSHES[0][1]["payload"]
    with pytest.raises(Malformed, match="event 2: not a known event"):
        events_in(json.dumps([push, {"kind": "push"}]))


def test_the_registry_option_completes_events_that_do_not_name_their_registry() -> None:
    nexus = json.dumps(RECORDED["nexus"]["cases"][0]["payload"])
    with pytest.raises(Malformed, match="does not include the registry") as raised:
        events_in(nexus)
    assert "--images-registry" in raised.value.hint
    proxied = json.dumps(RECORDED["distribution"]["cases"][0]["payload"])
    artifactory = json.dumps(RECORDED["artifactory"]["cases"][0]["payload"])
    for text, name in (
        (proxied, "hub.example/library/test"),
        (artifactory, "hub.example/library/ubuntu"),
    ):
        found = events_in(text, registry="hub.example")
        assert found is not None
        assert [event.image.name for event in found.pushes] == [name]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("[" * 100_000, "nested too deeply"),
        ('{"events": ' * 5_000, "nested too deeply"),
        ('{"events": [}', "cannot be parsed"),
        ("push", "cannot be parsed"),
        ("[1]", "not a JSON object"),
        ("{}", "empty JSON object"),
        ("9" * 5000, "cannot be parsed as JSON: a number is too large$"),
    ],
)
def test_input_that_is_not_an_event_is_an_error(text: str, part: str) -> None:
    with pytest.raises(Malformed, match=part):
        events_in(text, "registry")


@pytest.mark.parametrize(
    "data",
    [
        "%%%",
        "é",
        "/w==",
        "\ud800",
        "W1s=",
        "bnVsbA==",
        base64.b64encode(b"[" * 100_000).decode(),
        1,
    ],
    ids=["signs", "not ASCII", "not UTF-8", "half", "a list", "null", "deep", "a number"],
)
def test_invalid_messages_in_an_envelope_are_errors(data: object) -> None:
    envelope = {"message": {"data": data}, "subscription": "projects/x/subscriptions/y"}
    with pytest.raises(Malformed, match=r"its message"):
        events_in(json.dumps(envelope), "google")


def test_the_size_and_number_of_events_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    event = RECORDED["quay"]["cases"][0]["payload"]
    monkeypatch.setattr(forms, "MOST_EVENTS", 3)
    many = {**event, "updated_tags": ["1", "2", "3", "4"]}
    for text in ("\n".join([json.dumps(event)] * 4), json.dumps([event] * 4), json.dumps(many)):
        with pytest.raises(Malformed, match=r"split the file|events"):
            events_in(text, "quay")
    monkeypatch.setattr(forms, "MOST_VALUES", 10)
    with pytest.raises(Malformed, match="objects and lists"):
        events_in("[[],[],[],[],[],[],[],[],[],[],[]]", "quay")


def test_the_help_lists_every_event_format() -> None:
    metavar = EventOptions.__dataclass_fields__["images_format"].metadata[OPTION].metavar
    assert set(metavar.split("|")) == {"auto", "builder", "registry", *FORMS}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["push", "PUSH_ARTIFACT", "latest", DIGEST, "ghcr.io/acme/web", "created"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def changed(value: Any, data: st.DataObject) -> Any:
    """Return a copy of the document with some values replaced."""
    if data.draw(st.integers(0, 9)) == 0:
        return data.draw(VALUES)
    if isinstance(value, dict):
        return {key: changed(one, data) for key, one in value.items()}
    if isinstance(value, list):
        return [changed(one, data) for one in value]
    return value


@given(st.sampled_from([*CASES, (LINES, {"payload": LINE})]), st.data())
def test_a_mutated_event_is_parsed_or_rejected(case: tuple[str, Any], data: st.DataObject) -> None:
    text = json.dumps(changed(case[1]["payload"], data))
    registry = data.draw(st.sampled_from(["", NEXUS, "no registry"]))
    for form in ("auto", "registry", case[0]):
        found = None
        with suppress(Malformed):
            found = events_in(text, form, registry)
        for event in found.pushes if found else ():
            assert event.image.tag or event.image.digest
            assert event.image.reference.isascii()


HOSTILE: list[Any] = [
    None, True, -1, 1.5, 10**30, "", "é", "\x00", "\ud800", "a\nb", "//", "a/../b", "https://u:pw@h/x", "::1",
    f"sha256:{'A' * 64}", "1.10", "x" * 5000, "9999-13-01T00:00:00Z", [], {}, [[]], [None], {"": ""}, "\x1b[2J\u202e",
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a document, paired with each of its keys or indexes."""
    keys: Iterable[Any] = value if isinstance(value, dict) else ()
    if isinstance(value, list):
        keys = range(len(value))
    for key in list(keys):
        yield value, key
        yield from places(value[key])


def assert_taken_or_refused(text: str, form: str) -> None:
    words, found = "", None
    try:
        found = events_in(text, form, NEXUS if form == "nexus" else "")
    except Malformed as problem:
        words = problem.message
    assert words.isprintable()
    assert words or found is not None
    for event in found.pushes if found else ():
        assert event.image.reference.isascii()
        assert event.image.reference.isprintable()
        assert not event.at or datetime.fromisoformat(event.at).tzinfo


@pytest.mark.parametrize("form", FORMS)
def test_a_hostile_value_in_any_field_is_parsed_or_rejected_with_a_clear_message(form: str) -> None:
    cases = [one["payload"] for name, one in CASES if name == form][: scale(3, at_night=6)] or [
        LINE
    ]
    for payload in json.loads(json.dumps(cases)):
        for container, key in places(payload):
            before = container[key]
            for value in HOSTILE:
                container[key] = value
                assert_taken_or_refused(json.dumps(payload), form)
            container[key] = before


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")) | VALUES.map(json.dumps))
def test_any_text_is_parsed_as_events_or_rejected(text: str) -> None:
    for form in ("auto", "registry", LINES):
        with suppress(Malformed):
            events_in(text.strip(), form)

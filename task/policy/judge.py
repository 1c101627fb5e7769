"""Decides whether an image is admitted, and by which rule: (candidate, policy, current) → Verdict.

Only the image's tag is judged here; registry facts (platforms, age) are handled in
`deciding.weigh`. From the tags of a whole repository, the newest admitted one is chosen. Pure: the
same input always leads to the same result. After a lost push race, the decision is repeated for the
new tip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import ceil
from typing import Any

from task.image import live_image
from task.model import Image, Policy, Reading, Verdict
from task.policy import tag_filter
from task.policy.strategies import UNFIT_HINT, needs, rules_of, unfit_order
from task.timestamps import epoch_seconds, of_unix, readable, span


def objection(tag: str, policy: Policy) -> Verdict | None:
    """Return the verdict "refuse" or "error", with the rule that rejects the tag, or None if the
    entry's rules (`policy`) admit the tag.

    The version in Git is not considered.
    """
    glob = tag_filter.ignored(policy.ignore, tag) if policy.ignore else ""
    if glob:
        return Verdict("refuse", "ignore-tags", f"ignore-tags {glob!r} matches {tag}")
    if policy.allow is not None and not tag_filter.allowed(policy.allow, tag):
        why = f"allow-tags regexp:{policy.allow} does not match {tag or 'an empty tag'}"
        return Verdict("refuse", "allow-tags", why)
    why_unfit = unfit_order(policy)
    if why_unfit:
        return Verdict("error", "annotation", why_unfit, UNFIT_HINT)
    rule, why = rules_of(policy).objection(tag, policy)
    return Verdict("refuse", rule, why) if rule else None


def judge(
    image: Image,
    policy: Policy,
    current: Reading,
    *,
    allow_downgrade: bool = False,
) -> Verdict:
    """Return the verdict on replacing `current`, the version in Git, with `image`: "update",
    "unchanged", "refuse", or "error", with the rule and the reason.

    `image` contains the tag and digest to write.
    """
    refusal = objection(image.tag, policy)
    if refusal:
        return refusal
    rules = rules_of(policy)
    # If `tagsortmode` is set, AIU only writes the tag in
    # this case, which has no effect in the cluster.
    if "digest" in rules.needs and not image.digest:
        why = f"the {policy.strategy} strategy needs a digest, but the build did not provide one"
        return Verdict("error", "registry", why)
    if same(image, current):
        return Verdict("unchanged", "same", "Git already has it")
    # Only a tag that the same rules admit can count as newer. `latest`, or a version outside the
    # range, is always replaced. So an update may be a downgrade: if 2.0.0 is running, ~1.0 picks
    # 1.0.5. AIU never compares with the running tag. `current.also` contains the tags of the
    # image's other entries, which the update would replace too.
    tags_to_compare = () if allow_downgrade else (current.tag, *current.also)
    for tag in tags_to_compare:
        is_comparable = tag not in {"", image.tag} and objection(tag, policy) is None
        if not is_comparable:
            continue
        why = rules.older(image.tag, tag)
        if why:
            location = "" if tag == current.tag else ", in another entry for the image"
            return Verdict("refuse", "not-newer", f"{why}{location}")
    if policy.pin_digest and not image.digest:
        why = "pin-digest needs a digest, but the build did not provide one"
        return Verdict("error", "registry", why)
    return Verdict("update", "admitted", _why_admitted(policy))


def _why_admitted(policy: Policy) -> str:
    """Return the reason why a tag is admitted, such as "semver ^1.2 admits it". A constraint that
    the strategy does not use is omitted.
    """
    if rules_of(policy).constraint or not policy.constraints:
        rules = f"{policy.strategy} {' and '.join(policy.constraints)}".rstrip()
        return f"{rules} admits it"
    if policy.allow is None and not policy.ignore and not policy.tag_order:
        return f"{policy.strategy}: every tag is admitted"
    return f"{policy.strategy}: every tag that the other annotations allow is admitted"


def same(image: Image, current: Reading) -> bool:
    """Return whether the target already contains this image: the same tag, and the same digest if
    the event includes one.

    A digest alone fully identifies the image. So if a target contains only a digest, an event with
    the same digest does not add a tag.
    """
    # If the current scalar is not sound, some YAML parsers read it as a number, so the tag differs
    # even though the text is the same.
    if not current.sound:
        return False
    # If the target contains a different repository, writing only the tag is not enough.
    current_image = live_image(current.name) if current.name else None
    if current_image is not None and current_image.identity != image.identity:
        return False

    same_tag = image.tag == current.tag
    if image.digest and current.digest:
        one_lacks_tag = not image.tag or not current.tag
        return image.digest == current.digest and (same_tag or one_lacks_tag)
    if image.digest:  # the target does not have this digest yet
        return False
    return same_tag and bool(image.tag)


# For registries without a referrers API, cosign stores signatures
# and attestations under tags such as `sha256-<hex>.sig`.
_NO_VERSION = re.compile(r"sha256-[0-9a-f]{64}(?:\..+)?")


def admitted(tags: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """Return the tags that the rules admit, without duplicates, in the order given."""
    candidates = dict.fromkeys(tag for tag in tags if not _NO_VERSION.fullmatch(tag))
    return tuple(tag for tag in candidates if objection(tag, policy) is None)


def dates_needed(tags: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """Return the tags whose dates are needed. Only a strategy that sorts by date needs dates, and
    only if there is more than one tag.
    """
    candidates = admitted(tags, policy) if needs(policy, "created") else ()
    return candidates if len(candidates) > 1 else ()


def ranked(tags: Iterable[str], policy: Policy, dates: Mapping[str, str] = {}) -> tuple[str, ...]:
    """Return the admitted tags, newest first.

    `dates` are in RFC 3339 and UTC, or "" for an image without a date, which ranks as the oldest.
    The caller must pass the dates of all tags in `dates_needed`; a missing date is treated as "".
    """
    rules = rules_of(policy)

    def sort_key(tag: str) -> Any:
        """Return the strategy's sort key for a tag. Newer tags have greater keys."""
        return rules.sort_key(tag, dates.get(tag, ""))

    return tuple(sorted(admitted(tags, policy), key=sort_key, reverse=True))


# All operating systems and architectures that Go supports
# (internal/syslist), because images may be built for any of them.
_ARCHITECTURES = (
    "386", "amd64", "amd64p32", "arm", "arm64", "arm64be", "armbe", "loong64", "mips", "mips64",
    "mips64le", "mips64p32", "mips64p32le", "mipsle", "ppc", "ppc64", "ppc64le", "riscv", "riscv64",
    "s390", "s390x", "sparc", "sparc64", "wasm",
)  # fmt: skip
_OTHER_NAMES = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "x64": "amd64",
    "aarch64": "arm64",
    "i386": "386",
    "x86": "386",
}


def suits(wanted: Iterable[str], platforms: Iterable[str]) -> bool:
    """Return whether an image for these platforms (`os/arch[/variant]`) supports any of the wanted
    platforms.

    A wanted platform without a variant accepts any variant, and one with a variant accepts only
    that variant. Case matters. A string that is not a platform accepts no image, so that a typo
    never lets an image through.
    """
    # (os, arch, variant); a variant of "" matches wanted platforms without a variant
    supported_platforms = set()
    for platform in platforms:
        os, arch, variant = _platform_parts(platform)
        supported_platforms |= {(os, arch, variant), (os, arch, "")}
    wanted_platforms = [_platform_parts(text) for text in wanted if is_platform(text)]
    return any(parts in supported_platforms for parts in wanted_platforms)


def is_platform(text: str) -> bool:
    """Return whether the string consists of an operating system and an architecture."""
    os, arch, _ = _platform_parts(text)
    return bool(os and arch)


def meant_platforms(text: str) -> tuple[str, ...]:
    """Return the platforms that a string with an unknown architecture may refer to: `linux/amd64`
    for `linux/x86_64`.

    The result is empty if the architecture is known, or is not similar to any known one.
    """
    os, arch, _ = _platform_parts(text)
    if arch in _ARCHITECTURES:
        return ()
    if arch in _OTHER_NAMES:
        return (f"{os}/{_OTHER_NAMES[arch]}",)
    return tuple(f"{os}/{name}" for name in get_close_matches(arch, _ARCHITECTURES, n=2))


def _platform_parts(text: str) -> tuple[str, str, str]:
    """Return the parts of `os/arch/variant`.

    Everything after the second slash is the variant, as in AIU.
    """
    os, _, arch_and_variant = text.partition("/")
    arch, _, variant = arch_and_variant.partition("/")
    return os, arch, variant


MOST_YOUNG = 200  # how many tags per entry `scan` looks up the dates of, starting with the newest


def young_until(since: str, seconds: int, now: str) -> str:
    """Return the time at which something becomes old enough, or "" if it already is.

    `since` is the time from which its age is counted.
    """
    old_enough_at = epoch_seconds(since) + seconds
    return "" if old_enough_at <= epoch_seconds(now) else of_unix(ceil(old_enough_at))


def too_young(version: str, age: int, until: str) -> Verdict:
    """Return the refusal of a version that is younger than `age` seconds, and that will be old
    enough at the time `until`. If `until` is "", the version has no date.
    """
    if until:
        why = f"is younger than {span(age)}; it can be written from {readable(until)}"
    else:
        why = f"has no date, but must be at least {span(age)} old"
    return Verdict("refuse", "too-young", f"{version} {why} (minimumAge)")

"""Merges text line by line, as a Git host does when a person merges a request."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from difflib import Match, SequenceMatcher

MOST_DIFFERENT = 4000  # lines; comparing more could take minutes


def merged_text(before: str | None, after: str | None, now: str | None) -> tuple[str | None, bool]:
    """Apply the change from `before` to `after` to the text `now`. Return the result, and whether
    the whole change could be applied.

    Lines that have also been changed in `now` are left as they are there. If too many lines differ,
    `now` is returned unchanged.
    """
    if now in (before, after):
        return after, True
    if before is None or after is None or now is None:
        return now, False
    old, new, present = (text.splitlines(keepends=True) for text in (before, after, now))
    blocks, hunks = _blocks(old, present), _blocks(old, new)
    if blocks is None or hunks is None:
        return now, False
    whole, start, first = True, 0, 0
    edits = []
    for hunk in hunks:
        if (hunk.a, hunk.b) != (start, first):
            inside = int(
                start == hunk.a and 0 < start < len(old)
            )  # an insertion requires the lines around it
            where = bisect_left(
                blocks, hunk.a + inside, key=lambda one: one.a + one.size
            )  # the first block that ends there or later
            block = blocks[where] if where < len(blocks) else None
            if block and block.a <= start - inside:
                at = start - block.a + block.b
                edits.append((at, at + hunk.a - start, new[first : hunk.b]))
            else:
                whole = False
        start, first = hunk.a + hunk.size, hunk.b + hunk.size
    for at, end, lines in reversed(edits):
        present[at:end] = lines
    return "".join(present), whole


def _blocks(old: Sequence[str], new: Sequence[str]) -> list[Match] | None:
    """Return the blocks of lines that two texts have in common, or None if too many lines differ to
    find the blocks.
    """
    least = min(len(old), len(new))
    start = next((count for count in range(least) if old[count] != new[count]), least)
    least -= start
    end = next((count for count in range(least) if old[-1 - count] != new[-1 - count]), least)
    middle, other = old[start : len(old) - end], new[start : len(new) - end]
    same = [
        Match(at, at, 1)
        for at, pair in enumerate(zip(middle, other, strict=False))
        if pair[0] == pair[1]
    ]
    # If only values have changed, compare line by line, unless hardly any lines are equal.
    if len(middle) != len(other) or 2 * len(same) < len(middle) - 1:
        if max(len(middle), len(other)) > MOST_DIFFERENT:
            return None
        same = SequenceMatcher(None, middle, other).get_matching_blocks()
    inner = [Match(one.a + start, one.b + start, one.size) for one in same]
    return _joined([Match(0, 0, start), *inner, Match(len(old) - end, len(new) - end, end)])


def _joined(blocks: Iterable[Match]) -> list[Match]:
    """Return the blocks, with adjacent blocks joined."""
    found: list[Match] = []
    for one in blocks:
        last = found[-1] if found else None
        if last and (last.a + last.size, last.b + last.size) == (one.a, one.b):
            found[-1] = Match(last.a, last.b, last.size + one.size)
        else:
            found.append(one)
    return found

"""Pure code that describes how a change affects state files: their holds and their memory."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping

from task.deciding.decide import NOTHING, is_state_path, own_states
from task.errors import TaskError, Trouble
from task.model import Files, Hold, Memory, Problem, State
from task.text import and_more, shortened

_HINT = "merge the change only if this is intentional"


def state_changes(
    base: Files,
    merged: Files,
    paths: Collection[str],
    app_names: Mapping[str, str],
) -> tuple[Problem, ...]:
    """Return a warning for each change to the state files at `paths` that sets or ends a hold, or
    that admits or blocks versions.

    A state file contains an Application's holds (which block updates) and what is remembered about
    its images. `app_names` maps each state file's path to the Application's name. A state file that
    is unreadable after the change causes an error, because runs could no longer write the
    Application's images.
    """
    problems: list[Problem] = []
    for path in sorted(filter(is_state_path, paths)):
        app = app_names.get(path, "")
        app_in_text = app or posixpath.basename(path).removesuffix(".state")
        try:
            new_states = own_states(merged, path)
        except TaskError as error:
            problems.append(Problem(error.trouble, application=app, place=f"{path}:1"))
            continue
        old_states = _states_or_none(base, path)
        for file in sorted({*old_states, *new_states}):
            old = old_states.get(file, NOTHING)
            new = new_states.get(file, NOTHING)
            sentences = _state_sentences(old, new, app_in_text)
            problems += [_warning(app, sentence, path) for sentence in sentences]
    return tuple(problems)


def _warning(app: str, sentence: str, path: str) -> Problem:
    """Return a warning about a change to a state file.
    `sentence` describes what the change does.
    """
    return Problem(
        Trouble.warning("held", f"the change {sentence}", _HINT),
        application=app,
        place=f"{path}:1",
    )


def _states_or_none(files: Files, path: str) -> Mapping[str, State]:
    """Return the states in a state file, or {} if the file is unreadable."""
    try:
        return own_states(files, path)
    except TaskError:
        return {}


def _state_sentences(old: State, new: State, app: str) -> list[str]:
    """Return sentences about the changes to an Application's state for one write-back file, such as
    "ends the hold …". The sentences omit their subject, "the change".
    """
    sentences = _hold_sentences(old.hold, new.hold, app)
    for key in sorted({*old.images, *new.images}):
        old_memory = old.images.get(key, Memory())
        new_memory = new.images.get(key, Memory())
        image = f"{key} in {app}"
        sentences += _hold_sentences(old_memory.hold, new_memory.hold, image)
        sentences += _memory_sentences(old_memory, new_memory, image)
    return sentences


def _hold_sentences(old: Hold | None, new: Hold | None, what: str) -> list[str]:
    """Return one sentence if the hold on `what` (an Application or image) has changed, or else an
    empty list. A hold blocks updates.
    """
    if old == new:
        return []
    if new is None:
        return [f"ends the hold {_short_reason(old)} on {what}"]
    until = f" until {new.until}" if new.until else ""
    if old is None:
        return [f"holds {what}{until}: {_short_reason(new)}"]
    return [f"changes the hold {_short_reason(old)} on {what}: {_short_reason(new)}{until}"]


def _short_reason(hold: Hold | None) -> str:
    """Return the hold's reason, shortened to a single line."""
    if hold is None:
        return ""
    return shortened(" ".join(hold.reason.split()), 100)


def _memory_sentences(old: Memory, new: Memory, what: str) -> list[str]:
    """Return sentences about the changes to what is remembered about `what`, an image.

    Only changes that admit or block versions of the image are described.
    """
    sentences = (
        _deferred_sentence(old, new, what),
        _rollback_sentence(old, new, what),
        _replaced_sentence(old, new, what),
        _failed_sentence(old, new, what),
        _newest_sentence(old, new, what),
    )
    return [sentence for sentence in sentences if sentence]


def _deferred_sentence(old: Memory, new: Memory, what: str) -> str:
    """Return a sentence if the deferred build, which waits for the end of a hold, has changed."""
    if old.deferred == new.deferred:
        return ""
    if new.deferred:
        return f"defers {new.deferred.version} of {what} because of a hold"
    forgotten = old.deferred.version if old.deferred else ""
    return f"forgets that {forgotten} of {what} is waiting"


def _rollback_sentence(old: Memory, new: Memory, what: str) -> str:
    """Return a sentence if a new rollback has been added to the memory."""
    if new.rollback is None or old.rollback == new.rollback:
        return ""
    return f"rolls {what} back from {new.rollback.was or 'nothing'} to {new.rollback.version}"


def _replaced_sentence(old: Memory, new: Memory, what: str) -> str:
    """Return a sentence if rolled-back versions may be written again."""
    allowed = [version for version in old.replaced if version not in new.replaced]
    return f"allows {and_more(allowed)} of {what} to be written again" if allowed else ""


def _failed_sentence(old: Memory, new: Memory, what: str) -> str:
    """Return a sentence if the list of failed versions has changed."""
    added = [version for version in new.failed if version not in old.failed]
    if added:
        return f"remembers that {and_more(added)} of {what} failed"
    forgotten = [version for version in old.failed if version not in new.failed]
    return f"forgets that {and_more(forgotten)} of {what} failed" if forgotten else ""


def _newest_sentence(old: Memory, new: Memory, what: str) -> str:
    """Return a sentence if the newest written build has changed."""
    if old.written is None or old.written == new.written:
        return ""
    newest = new.written.version if new.written else "nothing"
    return f"remembers {newest} as the newest build of {what} instead of {old.written.version}"

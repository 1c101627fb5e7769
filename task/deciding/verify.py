"""The last checks, for images that are about to be written: their signatures, and the labels for the message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from task.argocd.signed_revisions import accepted
from task.deciding.move import Move
from task.deciding.questions import question_about, registry_error, unchecked
from task.errors import RegistryError, RepositoryError, TaskError
from task.model import Answer, Question, Subscription, Verdict
from task.text import and_more

# Why an image is not signed as required; "" if it is; an error if that could not be checked.
Keys = Callable[[], Sequence[str]]
Signatures = Callable[[Collection[Question]], Mapping[Question, str | TaskError]]


@dataclass(frozen=True)
class LastChecks:
    """What can be asked about an image. What is None is not asked."""

    registry: Callable[[Collection[Question]], Mapping[Question, Answer]]
    signatures: Signatures | None = None
    by_keys: Signatures | None = None  # like `signatures`, with the key that the question names
    labels: bool = False  # whether the commit's message uses the image's labels


def verified(moves: Sequence[Move], last_checks: LastChecks) -> list[Move]:
    """Return the moves. An update is refused without the required signature, and is an error if nobody can check it.

    What waits on a head branch was checked when it was written there.
    """
    found = list(moves)
    if last_checks.signatures is not None:
        found = _signed(_pinned(found, last_checks, _always), last_checks.signatures, _always)
    if any(_by_key(move) for move in found):
        found = _signed(_pinned(found, last_checks, _by_key), last_checks.by_keys or _nobody, _by_key)
    return _labelled(found, last_checks) if last_checks.labels else found


def signed_for_argo(moves: Sequence[Move], wanted: Callable[[Subscription], Sequence[str]], keys: Keys) -> list[Move]:
    """Return the moves. One whose commit Argo CD would not sync, because its project wants a signature, is an error.

    Otherwise, the branch would have a tip that stops every Application of the project. The commit of a pull request is
    not what Argo CD sees.
    """
    found = []
    for move in moves:
        one, sources = move.decision, move.subscription.application.sources
        follows = one.head == one.branch or any(source.revision == one.head for source in sources)
        asked = wanted(move.subscription) if move.changes and follows else ()
        if asked and not accepted(asked, mine := keys()):
            message, hint = only_signed(move.subscription, asked)
            by = f"is signed by {', '.join(mine)}" if mine else "has no OpenPGP signature"
            found.append(move.failed(RepositoryError(f"{message}; this one {by}", hint=hint)))
        else:
            found.append(move)
    return found


def only_signed(sub: Subscription, wanted: Sequence[str]) -> tuple[str, str]:
    """Return the message about a project that wants signatures by these keys, and the hint."""
    project = sub.application.project or "default"
    message = f"in project {project}, Argo CD syncs only commits that are signed by {and_more(wanted)}"
    return message, "give one of these OpenPGP keys as --signing-key, or let a person merge and sign (--pull-request)"


def _about(move: Move) -> Question:
    return question_about(move.subscription, move.decision.candidate)


def _always(_move: Move) -> bool:
    return True


def _by_key(move: Move) -> bool:
    """Tell whether the Application's ImageUpdater requires a signature, which the command line cannot change."""
    return move.subscription.signed_by is not None


def _nobody(questions: Collection[Question]) -> Mapping[Question, TaskError]:
    hint = "read the ImageUpdater from the cluster that has its key: --applications cluster"
    error = RegistryError("imagesVerification wants a signature, which cannot be verified here", hint=hint)
    return dict.fromkeys(questions, error)


def _pinned(moves: Sequence[Move], last_checks: LastChecks, needs: Callable[[Move], bool]) -> list[Move]:
    """Add the digest to images that need a signature. Exactly that digest is checked, and then written."""
    asked = {
        number: replace(_about(move), facts=("digest",))
        for number, move in enumerate(moves)
        if move.updates and not move.kept and not move.decision.candidate.digest and needs(move)
    }
    answers = last_checks.registry(tuple(dict.fromkeys(asked.values()))) if asked else {}
    found = list(moves)
    for number, question in asked.items():
        move, answer = moves[number], answers[question]
        if answer.error:
            found[number] = Move(registry_error(move.decision, answer.error))
        elif not answer.exists or not answer.digest:
            found[number] = move.without_effect(Verdict("refuse", "not-in-registry", "the registry has no such image"))
        else:
            candidate = replace(move.decision.candidate, digest=answer.digest)
            found[number] = replace(move, decision=replace(move.decision, candidate=candidate))
    return found


def _signed(moves: Sequence[Move], signatures: Signatures, needs: Callable[[Move], bool]) -> list[Move]:
    asked = {
        number: replace(_about(move), signed_by=move.subscription.signed_by)
        for number, move in enumerate(moves)
        if move.updates and not move.kept and needs(move)
    }
    answers = signatures(tuple(dict.fromkeys(asked.values()))) if asked else {}
    found = []
    for number, move in enumerate(moves):
        why = answers[asked[number]] if number in asked else ""
        if isinstance(why, TaskError):
            found.append(Move(registry_error(move.decision, why)))
        elif why:
            because = f"{move.decision.candidate.version}: {why}"
            found.append(move.without_effect(Verdict("refuse", "signature", because)))
        else:
            found.append(move)
    return found


def _labelled(moves: Sequence[Move], last_checks: LastChecks) -> list[Move]:
    """Add the labels. They decide nothing, so without an answer they are empty, and a warning says so."""
    asked = {
        number: replace(_about(move), facts=("labels",))
        for number, move in enumerate(moves)
        if move.updates and not move.kept
    }
    answers = last_checks.registry(tuple(dict.fromkeys(asked.values()))) if asked else {}
    found = list(moves)
    for number, question in asked.items():
        if answer := answers.get(question):
            decision = moves[number].decision
            decision = replace(
                decision, unchecked=decision.unchecked or unchecked(answer, ("labels",), decision.subscription)
            )
            found[number] = replace(moves[number], decision=decision, labels=answer.labels)
    return found

"""The final checks of images that are about to be written: the required proofs, and the labels for
the commit message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from task.argocd.owners import accepted
from task.deciding.job import Move, with_reason
from task.deciding.weigh import question_about, registry_error, unchecked
from task.errors import RepositoryError, TargetError, TaskError, Trouble
from task.model import Answer, Decision, Problem, Question, Subscription, Verdict
from task.proof import Proof
from task.repository_config.config import PATH as CONFIG
from task.text import and_more

T = TypeVar("T")
# Looks up an image's proof. Returns a refusal if the proof does not meet the requirements, and an
# error if the proof could not be checked.
Prove = Callable[[Collection[Question]], Mapping[Question, Proof | Verdict | TaskError]]


@dataclass(frozen=True)
class LastChecks:
    """The servers to query about images, and the checks to run."""

    registry: Callable[[Collection[Question]], Mapping[Question, Answer]]
    prove: Prove
    always: bool = False  # whether the command line requires a proof for every image
    labels: bool = False  # whether the commit message uses image labels


def verified(moves: Sequence[Move], last_checks: LastChecks) -> list[Move]:
    """Return the moves after checking proofs and looking up labels.

    A move is a decision and the change to commit for it. An update without the required proof is
    refused. If the proof cannot be checked, the move is an error. A refused move is replaced with
    its alternative (`otherwise`) if it has one that passes these checks.
    """
    checked_moves = _with_proofs(_with_digests(moves, last_checks), last_checks)
    checked_moves = [_with_proof_of_rollback(move, last_checks) for move in checked_moves]
    if last_checks.labels:
        checked_moves = _with_labels(checked_moves, last_checks)

    alternatives: dict[int, Move] = {}  # alternatives to the refused moves, keyed by index
    for index, move in enumerate(moves):
        alternative = move.otherwise
        is_refused = checked_moves[index].decision.verdict == "refuse"
        if alternative and is_refused:
            # The branch to write to was determined for the original move, but not for its
            # alternatives.
            decision = replace(alternative.decision, head=move.decision.head)
            alternatives[index] = replace(alternative, decision=decision)
    if not alternatives:
        return checked_moves

    checked_alternatives = verified(list(alternatives.values()), last_checks)
    for index, alternative in zip(alternatives, checked_alternatives, strict=True):
        if alternative.updates:
            checked_moves[index] = _with_refusal(alternative, checked_moves[index])
    return checked_moves


def _with_refusal(move: Move, refused: Move) -> Move:
    """Return the move with the refusal of another move added to the reason."""
    because = f"{move.decision.because}; refused: {refused.decision.because}"
    return replace(move, decision=with_reason(move.decision, because))


def signed_for_argo(
    moves: Sequence[Move],
    wanted: Callable[[Subscription], Sequence[str]],
    keys: Callable[[], Sequence[str]],
) -> list[Move]:
    """Return the moves after checking them against the signatures that Argo CD requires. If Argo CD
    would not sync a move's commit because of its signature, the move becomes an error.

    Such a commit at the tip of the branch would block every Application in the project. Commits in
    pull requests do not matter, because Argo CD does not see them.

    `wanted` returns the keys that an Application's project requires, and `keys` returns the keys
    that our commit is signed with.
    """
    checked_moves = []
    for move in moves:
        required_keys: Sequence[str] = ()
        if move.changes and _is_seen_by_argo(move.decision):
            required_keys = wanted(move.subscription)
        own_keys = keys() if required_keys else ()
        if not required_keys or accepted(required_keys, own_keys):
            checked_moves.append(move)
            continue

        message, hint = only_signed(move.subscription, required_keys)
        if own_keys:
            signature = f"is signed by {', '.join(own_keys)}"
        else:
            signature = "has no OpenPGP signature"
        error = RepositoryError(f"{message}; this commit {signature}", hint=hint)
        checked_moves.append(move.failed(error))
    return checked_moves


def _is_seen_by_argo(decision: Decision) -> bool:
    """Return whether the commit is on a branch that the Application follows."""
    sources = decision.subscription.application.sources
    followed_revisions = {source.revision for source in sources}
    return decision.head == decision.branch or decision.head in followed_revisions


def hindered(
    moves: Sequence[Move],
    hindrance: Callable[[Subscription], tuple[str, str]],
) -> list[Problem]:
    """Return a warning for each Application that is updated on the base branch, but that Argo CD
    will not deploy at present.

    `hindrance` returns the warning's message and hint, or an empty message if Argo CD will deploy
    the Application.
    """
    warnings: dict[str, Problem] = {}  # keyed by Application
    for move in moves:
        is_on_base = move.decision.head == move.decision.branch
        app = move.subscription.application.key
        if not move.updates or not is_on_base or app in warnings:
            continue
        message, hint = hindrance(move.subscription)
        if message:
            warning = Trouble.warning("rollout", message, hint)
            warnings[app] = Problem(warning, application=app)
    return list(warnings.values())


def only_signed(sub: Subscription, wanted: Sequence[str]) -> tuple[str, str]:
    """Return the message and hint for a project that requires signatures with these keys."""
    project = sub.application.project or "default"
    message = f"in project {project}, Argo CD only syncs commits signed by {and_more(wanted)}"
    hint = (
        "pass one of these OpenPGP keys as --signing-key, or have a person merge and sign"
        " (--pull-request)"
    )
    return message, hint


def _question_of_move(move: Move) -> Question:
    """Return a question about the move's image that does not ask for any facts yet."""
    return question_about(move.subscription, move.decision.candidate)


def _needs_proof(move: Move, last_checks: LastChecks) -> bool:
    """Return whether a move's image must not be written without a proof."""
    if not move.updates or move.kept:
        return False
    sub = move.subscription
    if last_checks.always or sub.signed_by is not None:
        return True
    return bool(sub.demands) and not move.rolled_back


def _with_proof_of_rollback(move: Move, last_checks: LastChecks) -> Move:
    """Return a rollback's move with the proof of its image, or with a warning that explains why
    there is no proof. Return any other move unchanged.

    If a proof demanded by the config is missing, a rollback only gets a warning, because an
    emergency cannot wait for a registry.
    """
    writes_rollback = move.rolled_back and move.updates and not move.kept
    if not writes_rollback or not move.subscription.demands:
        return move
    decision = move.decision
    proof = _proof_of_rollback(move, last_checks)
    if isinstance(proof, Proof):
        return replace(move, decision=replace(decision, proof=proof))
    why = proof.because if isinstance(proof, Verdict) else proof.message
    message = f"not proved, although {CONFIG} requires it: {why}"
    if decision.unchecked:
        message = f"{decision.unchecked.message}; {message}"
    app = decision.subscription.application.key
    hint = f"a rollback is written anyway; check the image before you release {app}"
    doubt = Trouble.warning("registry", message, hint)
    return replace(move, decision=replace(decision, unchecked=doubt))


def _proof_of_rollback(move: Move, last_checks: LastChecks) -> Proof | Verdict | TaskError:
    """Return the proof that the config demands for a rollback's image, or the refusal or error that
    explains why there is none.
    """
    question = replace(_question_of_move(move), facts=("digest",))
    digest = question.image.digest
    if not digest:
        answers = last_checks.registry((question,))
        digest = answers.get(question, Answer()).digest
    if not digest:
        return Verdict("refuse", "", "the registry did not return a digest")
    image = replace(question.image, digest=digest)
    demands = move.subscription.demands
    question_of_proof = replace(question, image=image, facts=(), demands=demands)
    return last_checks.prove((question_of_proof,))[question_of_proof]


def _with_digests(moves: Sequence[Move], last_checks: LastChecks) -> list[Move]:
    """Return the moves, with the registry's digest added to each image that needs a proof but has
    no digest yet.

    This exact digest is checked and then written. If the registry has no digest for the image, the
    move becomes a refusal or an error.
    """

    def question_of(move: Move) -> Question | None:
        """Return the question that asks for a move's digest, or None if the move does not need a
        digest.
        """
        has_digest = move.decision.candidate.digest != ""
        if has_digest or not _needs_proof(move, last_checks):
            return None
        return replace(_question_of_move(move), facts=("digest",))

    def with_digest(move: Move, answer: Answer) -> Move:
        """Return the move with the digest from the registry's response."""
        if answer.error:
            return Move(registry_error(move.decision, answer.error))
        if not answer.exists or not answer.digest:
            return move.without_effect(
                Verdict("refuse", "not-in-registry", "the registry has no such image")
            )
        candidate = replace(move.decision.candidate, digest=answer.digest)
        return replace(move, decision=replace(move.decision, candidate=candidate))

    return _with_answers(moves, question_of, last_checks.registry, with_digest)


def _with_proofs(moves: Sequence[Move], last_checks: LastChecks) -> list[Move]:
    """Return the moves, with a proof added to each move whose image needs one.

    A move without a required proof becomes a refusal, or an error if the proof could not be
    checked.
    """

    def question_of(move: Move) -> Question | None:
        """Return the question that asks for a move's proof, or None if the move does not need a
        proof.
        """
        if not _needs_proof(move, last_checks):
            return None
        # For rollbacks, `_with_proof_of_rollback` checks what the config demands.
        demands = () if move.rolled_back else move.subscription.demands
        return replace(
            _question_of_move(move),
            signed_by=move.subscription.signed_by,
            demands=demands,
        )

    def with_proof(move: Move, answer: Proof | Verdict | TaskError) -> Move:
        """Return the move with its proof, or as the refusal or error that explains the missing
        proof.
        """
        if isinstance(answer, TargetError):  # not a registry error: a file in Git is not a key
            return move.failed(answer)
        if isinstance(answer, TaskError):
            return Move(registry_error(move.decision, answer))
        if isinstance(answer, Verdict):
            because = f"{move.decision.candidate.version}: {answer.because}"
            if move.released:  # the hold remains, so that the release can be retried with a proof
                because = f"not released: {because}; --discard ends the hold without writing it"
            return move.without_effect(replace(answer, because=because))
        return replace(move, decision=replace(move.decision, proof=answer))

    return _with_answers(moves, question_of, last_checks.prove, with_proof)


def _with_labels(moves: Sequence[Move], last_checks: LastChecks) -> list[Move]:
    """Return the moves, with the image labels added to each move that writes an image.

    Labels do not affect decisions. So if the registry does not respond, the labels are empty, and
    the decision receives a warning.
    """

    def question_of(move: Move) -> Question | None:
        """Return the question that asks for a move's labels, or None if the move does not write a
        new image.
        """
        if not move.updates or move.kept:
            return None
        return replace(_question_of_move(move), facts=("labels",))

    def with_labels(move: Move, answer: Answer) -> Move:
        """Return the move with the labels from the registry's response."""
        doubt = move.decision.unchecked or unchecked(answer, ("labels",), move.subscription)
        return replace(
            move,
            decision=replace(move.decision, unchecked=doubt),
            labels=answer.labels,
        )

    return _with_answers(moves, question_of, last_checks.registry, with_labels)


def _with_answers(
    moves: Sequence[Move],
    question_of: Callable[[Move], Question | None],
    query: Callable[[Collection[Question]], Mapping[Question, T]],
    with_answer: Callable[[Move, T], Move],
) -> list[Move]:
    """Return the moves, after asking all of their questions in one query.

    `question_of` returns a move's question, or None if the move needs no answer. `with_answer`
    takes a move and the answer to its question, and returns the move to use instead.
    """
    questions = [question_of(move) for move in moves]
    distinct_questions = tuple(dict.fromkeys(question for question in questions if question))
    answers = query(distinct_questions) if distinct_questions else {}
    moves_with_answers = []
    for move, question in zip(moves, questions, strict=True):
        if question:
            moves_with_answers.append(with_answer(move, answers[question]))
        else:
            moves_with_answers.append(move)
    return moves_with_answers

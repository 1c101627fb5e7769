"""What follows when something has landed: deployments are shown, rollouts are waited for, failed ones are undone."""

from __future__ import annotations

from dataclasses import replace

from task import shutdown
from task.after.deployments import ShownDeployments
from task.after.undo import asks_to_undo, job_to_undo, told_of
from task.deciding.job import Failure, Outcome
from task.landing.ports import World
from task.model import Problem
from task.pipeline.match import Matched
from task.pipeline.run import Delivered, Ended, deliver_all
from task.timestamps import epoch_seconds, of_unix


def follow_up(delivered: Delivered, world: World) -> Ended:
    """Show deployments, refresh Argo CD and wait. Restore what was there before failed rollouts, if the job says so."""
    job, landed = delivered.job, delivered.outcome.landed
    seen, source = delivered.seen, delivered.job.deployed
    shown = ShownDeployments(source, job, world, (*seen.everyone, *seen.outside)) if source else None
    if shown and source and source.waits:
        shown.begin(landed)
    followed = world.follow(landed)
    problems = followed.problems
    if shown:
        problems += shown.end(landed, followed)
    if not (job.undo and followed.failures) or shutdown.code():
        return Ended(problems=problems)
    back, notes = undo(followed.failures, delivered, world)
    return Ended(Outcome(commits=back.commits), problems + notes, back.decisions)


def undo(failures: tuple[Failure, ...], delivered: Delivered, world: World) -> tuple[Outcome, tuple[Problem, ...]]:
    """Restore what was there before these failed rollouts, unless Git has changed since this run wrote it.

    The problems also say whether the Applications are healthy again.
    """
    job = delivered.job
    now = of_unix(int(epoch_seconds(job.terms.now) + world.now() - delivered.began))
    again, problems = asks_to_undo(failures, delivered.matched.asks, now)
    done = Outcome()
    if again:
        done = deliver_all(Matched(tuple(again)), job_to_undo(job, again), world)
    followed = world.follow_back([one for one in done.landed if not one.request])
    commits = tuple(replace(one, rollback=True) for one in done.commits)
    return replace(done, commits=commits), (*problems, *told_of(done, followed.recoveries), *followed.problems)

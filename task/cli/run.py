"""`image-update run`."""

from dataclasses import replace

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.settings import BUILT, SendOptions, Settings


@command(*BUILT, SendOptions)
def run(settings: Settings, call: Call) -> int:
    """Commit a newly built image to Git for every Argo CD Application that tracks it."""
    return update(replace(settings, command="plan") if settings.send.dry_run else settings, call.environ, call.log)

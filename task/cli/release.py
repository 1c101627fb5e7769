"""`image-update release`."""

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.settings import WRITING, HeldOptions, ReleaseOptions, SendOptions, Settings


@command(HeldOptions, ReleaseOptions, *WRITING, SendOptions)
def release(settings: Settings, call: Call) -> int:
    """Lift a hold and write the newest event that it deferred."""
    return update(settings, call.environ, call.log)

"""`image-update release`."""

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.settings import WRITING, AliasOptions, HeldOptions, ReleaseOptions, SendOptions, Settings


@command(HeldOptions, AliasOptions, ReleaseOptions, *WRITING, SendOptions)
def release(settings: Settings, call: Call) -> int:
    """End a hold and write the newest build that waits behind it."""
    return update(settings, call.environ, call.log)

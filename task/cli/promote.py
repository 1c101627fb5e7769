"""`image-update promote`."""

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.settings import (
    UPDATING,
    AgeOptions,
    AliasOptions,
    DeploymentOptions,
    OriginOptions,
    PromoteOptions,
    SendOptions,
    Settings,
)


@command(PromoteOptions, AliasOptions, AgeOptions, OriginOptions, *UPDATING, DeploymentOptions, SendOptions)
def promote(settings: Settings, call: Call) -> int:
    """Bring the versions of some Applications to others, if the rules of the others allow it."""
    return update(settings, call.environ, call.log)

"""The mark of a head branch that is ours: a trailer with the tree of the very commit that has it.

Only a commit that is a whole head gets one. Who amends it, or commits on top of it, makes the branch their own. A
branch that somebody begins at such a commit has another name, and is theirs as well.
"""

from __future__ import annotations

from task.git.names import OURS
from task.templates.trailers import trailer_of

TREE, HEAD = "Image-Update-Tree", "Image-Update-Head"


def marked(message: str, tree: str, head: str) -> str:
    """Return the message of a commit with this tree, with the mark. A name that is not like ours is named in it."""
    lines = f"{TREE}: {tree}\n" + ("" if head.startswith(OURS) else f"{HEAD}: {head}\n")
    text = message.rstrip("\n")
    last = text.rpartition("\n\n")[2]
    trailers = "\n\n" in text and all(": " in line for line in last.split("\n"))
    return f"{text}\n{lines}" if trailers else f"{text}\n\n{lines}"


def is_marked(message: str, tree: str, head: str) -> bool:
    """Tell whether a commit with this message and tree is a whole head of ours, for the branch of this name."""
    own_name = head.startswith(OURS) or trailer_of(message, HEAD) == head
    return own_name and trailer_of(message, TREE) == tree

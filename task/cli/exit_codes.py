"""What each exit code means, as `image-update help exit-codes` and the foot of the help say it.

`errors.exit_of` chooses the code of a run.
"""

from __future__ import annotations

# The words of the table in docs/reference.md, which also says who acts.
MEANINGS = {
    "0": "updated, unchanged, or skipped by the rules",
    "1": "a defect of Image Update, with a traceback on stderr",
    "2": "wrong usage",
    "3": "an annotation, target or source is wrong",
    "4": "no access: credentials, permissions, a host key, a hook, a protected branch",
    "5": "what --require-update, --require-match, status --fail-on or check looks for",
    "6": "with --wait: the rollout failed or took too long",
    "75": "temporary: something was unreachable, or others kept pushing; run it again",
    "130, 143": "interrupted, terminated; no push is half done",
}
WIDTH = max(map(len, MEANINGS))
TABLE = "\n".join(
    (
        "Exit codes:",
        *(f"  {code.ljust(WIDTH)}  {meaning}" for code, meaning in MEANINGS.items()),
        "",
        "If several apply, it is the first of 1, 2, 75, 4, 3, 6, 5.",
    )
)
FOOT = "Exit codes: 0 is success; image-update help exit-codes explains the others"

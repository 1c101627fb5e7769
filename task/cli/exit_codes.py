"""The meanings of the exit codes, for `image-update help exit-codes` and the end of the main help.

`errors.exit_of` determines a run's exit code.
"""

from __future__ import annotations

# The wording matches the table in docs/reference.md, which also states who has to act.
MEANINGS = {
    "0": "updated, unchanged, or skipped by the rules",
    "1": "a defect in Image Update, with a traceback on stderr",
    "2": "usage error",
    "3": "an annotation, target, or source is invalid",
    "4": "no access: credentials, permissions, a host key, a hook, or a protected branch",
    "5": "a condition that --require-update, --require-match, status --fail-on, or check reports",
    "6": "the rollout failed or timed out (wait, and --wait)",
    "75": "temporary failure: something was unreachable, or others kept pushing; run it again",
    "130, 143": "interrupted or terminated; no push is left half done",
}
WIDTH = max(map(len, MEANINGS))
TABLE = "\n".join(
    (
        "Exit codes:",
        *(f"  {code.ljust(WIDTH)}  {meaning}" for code, meaning in MEANINGS.items()),
        "",
        "If several apply, the first of 1, 2, 75, 4, 3, 6, 5 is used.",
    )
)
FOOT = "Exit codes: 0 is success; image-update help exit-codes explains the others"

"""`make bench`: measure all figures, and print them with their limits. Exit with 1 if a
limit is exceeded.
"""

import argparse
import sys

from bench import (
    annotations,
    application_sets,
    burst,
    cluster,
    edits,
    image,
    many_applications,
    network,
    repository_size,
    simultaneous,
    small_run,
)
from bench.figure import Group, NotMeasured, lines

GROUPS: dict[str, Group] = {
    "small-run": small_run.figures,
    "repository-size": repository_size.figures,
    "many-applications": many_applications.figures,
    "burst": burst.figures,
    "simultaneous": simultaneous.figures,
    "network": network.figures,
    "annotations": annotations.figures,
    "application-sets": application_sets.figures,
    "edits": edits.figures,
    "cluster": cluster.figures,
    "image": image.figures,
}


def main() -> int:
    """Measure the requested groups of figures, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument(
        "--only", choices=GROUPS, action="append", help="measure only this group (can be repeated)"
    )
    wanted = parser.parse_args().only or list(GROUPS)
    missed, skipped = [], []
    for name in wanted:
        for figure in GROUPS[name]():
            if isinstance(figure, NotMeasured):
                skipped.append(figure.name)
                print(f"       {figure.name}: not measured, {figure.why}", flush=True)
            else:
                print("\n".join(lines(figure)), flush=True)
                if not figure.held:
                    missed.append(figure.name)
    print(
        f"\n{len(missed)} missed: {', '.join(missed)}"
        if missed
        else "\nAll measured figures are within their limits."
    )
    if skipped:
        print(f"{len(skipped)} not measured: {', '.join(skipped)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the other commands ask for, beside the event of a build."""

"""What the other commands ask for, next to the event of a build."""

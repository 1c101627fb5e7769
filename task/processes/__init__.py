"""The programs that we start: their environment, what they may cost, and a watch that stops them in time."""

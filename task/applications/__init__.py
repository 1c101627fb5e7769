"""The sources of Applications. Each one has a method `all() -> Iterable[Found]`."""

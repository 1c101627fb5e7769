"""All output about a run, for people and for programs: logs, tables, pages, metrics, and events."""

"""Everything that people and programs read about a run: log, tables, pages, metrics and events."""

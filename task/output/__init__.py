"""What people and programs read of a run: log, tables, pages, metrics and events."""

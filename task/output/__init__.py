"""Everything that people and programs read about a run: logs, tables, pages, metrics, and
events.
"""

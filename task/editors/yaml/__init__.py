"""Edits YAML text in place.

`tree` and `path` find positions, `spelling` spells data, and `edit` changes the bytes.

To set one value, a round trip through a YAML library changed six lines (measured with ruamel.yaml).
So a library is used only to find the position of each value. The text is changed at that position,
and `edit` rejects an edit that would change anything else.
"""

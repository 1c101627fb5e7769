"""Edits YAML text in place.

`tree` and `path` find positions, `spelling` spells data, and `edit` changes the bytes.

To set one value, a round trip through a YAML library changed six lines (measured with ruamel.yaml).
So a library is used only to find the positions of values. The text is changed at these positions,
and `edit` rejects any edit that would change something else.
"""

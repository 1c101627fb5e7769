"""Edits YAML text in place.

`tree` and `path` find the position, `spelling` spells data, and `edit` changes the bytes.

A round trip through a YAML library changed six lines to set one value (measured with ruamel.yaml).
So the library is used only to find the position of each value. The text is changed at that
position, and `edit` rejects an edit that would change anything else.
"""

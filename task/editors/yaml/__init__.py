"""Edits YAML text in place.

`tree` and `path` find the place, `spelling` spells data, and `edit` changes the bytes.

A round trip through a YAML library changed six lines to set one value (ruamel.yaml, measured). So
the library is used only to find where each value is. The text is changed there, and `edit` refuses
an edit that would change more.
"""

"""Edits YAML text in place. `tree` and `path` find the place, `splice` and `grow` change the bytes.

A round trip through a YAML library changed six lines to set one value (ruamel.yaml, measured). So the library only
tells where each value stands, the text is spliced there, and `check` refuses an edit that would change more.
"""

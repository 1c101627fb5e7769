"""YAML text → the same text with other values. `tree` and `path` find the place, `splice` and `grow` change the bytes.

A round trip through a YAML library changed six lines to set one value (ruamel.yaml, measured). So the library only
tells where things stand, the text is spliced there, and `check` refuses what would change more than was meant.
"""

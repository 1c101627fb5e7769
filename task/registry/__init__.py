"""Retrieves facts about images from registries, with as few requests to the OCI distribution API as
possible.
"""

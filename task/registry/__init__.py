"""Registries: facts about images by the OCI distribution API, with few requests."""

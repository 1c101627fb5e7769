"""Registries, as the OCI distribution API describes them and as they are: facts about images, with few requests."""

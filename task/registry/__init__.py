"""Gets facts about images from registries, through the OCI distribution API, with few requests."""

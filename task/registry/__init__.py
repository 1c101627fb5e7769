"""Gets facts about images from registries, with few requests to the OCI distribution API."""

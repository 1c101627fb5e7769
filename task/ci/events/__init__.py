"""What registries and pipelines send about pushed images: one file for each form, and one table."""

"""Events about pushed images from registries and pipelines: a module for each form, and one
table.
"""

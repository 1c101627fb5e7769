"""Events about pushed images from registries and pipelines, with a module for each form and a table
of all forms.
"""

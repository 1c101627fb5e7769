"""Events about pushed images, from registries and pipelines. There is a module for each form, and a
table of all forms.
"""

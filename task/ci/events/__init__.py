"""Events about pushed images, from registries and pipelines. Each format has its own module, and
`forms` contains a table of all formats.
"""

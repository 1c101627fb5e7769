"""Go's `text/template`, the language of branch names,
commit messages, and ApplicationSets in Argo CD.

This is the whole language except complex numbers, with Go's built-in functions. AIU does not have
any others, but a `Language` may add more. The data consists of Mappings for structs (an unknown
field is an error), `GoMap`s, `AnyMap`s, lists, strings, numbers, and booleans. Templates come from
annotations, so steps, depth, and length are limited. The rules follow Go's documentation of
`text/template` and `fmt`, and the tables in the tests contain Go's own results.
"""

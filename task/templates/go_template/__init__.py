"""Go's `text/template`, the language of branch names,
commit messages and ApplicationSets in Argo CD.

This is the whole language except complex numbers, with Go's builtin functions. AIU has no others,
but a `Language` may have more. Data are Mappings for structs (an unknown field is an error),
`GoMap`s and `AnyMap`s, lists, strings, numbers and booleans. Templates come from annotations, so
work, depth and length are limited. The rules are those of Go's documentation of `text/template` and
`fmt`, and the tables in the tests have Go's own answers.
"""

"""An implementation of Go's `text/template`, the language of templates for branch names, commit
messages, and Argo CD's ApplicationSets.

This is the whole language except complex numbers, with Go's built-in functions. AIU provides no
other functions, but a `Language` may add some. The data consists of Mappings (for structs, where an
unknown field is an error), `GoMap`s, `AnyMap`s, lists, strings, numbers, and booleans. Templates
come from annotations, so steps, depth, and length are limited. The behavior follows Go's
documentation of `text/template` and `fmt`, and the tables in the tests contain Go's actual results.
"""

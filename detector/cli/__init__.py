"""The commands of `detector`: arguments only, the work is in `detector.api`.

A command is a function that adds its arguments to a parser and returns what to do with the parsed options.
Its docstring is the help. It imports `detector.api` only when it runs: help is quick, and the worker
processes of `detector propose`, which import the command again, load no networks.
"""

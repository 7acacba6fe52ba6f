"""The commands of `detector`: one module each, with its arguments and what it does."""

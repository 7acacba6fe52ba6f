"""The commands of `detector`: arguments only, the work is in `detector.api`.

They import what they need when they run: help is quick, and the worker processes of `detector propose`, which
import the command again, load no networks.
"""

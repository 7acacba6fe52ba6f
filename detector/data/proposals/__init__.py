"""Proposals: found in images or taken from other projects, kept in one file, cleaned for the network."""

from detector.data.proposals.clean import clean_proposals, clean_rows
from detector.data.proposals.file import JoinedProposals, Proposals, load_proposals, save_proposals

__all__ = [
    "JoinedProposals",
    "Proposals",
    "clean_proposals",
    "clean_rows",
    "load_proposals",
    "save_proposals",
]

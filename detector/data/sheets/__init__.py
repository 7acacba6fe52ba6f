"""Spreadsheets of tags: which columns name pictures and labels, and what their cells say."""

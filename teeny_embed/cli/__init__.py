"""The command line, `teeny-embed`: commands only, which print what the package returns."""

from teeny_embed.cli.commands import main

__all__ = ["main"]

from pathlib import Path


def main() -> None:
    from rich.console import Console

    from teeny_embed.cli.demo import run

    run(Console(), Path("build/demo"))

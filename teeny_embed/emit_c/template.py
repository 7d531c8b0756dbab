"""The template environment."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from teeny_embed import resources

if TYPE_CHECKING:
    import jinja2


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Undefined names are errors, blocks leave no blank lines."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.directory("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def fill(path: str, **variables: Any) -> str:
    """The text of a template."""
    return environment().get_template(path).render(**variables)

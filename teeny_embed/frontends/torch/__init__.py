"""PyTorch modules: `export` reads one as plain data, `convert` traces what it computes.

`import torch` in here means PyTorch; this package has the same last name, and is never imported by it alone.
"""

from teeny_embed.frontends.torch.exported import Exported
from teeny_embed.frontends.torch.importing import Result, check_supported, convert
from teeny_embed.frontends.torch.reader import export, stored_tensors

__all__ = ["Exported", "Result", "check_supported", "convert", "export", "stored_tensors"]

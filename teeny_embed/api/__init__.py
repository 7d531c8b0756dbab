"""What a user calls: `Program`, `build`, `verify`, `fit`, `profile`. A module each."""

from teeny_embed.api.building import Build, build
from teeny_embed.api.fitting import Epoch, FitReport, fit
from teeny_embed.api.loading import load
from teeny_embed.api.parameters import load_safetensors, save_safetensors
from teeny_embed.api.profiling import profile
from teeny_embed.api.program import Program
from teeny_embed.api.running import call, open_runner
from teeny_embed.api.torch_module import TorchModule, from_torch, to_state_dict
from teeny_embed.api.verification import Difference, VerificationReport, compare, verify

__all__ = [
    "Build", "Difference", "Epoch", "FitReport", "Program", "TorchModule", "VerificationReport", "build",
    "call", "compare", "fit", "from_torch", "load", "load_safetensors", "open_runner", "profile",
    "save_safetensors", "to_state_dict", "verify",
]  # fmt: skip

"""Schemes of quantisation: what each should come out as, and what it may cost.

Formats are those of compressed-tensors (`quantization_config.format` of `config.json`). Shares of quality that have to
be kept are the usual ones of published evaluations: 98 % at 8 bits, 95 % at 4 bits. Sizes: 8 bits are half of 16 and
4 bits with their scales 0.27, but embeddings and the head stay at 16 bits, which is half of a model of 0.5e9
parameters; so the upper bounds are wide, and a site that knows its model sets `gates`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

SchemeName = Literal["w8a8-gptq", "w8a8-smoothquant-gptq", "fp8-dynamic", "w4a16-gptq", "w4a16-awq", "nvfp4"]
BASE: Final = "base"


@dataclass(frozen=True)
class Scheme:
    """``recovery`` is a share of the base's quality; sizes are shares of the base's weight files.

    ``samples`` and ``max_length`` (tokens) are the calibration that llm-compressor's own examples use; 0 where a scheme
    has none. ``capability`` is the least CUDA compute capability that has kernels for it.
    """

    format: str
    recovery: float
    size_min: float
    size_max: float
    samples: int
    max_length: int
    capability: float


SCHEMES: Final[dict[SchemeName, Scheme]] = {
    "w8a8-gptq": Scheme("int-quantized", 0.98, 0.45, 0.80, 512, 2048, 7.5),
    "w8a8-smoothquant-gptq": Scheme("int-quantized", 0.98, 0.45, 0.80, 512, 2048, 7.5),
    "fp8-dynamic": Scheme("float-quantized", 0.98, 0.45, 0.80, 0, 0, 8.9),
    "w4a16-gptq": Scheme("pack-quantized", 0.95, 0.22, 0.65, 512, 2048, 7.5),
    "w4a16-awq": Scheme("pack-quantized", 0.95, 0.22, 0.65, 256, 512, 7.5),
    "nvfp4": Scheme("nvfp4-pack-quantized", 0.95, 0.25, 0.70, 20, 2048, 10.0),
}


def model_of(unit: str) -> str:
    """Return the model of a form: ``tiny-qwen3`` of ``tiny-qwen3/w8a8-gptq``."""
    return unit.split("/", 1)[0]


def scheme_of(unit: str) -> str:
    """Return the scheme of a form, ``base`` of one that is not quantised."""
    return unit.split("/", 1)[1] if "/" in unit else BASE

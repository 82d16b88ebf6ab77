"""The schemes of quantisation, as data: what llm-compressor is told, and what must come of it.

Recipes follow llm-compressor's own examples (https://github.com/vllm-project/llm-compressor/tree/main/examples):
the output head stays as it is, weights of four bits are in groups of 128. Formats are compressed-tensors' names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HEAD = ("lm_head",)
QUANT_METHOD = "compressed-tensors"
# Where a modifier is imported from.
MODULES: Mapping[str, str] = {
    "AWQModifier": "llmcompressor.modifiers.transform.awq",
    "GPTQModifier": "llmcompressor.modifiers.gptq",
    "QuantizationModifier": "llmcompressor.modifiers.quantization",
    "SmoothQuantModifier": "llmcompressor.modifiers.transform.smoothquant",
}


@dataclass(frozen=True)
class Step:
    """One modifier of a recipe and its arguments."""

    modifier: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """Return the step as plain values."""
        return {"modifier": self.modifier, **self.arguments}


@dataclass(frozen=True)
class Scheme:
    """A recipe; the format its weights are kept in; whether it looks at calibration texts."""

    recipe: tuple[Step, ...]
    format: str
    calibrated: bool = True


def _on_linear(modifier: str, scheme: str) -> Step:
    return Step(modifier, {"targets": "Linear", "scheme": scheme, "ignore": list(HEAD)})


SCHEMES: Mapping[str, Scheme] = {
    "w8a8-gptq": Scheme((_on_linear("GPTQModifier", "W8A8"),), "int-quantized"),
    "w8a8-smoothquant-gptq": Scheme(
        (Step("SmoothQuantModifier", {"smoothing_strength": 0.8}), _on_linear("GPTQModifier", "W8A8")), "int-quantized"
    ),
    "fp8-dynamic": Scheme((_on_linear("QuantizationModifier", "FP8_DYNAMIC"),), "float-quantized", calibrated=False),
    "w4a16-gptq": Scheme((_on_linear("GPTQModifier", "W4A16"),), "pack-quantized"),
    "w4a16-awq": Scheme(
        (Step("AWQModifier", {"duo_scaling": "both"}), _on_linear("QuantizationModifier", "W4A16_ASYM")),
        "pack-quantized",
    ),
    # Can be made anywhere; served by GPUs of compute capability 10.0 (Blackwell).
    "nvfp4": Scheme((_on_linear("QuantizationModifier", "NVFP4"),), "nvfp4-pack-quantized"),
}

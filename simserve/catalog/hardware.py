"""A GPU and the share of its data sheet that a serving engine reaches."""

from pydantic import Field

from simserve.catalog.library import GPU_BY_NAME, NamedGPU
from simserve.catalog.model import Model
from simserve.spec import Fraction, Positive, Spec


class Hardware(Spec):
    """What a model runs on. The defaults are an H100 at the efficiencies of a well-tuned engine."""

    gpu: NamedGPU = GPU_BY_NAME["h100-sxm"]
    compute_efficiency: Fraction = 0.70
    """Share of the peak FLOP/s reached (model FLOP utilisation)."""
    bandwidth_efficiency: Fraction = 0.80
    """Share of the peak memory bandwidth reached."""
    memory_fraction: Fraction = 0.90
    """Share of device memory for weights and KV cache together."""
    kv_bytes: Positive | None = Field(default=None)
    """Bytes for the KV cache; given, it takes the place of what `memory_fraction` leaves beside the weights."""

    @property
    def effective_flop_per_s(self) -> float:
        """Arithmetic rate reached."""
        return self.gpu.flop_per_s * self.compute_efficiency

    @property
    def effective_bytes_per_s(self) -> float:
        """Memory bandwidth reached."""
        return self.gpu.bytes_per_s * self.bandwidth_efficiency

    def usable_kv_bytes(self, model: Model) -> float:
        """Return the bytes left for KV cache beside the weights of `model`; below 0 where the weights do not fit."""
        if self.kv_bytes is not None:
            return self.kv_bytes
        return self.gpu.memory_bytes * self.memory_fraction - model.weight_bytes

    def kv_capacity_tokens(self, model: Model) -> int:
        """Return how many tokens of KV cache fit beside the weights of `model`."""
        return int(self.usable_kv_bytes(model) // model.kv_bytes_per_token)

    def check_fits(self, model: Model) -> None:
        """Raise ValueError where the model's weights leave no room for KV."""
        if (missing := -self.usable_kv_bytes(model)) >= 0:
            raise ValueError(
                f"{model.name} does not fit on {self.gpu.name}: its weights take {model.weight_bytes / 1e9:.2f} GB, "
                f"{missing / 1e9:.2f} GB more than memory_fraction {self.memory_fraction:g} "
                f"of {self.gpu.memory_bytes / 1e9:g} GB"
            )

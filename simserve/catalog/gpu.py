"""A GPU by its data sheet."""

from simserve.spec import Positive, Spec


class GPU(Spec):
    """Peak rates of one accelerator."""

    name: str
    source: str = ""
    flop_per_s: Positive
    """Dense (not sparse) bf16 peak."""
    bytes_per_s: Positive
    """Peak bandwidth of device memory."""
    memory_bytes: Positive
    """Device memory; data sheets mean 10^9 bytes by GB."""

"""Prefill placement: how prompts share iterations with sequences that decode."""

from typing import Annotated, Literal, Protocol

from pydantic import Field

from simserve.plugin import CustomPart, custom
from simserve.spec import BareName, Count, Spec


class PrefillPlacement(Protocol):
    """Says how much of the waiting prompts an iteration computes, and whether decodes take part in it."""

    @property
    def pauses_decodes(self) -> bool:
        """Whether sequences that decode sit out an iteration that computes prompts."""

    def prompt_budget(self, decode_sequences: int) -> int | None:
        """Return how many prompt tokens may join an iteration with so many decodes; None for no limit.

        A prompt that does not fit is computed in pieces. With no decodes the budget must be above 0.
        """


class _Placement(Spec):
    """A placement that ships with simserve; it has no state, so the spec is the part."""

    @property
    def pauses_decodes(self) -> bool:
        """Return False: all go together."""
        return False

    def placement(self) -> PrefillPlacement:
        """Return the placement."""
        return self

    def prompt_budget(self, decode_sequences: int) -> int | None:
        """Return None: no limit."""
        return None


class Mixed(_Placement):
    """Whole prompts join the decodes: Orca (Yu et al., OSDI 2022)."""

    kind: Literal["mixed"] = "mixed"


class First(_Placement):
    """An iteration that admits does only prefill and the decodes wait: early vLLM (Kwon et al., SOSP 2023)."""

    kind: Literal["first"] = "first"

    @property
    def pauses_decodes(self) -> bool:
        """Return True: prompts go alone."""
        return True


class Chunked(_Placement):
    """Decodes first, then pieces of prompts up to a token budget: Sarathi-Serve (Agrawal et al., OSDI 2024).

    A piece reads the KV of the pieces before it again, and is charged for that.
    """

    kind: Literal["chunked"] = "chunked"
    budget_tokens: Count = 512
    """Most tokens of an iteration, prompts and decodes together."""

    def prompt_budget(self, decode_sequences: int) -> int | None:
        """Return what the decodes leave of the budget."""
        return self.budget_tokens - decode_sequences


class CustomPrefill(CustomPart):
    """A class with `prompt_budget(decode_sequences)` and `pauses_decodes`, True or False."""

    required_methods = ("prompt_budget",)

    def make(self) -> PrefillPlacement:
        """Return a new instance of the user's class.

        Raises:
            ValueError: it cannot be made, or would leave an idle GPU idle.
        """
        made: PrefillPlacement = super().make()
        if (budget := made.prompt_budget(0)) is not None and budget <= 0:
            raise ValueError(f"{self.path} leaves an idle GPU idle: prompt_budget(0) is {budget}")
        if not hasattr(made, "pauses_decodes"):
            raise ValueError(f"{self.path} does not fit: it has no attribute pauses_decodes, True or False")
        return made

    def placement(self) -> PrefillPlacement:
        """Return a new instance of the user's class."""
        return self.make()


_Kinds = Annotated[Mixed | First | Chunked | CustomPrefill, Field(discriminator="kind")]
PrefillSpec = Annotated[_Kinds, custom(CustomPrefill), BareName]
"""The prefill placements, told apart by `kind`."""

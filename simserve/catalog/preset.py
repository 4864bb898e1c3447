"""A serving system as some version of some engine is set up by default."""

from collections.abc import Mapping
from typing import Any

from simserve.spec import Spec


class Preset(Spec):
    """Settings of a system, under a name."""

    name: str
    version: str
    """Of what: an engine and its release, or a paper."""
    source: str
    """Where the settings are published, and what of them is not modelled."""
    system: dict[str, Any]
    """As in the `systems` of a scenario."""

    def with_changes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with those given beside in their place.

        A part that is given without its `kind` changes values of the preset's part.
        """
        return _merged(self.system, given)


def _merged(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    changed = dict(settings)
    for key, value in given.items():
        inner = settings.get(key)
        changes_part = isinstance(value, Mapping) and "kind" not in value
        changed[key] = _merged(_part(inner), value) if changes_part and inner is not None else value
    return changed


def _part(settings: Any) -> Mapping[str, Any]:
    """Return the settings of a part, which a bare name may be short for."""
    return settings if isinstance(settings, Mapping) else {"kind": settings}

"""The error of a scenario that cannot be used."""

from collections.abc import Iterable, Sequence

from simserve.spec import nearest


class ScenarioError(Exception):
    """Everything that is wrong with a scenario, a line each.

    `where` is the file, or the name where there is no file; each of `problems` starts with the dotted path it is about.
    """

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        super().__init__(where, problems)  # what pickling keeps: workers hand errors back
        self.where = where
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(f"{self.where}: {problem}" for problem in self.problems)


def among(given: object, known: Iterable[str], label: str = "Accepted") -> str:
    """Return how the message for an unknown name ends: the nearest known one, and all of them."""
    names = list(known)
    hint = nearest(given, names) if isinstance(given, str) else "."
    return f"{hint} {label}: {', '.join(names) or 'none'}"

"""The selection layer: sends each query to one or more models, answers with what has come in, learns from feedback.

Clipper (Crankshaw et al., NSDI 2017, section 5): Exp3 and Exp4; straggler mitigation answers at a deadline with the
votes that are there.
"""

import math
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from simserve.engine.clock import Clock
from simserve.engine.predictive.inbox import MailInbox
from simserve.query_records import Ballots
from simserve.scheduling import Choice, Selection
from simserve.workload import Queries

NO_ANSWER = -1
"""The label of an answer without a vote: the application's default, which is never right."""


class Ensemble:
    """A chair who puts each question to experts, closes the vote in time, and remembers who was right."""

    def __init__(
        self,
        clock: Clock,
        queries: Queries,
        inboxes: Sequence[MailInbox],
        selection: Selection,
        labels: NDArray[np.int64],
        deadline_s: float,
    ) -> None:
        self._clock = clock
        self._arrival_s = [*queries.arrival_s.tolist(), math.inf]
        self._next = 0
        self._inboxes = inboxes
        for inbox in inboxes:
            inbox.receive = self._receive
        self._selection = selection
        self._labels = labels.tolist()
        """[models][queries]: what each model says; 0 is right."""
        self._deadline_s = deadline_s
        size = len(queries)
        self.finish_s = np.full(size, np.nan)
        self._answers = np.full(size, NO_ANSWER)
        self._whole_answers = np.full(size, NO_ANSWER)
        self._asked, self._arrived, self._supporters, self._first = np.zeros((4, size), dtype=np.int64)

    def process(self) -> Generator[simpy.Event, Any, None]:
        """Receive the queries, one by one: the SimPy process of the layer."""
        while (arrival_s := self._arrival_s[self._next]) < math.inf:
            yield self._clock.at(arrival_s)
            self._receive(arrival_s)

    def _receive(self, now_s: float) -> None:
        """Send on what has arrived by now."""
        while self._arrival_s[self._next] <= now_s:
            query = self._next
            self._next += 1
            choice = self._selection.choose()
            votes = [self._inboxes[model].send(query) for model in choice.models]
            self._clock.process(self._serve(query, choice, votes))

    def _serve(self, query: int, choice: Choice, votes: Sequence[simpy.Event]) -> Generator[simpy.Event, Any, None]:
        """See a query to its answer."""
        everyone = votes[0] if len(votes) == 1 else self._clock.all_of(votes)
        timed = self._deadline_s < math.inf
        yield everyone | self._clock.at(self._arrival_s[query] + self._deadline_s) if timed else everyone
        arrived = [model for model, vote in zip(choice.models, votes, strict=True) if vote.triggered]
        self._answer(query, choice, arrived)
        losses = {model: float(self._labels[model][query] != 0) for model in arrived}
        self._selection.learn(choice, losses)

    def _answer(self, query: int, choice: Choice, arrived: Sequence[int]) -> None:
        """Combine the votes that are in, and write down what all of them would have said."""
        answer = self._combined(query, arrived)
        self.finish_s[query] = self._clock.now
        self._answers[query] = answer
        self._whole_answers[query] = self._combined(query, choice.models)
        self._asked[query], self._arrived[query] = len(choice.models), len(arrived)
        self._supporters[query] = sum(self._labels[model][query] == answer for model in arrived)
        self._first[query] = choice.models[0]

    def _combined(self, query: int, models: Iterable[int]) -> int:
        """Return the label with the most weight behind it; of equals that of the model named first."""
        support: defaultdict[int, float] = defaultdict(float)
        weights = self._selection.weights
        for model in models:
            support[self._labels[model][query]] += weights[model]
        return max(support, key=lambda label: support[label], default=NO_ANSWER)

    def ballots(self, best_model: NDArray[np.int64]) -> Ballots:
        """Return what became of the votes; `best_model` is which model is right most often at each query."""
        return Ballots(
            correct=self._answers == 0,
            whole_correct=self._whole_answers == 0,
            agrees=self._answers == self._whole_answers,
            asked=self._asked,
            arrived=self._arrived,
            supporters=self._supporters,
            first_asked=self._first,
            model_correct=np.array(self._labels) == 0,
            best_model=best_model,
        )

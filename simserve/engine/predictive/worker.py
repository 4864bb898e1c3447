"""A worker of a prediction service: takes a batch from its model's inbox, computes it, learns from how long that took.

Clipper (Crankshaw et al., NSDI 2017, section 4.3): adaptive batch size, and delayed batching.
"""

import math
from collections.abc import Generator
from typing import Any

import simpy

from simserve.cost import CALM, ServiceTimes, Situation
from simserve.engine.clock import Clock
from simserve.engine.predictive.inbox import Inbox
from simserve.query_records import QueryLog
from simserve.scheduling import Controller


class Situations(dict[Situation, int]):
    """Numbers the situations of a run in the order in which they come up; 0 is without a disturbance."""

    def __init__(self) -> None:
        super().__init__({CALM: 0})

    def __missing__(self, situation: Situation) -> int:
        number = self[situation] = len(self)
        return number


class Worker:
    """A ferry: it leaves with who waits, up to what it may carry, and may wait a little for more."""

    def __init__(
        self,
        clock: Clock,
        inbox: Inbox,
        controller: Controller,
        service: ServiceTimes,
        log: QueryLog,
        situations: Situations,
        replica: int,
        slo_s: float,
        max_delay_s: float,
    ) -> None:
        self._clock = clock
        self._inbox = inbox
        self._controller = controller
        self._service = service
        self._log = log
        self._situations = situations
        self._situation, self._number = CALM, situations[CALM]
        """That of the last batch, and its number."""
        self._replica = replica
        self._slo_s = slo_s
        """The time there is for a batch where queries have no deadlines."""
        self._max_delay_s = max_delay_s

    def process(self) -> Generator[simpy.Event, Any, None]:
        """Serve batch after batch, as long as any query can come: the SimPy process of the worker."""
        inbox, clock, controller = self._inbox, self._clock, self._controller
        waiting, idle_s = inbox.waiting, clock.now
        while True:
            now_s = clock.now
            inbox.refresh(now_s)
            inbox.bury(now_s)
            if not waiting:
                if (arrival := inbox.next_arrival()) is None:
                    return
                yield arrival
                continue
            slack_s = inbox.slack_s(now_s)
            limit = controller.limit(slack_s if slack_s < math.inf else self._slo_s)
            # Nobody is kept waiting beyond a deadline.
            leave_s = min(max(idle_s, inbox.head_s()) + self._max_delay_s, now_s + slack_s)
            if len(waiting) < limit and now_s < leave_s:
                yield inbox.more(limit, leave_s)
            elif taken := inbox.take(limit, now_s):
                idle_s = self._start(taken, limit, now_s)
                yield clock.at(idle_s)
                inbox.done(taken, idle_s)

    def _start(self, taken: list[int], limit: int, now_s: float) -> float:
        """Run a batch, learn from it, and return when it ends."""
        run_size = self._controller.run_size(len(taken))
        service_s = self._service.draw_s(run_size, now_s)
        self._controller.observe(run_size, service_s)
        if (situation := self._service.situation) is not self._situation:
            self._situation, self._number = situation, self._situations[situation]
        self._log.batch(taken, now_s, service_s, run_size, limit, self._replica, self._number)
        return now_s + service_s

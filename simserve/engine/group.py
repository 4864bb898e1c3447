"""The group of sequences that decode in lock-step: one token each in every iteration that decodes.

So the group is its size, its total context, and a calendar of who leaves at which count of decodes. That count is the
group's own clock, which stands still while the group pauses for prompts. A member is known by the clock at which it
*joined*, its first token just emitted: at clock c it has emitted 1 + c - joined tokens. For one that was preempted and
is back that is a moment before it came, perhaps below 0: when it would have joined, never having been away.
"""

from heapq import heappop, heappush

from simserve.request import Request

Entry = tuple[int, int, Request]
"""When a member leaves, when it joined, and who it is."""


class Group:
    """Who decodes, without a look at each of them in an iteration."""

    def __init__(self) -> None:
        self.size = 0
        self.context_tokens = 0
        """KV tokens of all members."""
        self.decodes_done = 0
        """The group's clock."""
        self._calendar: list[Entry] = []
        """A heap by time of leaving; who was dropped stays in it until then."""
        self._members: dict[int, Entry] = {}

    def join(self, request: Request, emitted: int, tokens_to_run: int) -> None:
        """Let a request in that has emitted so many tokens, and leaves when it has run as many as it is to run."""
        joined = self.decodes_done + 1 - emitted
        entry = (joined + tokens_to_run - 1, joined, request)
        heappush(self._calendar, entry)
        self._members[request.id] = entry
        self.size += 1
        self.context_tokens += request.prompt_tokens + emitted - 1

    def decode(self, steps: int) -> None:
        """Give every member so many more tokens."""
        self.context_tokens += steps * self.size
        self.decodes_done += steps

    @property
    def undisturbed_steps(self) -> int:
        """How many decodes there are until someone leaves; too few where who left first was dropped."""
        return self._calendar[0][0] - self.decodes_done

    def leave(self) -> list[Request]:
        """Let all leave whose time has come, and return them."""
        calendar, done, members = self._calendar, self.decodes_done, self._members
        left: list[Request] = []
        while calendar and calendar[0][0] <= done:
            entry = heappop(calendar)
            leaves, joined, request = entry
            if members.get(request.id) is entry:  # and was not dropped
                del members[request.id]
                self.context_tokens -= request.prompt_tokens + leaves - joined
                left.append(request)
        self.size -= len(left)
        return left

    def latest_id(self) -> int:
        """Return the latest arrival among the members, -1 for none. Looks at each of them."""
        return max(self._members, default=-1)

    def drop(self, request_id: int) -> tuple[Request, int]:
        """Take a member out before its time; return it and how many tokens it has emitted."""
        _, joined, request = self._members.pop(request_id)
        decodes = self.decodes_done - joined
        self.size -= 1
        self.context_tokens -= request.prompt_tokens + decodes
        return request, 1 + decodes

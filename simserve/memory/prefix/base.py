"""The protocol of a prefix cache, and how a memory manager works with one.

**The picture.** A library's reading room. What has been computed stands on the shelves, in *pages*. Who comes in with a
prompt takes down, from the first page on, what is there already (`acquire`) and writes the rest on paper of his own. A
page in somebody's hands is never thrown away. When he has written pages others could use, he hands them to the library
(`insert`) and goes on reading them. When he leaves (`release`), pages nobody else reads go back on the shelves, and
there they are the paper supply as well: when blank paper runs out, the pages that have been unread for longest are
wiped (`evict`).

**Who counts what.** All paper belongs to the manager. Each page is at any time one of

- free: blank, counted by the manager;
- private: held by one request, counted by the manager;
- cached and held: `cached_pages - evictable_pages`, read by one request or more;
- cached and idle: `evictable_pages`, which are as good as free.

Their sum is the size of the memory. The manager calls, for a request whose text is `text = request.text(generated)`
of `n` tokens, with `pages(x)` for x tokens in whole pages, rounded up:

- **Is there room**: `match` tells without changing anything. The request needs `new = pages(n) - hit / page_tokens`
  pages. They are there if `new <= free + evictable_pages - idle_pages`: the idle pages it hits are not to be wiped
  for it.
- **Admission**: `acquire` first, so that its hits are held; then `evict` what blank paper lacks; `new` pages become
  private.
- **Others can read its pages**: `insert(id, text, computed)`; `kept` pages pass from private to cached, `spare` ones
  from private to free. vLLM does this when it schedules a piece of the prompt, so that a request admitted in the same
  iteration hits it; SGLang when a piece has been computed, and at the end.
- **Growth**: a page more is taken from free, after an `evict` where none is.
- **End, and preemption**: `insert` what has been computed, then `release`; private pages become free. After a
  preemption the request hits its own pages when it comes back, if they are still there.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from simserve.content import Content


class Match(NamedTuple):
    """How much of a prompt is cached."""

    tokens: int
    """The longest cached prefix, at most all of the prompt but its last token."""
    idle_pages: int
    """How many of its pages nobody holds: they stop being evictable when it is acquired."""


class Handover(NamedTuple):
    """What became of a request's pages."""

    kept: int
    """Pages that are now the cache's, and held by the request."""
    spare: int
    """Pages the cache had already: the request holds the cache's from now on, and its own are blank."""


@dataclass(slots=True)
class Counters:
    """What a cache has done so far."""

    lookups: int = 0
    """Requests that were acquired for, those that come back after a preemption included."""
    prompt_tokens: int = 0
    """Tokens of their prompts."""
    hit_tokens: int = 0
    """How many of these were cached."""
    inserted_pages: int = 0
    evicted_pages: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that were cached; None before the first lookup."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else None


class PrefixCache(Protocol):
    """Pages of KV, found by the text they belong to. A *holder* is a request, by its id."""

    page_tokens: int
    """Tokens of a page: the unit of sharing and of all counts of pages."""
    found_at_once: bool
    """Whether others find a piece of a prompt from the moment it is scheduled; else once it has been computed."""
    version: int
    """Grows whenever what is cached changes: as long as it stands still, so does every match."""
    counters: Counters

    @property
    def cached_pages(self) -> int:
        """Pages in the cache, held or idle."""

    @property
    def evictable_pages(self) -> int:
        """Pages in the cache that nobody holds."""

    def match(self, content: Content, prompt_tokens: int) -> Match:
        """Return how much of the first `prompt_tokens` tokens of a text is cached; changes nothing.

        At most all but the last token: that has to be computed, for its output is the first new token.
        """

    def acquire(self, holder: int, content: Content, prompt_tokens: int) -> int:
        """Hold what `match` finds, until `release`, and return its tokens.

        Raises:
            AssertionError: the holder holds something already.
        """

    def insert(self, holder: int, content: Content, tokens: int) -> Handover:
        """Take over the whole pages among the first `tokens` tokens that a holder has computed of its text.

        `content` begins with the text the holder acquired and inserted before, and `tokens` are no fewer.
        """

    def held_pages(self, holder: int) -> int:
        """Return how many of a holder's pages are the cache's; the others are private."""

    def release(self, holder: int) -> None:
        """Let go of all that the holder holds."""

    def evict(self, pages: int) -> int:
        """Wipe idle pages, those unused for longest first, and return how many.

        That is fewer than `pages` where there are no more, and may be more where what is cached goes in larger pieces.
        """

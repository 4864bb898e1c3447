"""Prediction serving, before language models: Clipper's adaptive batching and the layers around it."""

from simserve.engine.predictive.ensemble import Ensemble
from simserve.engine.predictive.inbox import ArrivalInbox, CachedInbox, Inbox, MailInbox
from simserve.engine.predictive.worker import Situations, Worker

__all__ = ["ArrivalInbox", "CachedInbox", "Ensemble", "Inbox", "MailInbox", "Situations", "Worker"]

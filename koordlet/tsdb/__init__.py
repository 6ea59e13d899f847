"""The local time-series store; it does not know what the series mean. Floor 2."""

from koordlet.tsdb.aggregates import AggregateResult
from koordlet.tsdb.history import Points
from koordlet.tsdb.store import Store, StoreStatus

__all__ = ["AggregateResult", "Points", "Store", "StoreStatus"]

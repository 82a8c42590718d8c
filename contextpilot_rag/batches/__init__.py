"""Batches that are too large for one planner: split by what they share, planned in parallel, one shard an engine.

`plan_on_ray` does it on a Ray cluster. All but `on_ray.py` and the parts that make Ray's data sets works without Ray.
"""

from __future__ import annotations

from .on_ray import plan_on_ray
from .prompts import planned_prompts
from .sharded import Shard, ShardedPlan

__all__ = ["Shard", "ShardedPlan", "plan_on_ray", "planned_prompts"]

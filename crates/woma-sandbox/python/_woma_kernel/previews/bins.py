"""Bins of histograms, chosen as plotly chooses them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .values import days, items, numbers

BINS_MAX = 5000
_DAY_STEPS = (1 / 1440, 5 / 1440, 15 / 1440, 1 / 24, 3 / 24, 6 / 24, 12 / 24, 1, 2, 7, 14)
_MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200)
_MONTH_DAYS = 30.44


def bins_of(panel: Any, traces: list[dict[str, Any]], lying: bool) -> Any:
    """Edges that the traces share; nothing for categories."""
    key, axis = ("y", panel.y) if lying else ("x", panel.x)
    if axis.scale.kind == "category":
        return None
    every = [axis.scale.places(trace.get(key)) for trace in traces]
    data = np.concatenate(every)
    given = next((trace[f"{key}bins"] for trace in traces if trace.get(f"{key}bins")), None)
    wanted = next((trace[f"nbins{key}"] for trace in traces if trace.get(f"nbins{key}")), None)
    return edges(data[np.isfinite(data)], axis.scale.kind, wanted, given)


def edges(
    data: Any, kind: str, wanted: Any = None, given: Any = None, is_grid: bool = False
) -> Any:
    """Edges of the bins for these numbers, which are days if the kind is `date`."""
    if not len(data):
        return np.array([0.0, 1.0])
    low, high = float(data.min()), float(data.max())
    if given and given.get("size") is not None:
        return _given(given, kind, low, high)
    if wanted:
        rough = (high - low) / max(int(wanted), 1)
    else:
        rough = max(_least(data), 2 * float(data.std()) / len(data) ** (0.25 if is_grid else 0.4))
    if kind == "date":
        return _dates(low, high, rough or 1.0)
    step = round_up(rough) if rough > 0 else 1.0
    step = max(step, (high - low) / BINS_MAX)
    start = math.floor(low / step) * step
    start = _shifted(start, data, step, low, high) if not wanted or np.all(data % 1 == 0) else start
    count = max(1, math.ceil((high - start) / step + 1e-9))
    if start + count * step <= high:
        count += 1
    return start + step * np.arange(count + 1)


def _given(given: dict[str, Any], kind: str, low: float, high: float) -> Any:
    size, start, end = given["size"], given.get("start"), given.get("end")
    if kind == "date":
        if isinstance(size, str) and size.startswith("M"):
            return _months(low, high, int(size[1:]))
        step = float(size) / 86_400_000
        first, last = (days([each])[0] if each is not None else None for each in (start, end))
    else:
        step = float(size)
        first, last = (None if each is None else float(each) for each in (start, end))
    first = math.floor(low / step) * step if first is None else first
    last = high if last is None else max(last, first + step)
    count = min(max(1, math.ceil((last - first) / step - 1e-9)), BINS_MAX)
    if last == high and first + count * step <= high:
        count += 1
    return first + step * np.arange(count + 1)


def _least(data: Any) -> float:
    """The least size of a bin: near the least distance of two values."""
    distinct = np.unique(data)
    if len(distinct) < 2:
        return 1.0
    gaps = np.diff(distinct)
    least = float(gaps[gaps > (distinct[-1] - distinct[0]) * 1e-9].min(initial=np.inf))
    if not math.isfinite(least):
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(least))
    return power * max(step for step in (0.9, 1.9, 4.9, 9.9) if step <= least / power)


def round_up(rough: float) -> float:
    """The next of the steps that ticks have, as plotly finds it: always a larger one."""
    power: float = 10.0 ** math.floor(math.log10(rough))
    return power * next((step for step in (2, 5, 10) if step > rough / power), 10)


def _shifted(start: float, data: Any, step: float, low: float, high: float) -> float:
    """Move the edges away from the values, as those of whole numbers."""
    if np.all(data % 1 == 0):
        if step < 1:
            return low - 0.5 * step
        start -= 0.5
        return start + step if start + step < low else start

    def is_near(value: Any) -> Any:
        return (1 + (value - start) * 100 / step) % 100 < 2

    if np.count_nonzero(is_near(data + step / 2)) < len(data) * 0.1:
        at_edges = np.count_nonzero(is_near(data)) > len(data) * 0.3
        if at_edges or is_near(low) or is_near(high):
            return start + step / 2 if start + step / 2 < low else start - step / 2
    return start


def _dates(low: float, high: float, rough: float) -> Any:
    for step in _DAY_STEPS:
        if step >= rough * (1 - 1e-9):
            start = math.floor(low / step) * step
            count = min(max(1, math.ceil((high - start) / step + 1e-9)), BINS_MAX)
            return start + step * np.arange(count + 1)
    months = next(
        (step for step in _MONTH_STEPS if step * _MONTH_DAYS >= rough * 0.9), _MONTH_STEPS[-1]
    )
    return _months(low, high, months)


def _months(low: float, high: float, step: int) -> Any:
    first = (
        int(np.datetime64(int(low // 1), "D").astype("datetime64[M]").astype(int)) // step * step
    )
    last = int(np.datetime64(int(high // 1), "D").astype("datetime64[M]").astype(int)) + step
    months = np.arange(first, last + step, step)[: BINS_MAX + 1].astype("datetime64[M]")
    found = months.astype("datetime64[D]").astype(float)
    return found[: int(np.searchsorted(found, high, side="right")) + 1]


def counts(panel: Any, trace: dict[str, Any], lying: bool, bins: Any) -> tuple[Any, Any, Any]:
    """Places, heights and widths of the bars of a histogram."""
    key, other, axis = ("y", "x", panel.y) if lying else ("x", "y", panel.x)
    places = axis.scale.places(trace.get(key))
    weights = items(trace.get(other))
    weights = numbers(weights)[: len(places)] if len(weights) else None
    if bins is None:
        bins = np.arange(len(axis.scale.names) + 1) - 0.5
    known = np.isfinite(places)
    if weights is not None:
        known &= np.isfinite(
            np.pad(weights, (0, len(places) - len(weights)), constant_values=np.nan)
        )
        weights = np.pad(weights, (0, len(places) - len(weights)))[known]
    found = gathered(places[known], weights, bins, trace.get("histfunc") or "count")
    widths = np.diff(bins)
    found = _normed(found, widths, trace.get("histnorm") or "")
    cumulative = trace.get("cumulative") or {}
    if cumulative.get("enabled"):
        found = (
            np.cumsum(found)
            if cumulative.get("direction") != "decreasing"
            else np.cumsum(found[::-1])[::-1]
        )
    middles = bins[:-1] + widths / 2
    if axis.scale.kind == "category":
        full = np.isin(np.arange(len(found)), places[known])
        middles, found, widths = middles[full], found[full], widths[full]
    return middles, found, widths


def gathered(places: Any, weights: Any, bins: Any, function: str) -> Any:
    """One number for each bin. Values at an edge belong to the bin above."""
    index = np.searchsorted(bins, places, side="right") - 1
    inside = (index >= 0) & (index < len(bins) - 1)
    index = index[inside]
    count = np.bincount(index, minlength=len(bins) - 1).astype(float)
    if weights is None or function == "count":
        return count
    values = weights[inside]
    if function in ("min", "max"):
        found = np.full(len(bins) - 1, np.inf if function == "min" else -np.inf)
        (np.minimum if function == "min" else np.maximum).at(found, index, values)
        return np.where(np.isfinite(found), found, 0)
    total = np.bincount(index, weights=values, minlength=len(bins) - 1)
    return total / np.maximum(count, 1) if function == "avg" else total


def _normed(found: Any, widths: Any, norm: str) -> Any:
    total = found.sum() or 1.0
    if norm == "percent":
        return found * 100 / total
    if norm == "probability":
        return found / total
    if norm == "density":
        return found / widths
    return found / total / widths if norm == "probability density" else found

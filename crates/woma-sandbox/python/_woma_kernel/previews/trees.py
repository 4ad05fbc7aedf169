"""Trees of plotly as nested areas: treemaps, icicles, sunbursts. And matrices of scatter plots."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import Rectangle, Wedge

from .circular import blank
from .paper import POINT, clean, color
from .points import colors
from .spec import merged
from .values import items, name_of, numbers

NODES_MAX = 1000
DEPTH_MAX = 8
DIMENSIONS_MAX = 8
REST = -1  # number of a node that stands for the rest of another
GAP = 0.06  # between the plots of a matrix, as a share of one


class Node:
    """A label with its sum and the nodes below it."""

    def __init__(self, label: str, number: int) -> None:
        self.label, self.number = label, number
        self.value = 0.0
        self.below: list[Node] = []


def tree(plot: Any, traces: list[dict[str, Any]]) -> None:
    trace = traces[0]
    nodes, roots = _nodes(trace)
    ax = blank(plot, trace)
    tints = _tints(plot, trace, nodes, roots)
    whole = sum(root.value for root in roots) or 1.0
    if len(nodes) > NODES_MAX:
        plot.paper.remarks.append(f"small ones of {len(nodes)} areas are not drawn")
    least = whole / NODES_MAX / 2 if len(nodes) > NODES_MAX else 0.0
    # A single root is the whole, and needs no ring of its own in a sunburst.
    if trace["type"] == "sunburst":
        ax.set_aspect("equal")
        ax.set_xlim(-1.02, 1.02)
        ax.set_ylim(-1.02, 1.02)
        depth = min(max(map(_depth, roots), default=1), DEPTH_MAX)
        has_middle = len(roots) == 1
        ring = 1.0 / (depth + (0 if has_middle else 0.6))
        start = 0.0 if has_middle else 0.6 * ring
        _rings(ax, roots, (0.0, 360.0), (start, ring), (tints, least))
        return
    ax.set_xlim(0, 1)
    ax.set_ylim(1, 0)
    if trace["type"] == "icicle":
        depth = min(max(map(_depth, roots), default=1), DEPTH_MAX)
        _steps(ax, roots, (0.0, 1.0), (0.0, 1.0 / depth), (tints, least))
    else:
        _squares(ax, roots, (0.0, 0.0, 1.0, 1.0), 0, (tints, least))


def _nodes(trace: dict[str, Any]) -> tuple[list[Node], list[Node]]:
    labels = [name_of(label) for label in items(trace.get("labels"))]
    ids = [name_of(each) for each in items(trace.get("ids"))] or labels
    parents = [name_of(each) for each in items(trace.get("parents"))]
    values = np.nan_to_num(numbers(trace.get("values")))
    nodes = [Node(label, number) for number, label in enumerate(labels or ids)]
    known = dict(zip(ids, nodes, strict=False))
    roots = []
    for node, parent in zip(nodes, parents, strict=False):
        above = known.get(parent)
        (roots if above is None or above is node else above.below).append(node)
    is_total = trace.get("branchvalues") == "total" and len(values) > 0
    seen: set[int] = set()

    def add_up(node: Node) -> float:
        if node.number in seen:
            return 0.0
        seen.add(node.number)
        below = sum(map(add_up, node.below))
        own = float(values[node.number]) if node.number < len(values) else 0.0
        if not len(values):
            own = 0.0 if node.below else 1.0
        node.value = max(own, below) if is_total else own + below
        if node.below and node.value - below > 1e-9 * node.value:
            rest = Node("", REST)  # what belongs to the node itself stays empty
            rest.value = node.value - below
            node.below.append(rest)
        return node.value

    for root in roots:
        add_up(root)
    return nodes, roots


def _depth(node: Node, level: int = 1) -> int:
    if level >= DEPTH_MAX:
        return level
    return max((_depth(each, level + 1) for each in node.below), default=level)


def _tints(plot: Any, trace: dict[str, Any], nodes: list[Node], roots: list[Node]) -> list[Any]:
    """A colour for each node: its own, or that of the branch it belongs to."""
    spots = trace.get("marker") or {}
    given = items(spots.get("colors"))
    if len(given) and not isinstance(given[0], str):
        found = colors(plot, {**spots, "color": given}, np.arange(len(nodes)), "#636efa")
        return list(found) if np.ndim(found) > 1 else [found] * len(nodes)
    tints: list[Any] = [color("#dddddd")] * len(nodes)
    # Branches are coloured below a single root.
    branches = roots[0].below if len(roots) == 1 and roots[0].below else roots
    order = sorted(branches, key=lambda node: -node.value)
    for number, branch in enumerate(order):
        _spread(branch, color(plot.colorway[number % len(plot.colorway)]), tints, 0)
    for number, own in enumerate(given[: len(nodes)]):
        if isinstance(own, str) and own:
            tints[number] = color(own)
    return tints


def _spread(node: Node, tint: Any, tints: list[Any], level: int) -> None:
    if node.number == REST:
        return
    tints[node.number] = tint
    if level < DEPTH_MAX:
        for each in node.below:
            _spread(each, tint, tints, level + 1)


def _ordered(nodes: list[Node], least: float) -> list[Node]:
    chosen = (node for node in nodes if node.value > least)
    return sorted(chosen, key=lambda node: (node.number == REST, -node.value))


def _rings(ax: Any, nodes: list[Node], span: Any, rings: Any, look: Any) -> None:
    """Wedges around a middle, which begin on the right and go round against the clock."""
    (start, end), (inner, ring), (tints, least) = span, rings, look
    whole, full = sum(node.value for node in nodes) or 1.0, end - start
    if inner + ring > 1.001:
        return
    for node in _ordered(nodes, least):
        turn = full * node.value / whole
        edges = (start, start + turn)
        if node.number == REST:
            start += turn
            continue
        wedge = Wedge((0, 0), inner + ring, *edges, width=ring, facecolor=tints[node.number])
        wedge.set(edgecolor="white", linewidth=0.7)
        ax.add_patch(wedge)
        middle = np.deg2rad(start + turn / 2)
        place = (inner + ring / 2) * np.array([np.cos(middle), np.sin(middle)])
        if inner == 0 and turn >= 360:
            place = np.zeros(2)
        if turn >= 9:
            _write(ax, place, node, tints, 0.9 if turn > 25 else 0.7)
        _rings(ax, node.below, edges, (inner + ring, ring), look)
        start += turn


def _steps(ax: Any, nodes: list[Node], span: Any, columns: Any, look: Any) -> None:
    """Columns beside each other, from left to right."""
    (start, end), (left, width), (tints, least) = span, columns, look
    if left + width > 1.001:
        return
    whole, full = sum(node.value for node in nodes) or 1.0, end - start
    for node in _ordered(nodes, least):
        size = full * node.value / whole
        _box(ax, (left, start, width, size), node, tints)
        _steps(ax, node.below, (start, start + size), (left + width, width), look)
        start += size


def _squares(ax: Any, nodes: list[Node], box: Any, level: int, look: Any) -> None:
    """Areas that are as square as possible, each with those below it inside."""
    tints, least = look
    chosen = _ordered(nodes, least)
    for node, (x, y, width, height) in zip(chosen, _divided(chosen, box), strict=True):
        _box(ax, (x, y, width, height), node, tints, is_top=bool(node.below))
        head = min(0.05, height * 0.3)
        if node.below and level < DEPTH_MAX and width > 0.02 and height > 0.04:
            edge = min(0.004, width / 10)
            inside = (x + edge, y + head, width - 2 * edge, height - head - edge)
            _squares(ax, node.below, inside, level + 1, look)


def _divided(nodes: list[Node], box: Any) -> list[Any]:
    """Divide a box into one for each node, in rows along its shorter side."""
    x, y, width, height = box
    left = sum(node.value for node in nodes) or 1.0
    found: list[Any] = []
    index = 0
    while index < len(nodes):
        side = min(width, height)
        unit = width * height / max(left, 1e-300)
        count, best = 1, float("inf")
        for size in range(1, len(nodes) - index + 1):
            areas = [node.value * unit for node in nodes[index : index + size]]
            thick = sum(areas) / max(side, 1e-12)
            worst = max(max(thick**2 / area, area / max(thick**2, 1e-300)) for area in areas)
            if worst > best:
                break
            count, best = size, worst
        row = nodes[index : index + count]
        total = sum(node.value for node in row)
        thick = total * unit / max(side, 1e-12)
        along = 0.0
        for node in row:
            size = side * node.value / total
            beside = width >= height
            found.append((x, y + along, thick, size) if beside else (x + along, y, size, thick))
            along += size
        if width >= height:
            x, width = x + thick, width - thick
        else:
            y, height = y + thick, height - thick
        left -= total
        index += count
    return found


def _box(ax: Any, box: Any, node: Node, tints: list[Any], is_top: bool = False) -> None:
    if node.number == REST:
        return
    x, y, width, height = box
    face = tints[node.number]
    ax.add_patch(Rectangle((x, y), width, height, facecolor=face, edgecolor="white", linewidth=0.9))
    if width * 80 > min(len(node.label), 12) and height > 0.03:
        place = (x + 0.006, y + 0.006) if is_top else (x + width / 2, y + height / 2)
        _write(ax, place, node, tints, 0.9, is_top, int(width * 80))


def _write(
    ax: Any,
    place: Any,
    node: Node,
    tints: list[Any],
    scale: float,
    is_top: bool = False,
    room: int = 14,
) -> None:
    red, green, blue = tints[node.number][:3]
    ink = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.6 else "#2a3f5f"
    said = clean(node.label if len(node.label) <= room else node.label[: max(room - 1, 1)] + "…")
    sides = {"ha": "left", "va": "top"} if is_top else {"ha": "center", "va": "center"}
    ax.text(*place, said, fontsize=12 * scale * POINT, color=ink, **sides)


def expanded(trace: dict[str, Any], layout: dict[str, Any]) -> list[dict[str, Any]]:
    """A matrix of scatter plots as plain ones, with axes for each dimension."""
    shown = [each for each in trace.get("dimensions") or [] if each.get("visible", True)]
    count = min(len(shown), DIMENSIONS_MAX)
    upper, lower = trace.get("showupperhalf", True), trace.get("showlowerhalf", True)
    diagonal = (trace.get("diagonal") or {}).get("visible", True)
    found = []
    for row in range(count):
        for column in range(count):
            if (
                (row == column and not diagonal)
                or (column > row and not upper)
                or (column < row and not lower)
            ):
                continue
            names = [
                f"{letter}{number + 1 if number else ''}"
                for letter, number in (("x", column), ("y", row))
            ]
            one = {
                **trace,
                "type": "scatter",
                "mode": "markers",
                "xaxis": names[0],
                "yaxis": names[1],
            }
            one.update(x=shown[column].get("values"), y=shown[row].get("values"))
            if found:
                one["showlegend"] = False
            found.append(one)
    for number in range(count):
        size = 1 / (count + (count - 1) * GAP)
        key = str(number + 1) if number else ""
        start = number * size * (1 + GAP)
        ends = [start, min(start + size, 1.0)]
        title = {"title": {"text": shown[number].get("label") or ""}}
        for letter, domain in (("x", ends), ("y", [1 - ends[1], 1 - ends[0]])):
            other = "y" if letter == "x" else "x"
            last = str(count) if letter == "x" and count > 1 else ""
            default = {**title, "domain": domain, "anchor": other + last}
            name = f"{letter}axis{key}"
            layout[name] = merged(default, layout.get(name) or {})
    return found

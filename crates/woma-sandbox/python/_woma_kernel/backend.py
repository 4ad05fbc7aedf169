"""The matplotlib backend: Agg, which shows figures by sending them. Loaded by matplotlib."""

from __future__ import annotations

from typing import Any

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from . import figures


class FigureManager(FigureManagerBase):
    def show(self) -> None:
        figures.show(self.canvas.figure)

    @classmethod
    def pyplot_show(cls, *, block: Any = None) -> None:
        figures.show_all()

    def destroy(self) -> None:
        figures.closed(self.canvas.figure)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager

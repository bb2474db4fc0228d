"""Shows widgets of a rank as text that follows their state, because no page has a connection to a rank's kernel.

- A widget without a richer form than text is a display whose text changes with the widget, such as a progress bar.
- An output widget has no text. While it captures output, the rank names it as the area of its output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.display_functions import publish_display_data
from IPython.core.getipython import get_ipython
from IPython.lib.pretty import pretty

from farandole.protocol import AREA_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator

VIEW_TYPE = "application/vnd.jupyter.widget-view+json"


def install() -> None:
    """Install this in the process's kernel. It imports ipywidgets only if a cell does. Repeated calls do no harm."""
    shell: Any = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.ipython_display_formatter
        formatter.for_type_by_name("ipywidgets.widgets.widget", "Widget", show)


def show(widget: Any) -> None:
    """Show a widget."""
    from ipywidgets import Output

    if isinstance(widget, Output):
        widget.observe(lambda _: name_area(widget), "msg_id")
        return
    made = widget._repr_mimebundle_()
    data = made[0] if isinstance(made, tuple) else made or {}
    data = {kind: value for kind, value in data.items() if kind != VIEW_TYPE}
    if set(data) == {"text/plain"}:
        _Text(widget).show()
    else:
        publish_display_data(data)


def name_area(output: Any) -> None:
    """Tell the driver whether the next output of this rank belongs to an output widget."""
    area = output.model_id if output.msg_id else ""
    publish_display_data({AREA_TYPE: area}, update=True, transient={"display_id": AREA_TYPE})


class _Text:
    """The text of a widget, which is empty after the widget was closed."""

    def __init__(self, widget: Any) -> None:
        self._widget = widget
        self._display = {"display_id": widget.model_id}
        self._shown = ""

    def show(self) -> None:
        self._shown = pretty(self._widget)
        publish_display_data({"text/plain": self._shown}, transient=self._display)
        for widget in _with_children(self._widget):
            widget.observe(self._update)

    def _update(self, _change: object) -> None:
        text = pretty(self._widget) if self._widget.comm is not None else ""
        if text != self._shown:
            self._shown = text
            publish_display_data({"text/plain": text}, update=True, transient=self._display)


def _with_children(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _with_children(child)

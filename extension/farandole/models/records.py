"""Whether a version of a model can score records of streams, each of which is one row of its inputs."""

from __future__ import annotations

from farandole.exceptions import ModelError
from farandole.models.model import ModelInfo, TensorInfo

SINGLE = ((-1,), (1,), (-1, 1), (1, 1))
"""The shapes of an output with one value for each row."""


def check_records(info: ModelInfo, *, labelled: bool) -> None:
    """Raise ModelError if a version cannot score records, or gives them no label although ``labelled`` needs one."""
    if others := [one for one in info.inputs if one.shape[:1] not in {(-1,), (1,)}]:
        raise ModelError(
            f"{info} cannot score records, which are single rows: its input is {others[0]}; save it with an example "
            "whose first dimension is the batch"
        )
    if labelled and not has_classes(info):
        raise ModelError(
            f"{info} gives no label, which `--to` needs for {{label}}: its output is {info.outputs[0]}, and must be "
            "one integer, or a number for each class"
        )


def has_classes(info: ModelInfo) -> bool:
    """Return whether the first output is the number of a class, or has a number for each class."""
    first = info.outputs[0]
    return first.shape in SINGLE if is_whole(first) else len(first.shape) == 2 and first.shape[1] > 1


def is_whole(tensor: TensorInfo) -> bool:
    """Return whether the values of a tensor are integers or booleans."""
    return tensor.datatype.startswith(("INT", "UINT", "BOOL"))

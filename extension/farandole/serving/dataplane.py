"""Decodes requests with KServe, and refuses those that KServe cannot decode."""

from __future__ import annotations

import re
import struct
from typing import Any

from fastapi.exceptions import RequestValidationError
from kserve import InferRequest
from kserve.errors import InferenceError, InvalidInput
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.rest.v2_datamodels import InferenceRequest, RequestInput
from pydantic import ValidationError

from farandole.serving.bodies import BINARY_PART
from farandole.serving.requests import InvalidInputError

LENGTH = re.compile(r"[0-9]{1,15}")


class _BinaryInput(RequestInput):  # type: ignore[misc]
    """An input whose data may be in the binary part."""

    data: list[Any] | None = None


class _JsonPart(InferenceRequest):  # type: ignore[misc]
    """The JSON part of a request with a binary part."""

    inputs: list[_BinaryInput]


class CheckedDataPlane(DataPlane):  # type: ignore[misc]
    """KServe's data plane, with 400 instead of 500 as the answer to malformed requests with a binary part.

    KServe reads their JSON without checking it, so each mistake in it would be an error of the server.
    """

    def decode_inference_request(
        self, body: bytes | InferenceRequest, headers: dict[str, str], model_name: str
    ) -> InferRequest:
        """Return a request. KServe calls this.

        Raises:
            RequestValidationError: the JSON part is not that of a request.
            InvalidInputError: the binary part does not fit it.
        """
        if isinstance(body, bytes):
            _check_json(body, headers.get(BINARY_PART, ""))
        try:
            return super().decode_inference_request(body, headers, model_name)
        except InvalidInput:
            raise
        except (InferenceError, OverflowError, struct.error, TypeError, ValueError) as exc:
            raise InvalidInputError(
                f"the binary part does not fit the inputs: {exc}; 'binary_data_size' of each input must be its number "
                "of bytes, which its shape and datatype determine"
            ) from exc


def _check_json(body: bytes, length: str) -> None:
    if LENGTH.fullmatch(length) is None:
        raise InvalidInputError(
            f"the header Inference-Header-Content-Length is {length!r}; it must be the number of bytes of the JSON, "
            "which the binary part follows"
        )
    try:
        _JsonPart.model_validate_json(body[: int(length)], strict=True)
    except ValidationError as exc:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in exc.errors()]) from exc

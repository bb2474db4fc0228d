"""The model of an endpoint, in KServe's terms: it answers requests, and its version can be switched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model
from kserve.errors import InferenceError
from kserve.utils.utils import generate_uuid

from farandole.exceptions import ModelError
from farandole.models.model import NUMPY_TYPES, ModelInfo, TensorInfo
from farandole.models.store import ModelStore
from farandole.serving.batching import Batcher
from farandole.serving.requests import InvalidInputError, arrays_of
from farandole.serving.runtimes import Runtime, load

DATATYPES = {np.dtype(dtype): name for name, dtype in NUMPY_TYPES.items()}


class EndpointModel(Model):  # type: ignore[misc]
    """Serves one version of a model at a time, under the model's name without its group."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.info.name.model)
        self.batcher = Batcher(runtime)
        self.check: Callable[[ModelInfo], None] = lambda _info: None
        """Raises ModelError if this endpoint cannot use a version."""
        self._switching = asyncio.Lock()
        self.ready = True

    @property
    def info(self) -> ModelInfo:
        """The version that answers new requests."""
        return self.batcher.runtime.info

    async def switch(self, key: str, store: ModelStore) -> ModelInfo:
        """Load another version beside the present one, then let it answer all further requests.

        Raises:
            ModelError: the version does not exist, cannot be loaded, or belongs to another model. The present version
                stays.
        """
        async with self._switching:
            info = store.find(key)
            if info.name != self.info.name:
                raise ModelError(f"this endpoint serves {self.info.name}; start another one for {info.name}")
            self.check(info)
            if info.version != self.info.version:
                await self.batcher.replace(await asyncio.to_thread(load, info))
            return self.info

    async def predict(
        self,
        payload: InferRequest,
        _headers: dict[str, str] | None = None,
        _response_headers: Any = None,
    ) -> InferResponse:
        """Answer a request. KServe calls this.

        Raises:
            InvalidInputError: the inputs are not what the version expects, or the request is one of KServe's V1
                protocol.
            InferenceError: the model failed, or returned values that are not finite.
        """
        if not isinstance(payload, InferRequest):
            raise InvalidInputError(
                f"this endpoint answers requests of the Open Inference Protocol (V2), at v2/models/{self.name}/infer"
            )
        # No other code runs between the check of the inputs and `compute`, so both use the same version.
        answer = await self.batcher.compute(arrays_of(payload.inputs, self.info))
        return InferResponse(
            response_id=payload.id or generate_uuid(),
            model_name=self.name,
            model_version=str(answer.version),
            infer_outputs=[_output(name, array) for name, array in answer.outputs.items()],
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )

    def get_input_types(self) -> list[dict[str, Any]]:
        """Return the inputs, for the metadata of the model."""
        return [_metadata(one) for one in self.info.inputs]

    def get_output_types(self) -> list[dict[str, Any]]:
        """Return the outputs, for the metadata of the model."""
        return [_metadata(one) for one in self.info.outputs]


def _metadata(tensor: TensorInfo) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def _output(name: str, array: np.ndarray[Any, Any]) -> InferOutput:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InferenceError(f"the model returned values of {name!r} that are not finite, such as NaN")
    return InferOutput(name=name, shape=list(array.shape), datatype=DATATYPES[array.dtype], data=array)

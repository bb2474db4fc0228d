"""KServe's own server with the same model, for a comparison: ``python bench/serving/bare.py FOLDER PORT``."""

import sys
from pathlib import Path

import onnxruntime
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.utils.utils import generate_uuid


class Bare(Model):
    """Computes each request by itself, on the event loop, as KServe's examples do."""

    def __init__(self, folder: Path) -> None:
        super().__init__("bench")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", options)
        self.ready = True

    def predict(
        self, payload: InferRequest, _headers: object = None, _response_headers: object = None
    ) -> InferResponse:
        inputs = {one.name: one.as_numpy() for one in payload.inputs}
        [found] = self.session.run(None, inputs)
        output = InferOutput(name="output", shape=list(found.shape), datatype="FP32", data=found)
        return InferResponse(
            response_id=generate_uuid(), model_name=self.name, model_version="1", infer_outputs=[output]
        )


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    ModelServer(http_port=int(port), enable_grpc=False).start([Bare(Path(folder))])

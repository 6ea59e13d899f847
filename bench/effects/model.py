"""Makes the model that ``model_server`` serves: a small decoder-only transformer for onnxruntime.

``python -m bench.effects.model DIR`` writes ``DIR/model.onnx`` and its weights beside it, which are
random and the same each time: what it says means nothing, and takes as long as if it did. It needs
onnx and numpy; ``tools/fetch-model`` has both for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, checker, helper, numpy_helper, save_model

from bench.effects.model_shape import HEADS, LAYERS, PROMPT_TOKENS, VOCABULARY, WIDTH

_OPSET = 23
_IR = 11
_SPREAD = 0.02


class _Graph:
    """Nodes and weights, in order."""

    def __init__(self) -> None:
        self.nodes: list[object] = []
        self.weights: list[object] = []
        self._draw = np.random.default_rng(1)

    def weight(self, *shape: int) -> str:
        values = self._draw.standard_normal(shape, dtype=np.float32) * np.float32(_SPREAD)
        return self.constant(values)

    def constant(self, values: NDArray[Any]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: object) -> str:
        """Name of what it puts out."""
        name = output or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def normal(self, of: str) -> str:
        ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return self.node("LayerNormalization", [of, self.constant(ones), self.constant(zeros)])

    def layer(self, stream: str) -> str:
        normal = self.normal(stream)
        query_key_value = [
            self.node("MatMul", [normal, self.weight(WIDTH, WIDTH)]) for _ in range(3)
        ]
        heads = self.node(
            "Attention", query_key_value, is_causal=1, q_num_heads=HEADS, kv_num_heads=HEADS
        )
        stream = self.node("Add", [stream, self.node("MatMul", [heads, self.weight(WIDTH, WIDTH)])])
        wide = self.node("MatMul", [self.normal(stream), self.weight(WIDTH, 4 * WIDTH)])
        narrow = self.node("MatMul", [self.node("Gelu", [wide]), self.weight(4 * WIDTH, WIDTH)])
        return self.node("Add", [stream, narrow])


def make(directory: str) -> None:
    """``prompt``: int64[1, PROMPT_TOKENS] to ``token``: int64[1], the most likely next one."""
    graph = _Graph()
    embedding = graph.weight(VOCABULARY, WIDTH)
    places = graph.weight(1, PROMPT_TOKENS, WIDTH)
    stream = graph.node("Add", [graph.node("Gather", [embedding, "prompt"]), places])
    for _ in range(LAYERS):
        stream = graph.layer(stream)
    last = graph.constant(np.array(PROMPT_TOKENS - 1))
    final = graph.normal(graph.node("Gather", [stream, last], axis=1))
    logits = graph.node("Gemm", [final, embedding], transB=1)
    graph.node("ArgMax", [logits], "token", axis=1, keepdims=0)
    made = helper.make_graph(
        graph.nodes,
        "decoder",
        [helper.make_tensor_value_info("prompt", TensorProto.INT64, [1, PROMPT_TOKENS])],
        [helper.make_tensor_value_info("token", TensorProto.INT64, [1])],
        graph.weights,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    file = f"{directory}/model.onnx"
    save_model(model, file, save_as_external_data=True, location="weights.bin")
    checker.check_model(file)


if __name__ == "__main__":
    make(sys.argv[1])

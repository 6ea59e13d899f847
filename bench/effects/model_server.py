"""A model server on CPUs: the first token after a prompt, from onnxruntime, over plain HTTP.

``python -m bench.effects.model_server MODEL HOST PORT THREADS``; MODEL and onnxruntime are made and
fetched by ``tools/fetch-model``. ``GET /?prompt=ID,ID,...`` with ``PROMPT_TOKENS`` numbers below
``VOCABULARY`` is answered with the most likely next one. One prompt is worked at a time, by so many
threads, and the others wait in the order in which they came.
"""

from __future__ import annotations

import re
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from bench.effects.model_shape import PROMPT_TOKENS, VOCABULARY

_BACKLOG = 4096
_PATIENCE_S = 1.0
_MOST_BYTES = 1 << 16
_END = b"\r\n\r\n"
_REQUEST = re.compile(rb"GET /\?prompt=(\d+(?:,\d+)*) HTTP/1\.[01]\r\n")
Model = Callable[[list[int]], int]


def main(path: str, host: str, port: str, threads: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    model = _model(path, int(threads))
    with socket.create_server((host, int(port)), backlog=_BACKLOG) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_PATIENCE_S)
                try:
                    connection.sendall(_reply(model, _head(connection)))
                except OSError:  # the client is gone, or slow
                    continue


def _model(path: str, threads: int) -> Model:
    import numpy as np
    import onnxruntime  # beside the environment: see tools/fetch-model

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # A thread that waits for work must not look like one that works.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def first_token(prompt: list[int]) -> int:
        [token] = session.run(None, {"prompt": np.array([prompt], np.int64)})
        return int(token[0])

    first_token([0] * PROMPT_TOKENS)  # the first one takes longer
    return first_token


def _head(connection: socket.socket) -> bytes:
    head = b""
    while _END not in head and len(head) < _MOST_BYTES:
        data = connection.recv(_MOST_BYTES)
        if not data:
            break
        head += data
    return head


def _reply(model: Model, head: bytes) -> bytes:
    found = _REQUEST.match(head)
    prompt = [int(each) for each in found[1].split(b",")] if found else []
    if len(prompt) != PROMPT_TOKENS or max(prompt) >= VOCABULARY:
        return b"HTTP/1.0 400 Bad Request" + _END
    body = b"%d\n" % model(prompt)
    return b"HTTP/1.0 200 OK\r\nContent-Length: %d%s%s" % (len(body), _END, body)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The shape of the model that ``model`` makes and ``model_server`` serves: 110 million weights, in
layers like those of the smallest GPT-2."""

from __future__ import annotations

PROMPT_TOKENS = 64
VOCABULARY = 32_000
WIDTH = 768
LAYERS = 12
HEADS = 12

"""Takes README.md apart into its commands and its code, and makes programs of the code."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "README.md").read_text()
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
# Indented blocks: lines of four blanks or more, outside of the fenced ones.
INDENTED = re.findall(
    r"(?:^ {4}.*\n)+", re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
)
BLOCKS = [textwrap.dedent(block) for block in INDENTED]
INLINE = list(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.M | re.S)))
SNIPPETS = [body for language, body in FENCED if language == "python"] + [b for b in BLOCKS if b.startswith("model.")]
COMMANDS = [line for line in [*"".join(BLOCKS).splitlines(), *INLINE] if line and not line.startswith("model.")]


def starting(*words: str) -> list[list[str]]:
    found = [shlex.split(command) for command in COMMANDS if command.split()[: len(words)] == list(words)]
    assert found, f"README has no {' '.join(words)}"
    return found


# The code

NT3 = """
import KERAS
import numpy as np
import deepfreeze

def nt3(names=("conv1d", "conv1d_1", "dense", "dense_1", "dense_2"), classes=2):
    layers = KERAS.layers
    convolutions = [layers.Conv1D(4, 3, name=name) for name in names[:2]]
    denses = [layers.Dense(6, name=name) for name in names[2:4]]
    model = KERAS.Sequential(
        [KERAS.Input((20, 1)), *convolutions, layers.Flatten(), *denses, layers.Dense(classes, name=names[4])]
    )
    model.compile("adam", "mse", jit_compile=False)
    return model

model = nt3()
x, y = np.random.default_rng(0).random((40 * 32, 20, 1), np.float32), np.zeros((40 * 32, 2), np.float32)
"""
REST = """
total = 60

def batches_from(start):
    for step in range(start, total):
        yield x[:32], y[:32]

import tensorflow as tf
optimizer = model.optimizer

def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
"""
FIRST, *OTHERS = [*SNIPPETS[-1:], *SNIPPETS[:-1]]
LAUNCHED = [snippet for snippet in OTHERS if "horovod" in snippet]
ALONE = [snippet for snippet in OTHERS if snippet not in LAUNCHED]


def programs() -> list[str]:
    """The first snippet as a program; then, for each other snippet that needs one process, a program that goes on from the first one's
    run."""
    made = []
    for snippet in [FIRST, *ALONE]:
        other = 'model = nt3(("features", "conv1d_1", "dense", "dense_1", "dense_2"), classes=5)\n'
        made.append(NT3.replace("KERAS", "keras") + REST + (other if "transfer(" in snippet else "") + snippet)
    return made

"""A transformer that classifies texts, in the shape of Keras's "Text classification with Transformer": layers of its own, two epochs.
``--horovod``: with the lines that Horovod asks for."""

import sys

import keras
import numpy as np
from keras import layers, ops

import deepfreeze

HOROVOD = "--horovod" in sys.argv


class TransformerBlock(layers.Layer):
    """Attention and two dense layers, each with a shortcut, dropout and normalisation."""

    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential([layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)])
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs):
        out = self.layernorm1(inputs + self.dropout1(self.att(inputs, inputs)))
        return self.layernorm2(out + self.dropout2(self.ffn(out)))


class TokenAndPositionEmbedding(layers.Layer):
    """The sum of a vector for each token and a vector for its place."""

    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(input_dim=vocab_size, output_dim=embed_dim)
        self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

    def call(self, x):
        positions = ops.arange(start=0, stop=ops.shape(x)[-1], step=1)
        return self.token_emb(x) + self.pos_emb(positions)


vocab_size = 500
maxlen = 24

random = np.random.default_rng(0)


def load_data(rows):
    labels = random.integers(0, 2, rows)
    lengths = random.integers(5, maxlen, rows)
    texts = [random.integers(1 + 100 * label, vocab_size, length) for label, length in zip(labels, lengths)]
    return keras.utils.pad_sequences(texts, maxlen=maxlen), labels


(x_train, y_train), (x_val, y_val) = load_data(9600), load_data(640)
print(len(x_train), "Training sequences")
print(len(x_val), "Validation sequences")

embed_dim = 16
num_heads = 2
ff_dim = 16

inputs = layers.Input(shape=(maxlen,))
x = TokenAndPositionEmbedding(maxlen, vocab_size, embed_dim)(inputs)
x = TransformerBlock(embed_dim, num_heads, ff_dim)(x)
x = layers.GlobalAveragePooling1D()(x)
x = layers.Dropout(0.1)(x)
x = layers.Dense(20, activation="relu")(x)
x = layers.Dropout(0.1)(x)
outputs = layers.Dense(2, activation="softmax")(x)
model = keras.Model(inputs=inputs, outputs=outputs)

callbacks = [deepfreeze.Checkpoint("runs/transformer", every=30)]

if not HOROVOD:
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
else:
    import horovod.tensorflow as hvd

    hvd.init()
    optimizer = deepfreeze.DistributedOptimizer(keras.optimizers.Adam())
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    callbacks.insert(0, deepfreeze.BroadcastState())
    x_train, y_train = x_train[hvd.rank() :: hvd.size()], y_train[hvd.rank() :: hvd.size()]

history = model.fit(x_train, y_train, batch_size=32, epochs=2, validation_data=(x_val, y_val), callbacks=callbacks)

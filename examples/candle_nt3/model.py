"""CANDLE's NT3 network: tumour or tissue type from gene expression."""

import keras


def nt3(genes, classes, width=20, dropout=0.1):
    """NT3 as published, except for the width of the last hidden layer and the rate of both dropouts, which can be chosen."""
    return keras.Sequential(
        [
            keras.Input((genes, 1)),
            keras.layers.Conv1D(128, 20, activation="relu"),
            keras.layers.MaxPooling1D(1),
            keras.layers.Conv1D(128, 10, activation="relu"),
            keras.layers.MaxPooling1D(10),
            keras.layers.Flatten(),
            keras.layers.Dense(200, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(classes, activation="softmax"),
        ],
        name="nt3",
    )

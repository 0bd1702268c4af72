"""Where checkpoints are, and who may change them. The retention rules are public names of this room."""

from deepfreeze.store.rules import Best, Epochs, Latest, Spaced, Tagged

__all__ = ["Best", "Epochs", "Latest", "Spaced", "Tagged"]

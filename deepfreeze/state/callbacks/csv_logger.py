"""``CSVLogger`` of Keras, in ``extra=``."""

from __future__ import annotations

from typing import Any

from deepfreeze.errors import OptionError
from deepfreeze.state import csv_rows
from deepfreeze.state.callbacks.callback_state import CallbackState


class CSVLogger(CallbackState):
    """The file is cut back to the epochs that are finished. Keras empties it in ``on_train_begin``, before it is known where training goes
    on, unless it is told ``append=True``; so it is told that, and a file that is to be empty is emptied later."""

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        if "://" in callback.filename:
            raise OptionError(
                where="extra=",
                expected="a CSVLogger whose file can be cut back",
                found=callback.filename,
                todo="give it a file in a mounted file system, or leave it out of extra=",
            )
        self._append = callback.append  # as the user has said
        self._begin = 0  # the offset of this fit's first row
        # The bytes of the file when the ``fit`` was prepared, None when its first epoch has begun.
        self._before: int | None = None

    def state_at(self, step: int) -> dict[str, Any]:
        """Where this fit's rows begin and end, and the names of its columns."""
        keys = getattr(self.callback, "keys", None)
        end = csv_rows.size(self.callback.filename)
        return {"begin": self._begin, "end": end, "keys": None if keys is None else list(keys)}

    def fit_is_prepared(self) -> None:
        """Keeps the file as it is."""
        self.closed()
        self._append = self.callback.append
        self._before, self.callback.append = csv_rows.size(self.callback.filename), True

    def epochs_begin(self, epoch: int | None) -> None:
        """Cuts the file back, if this rank's ``fit`` has the callback."""
        self.closed()
        file, path = getattr(self.callback, "csv_file", None), self.callback.filename
        if file is None or getattr(file, "closed", False):
            return
        if self.loaded:
            self._begin, self.callback.keys = self.loaded["begin"], self.loaded["keys"]
            end = self.loaded["end"] if epoch is None else None
            csv_rows.cut(path, csv_rows.end_of_rows(path, self.callback.sep, self._begin, epoch, end))
        else:
            self._begin = csv_rows.size(path) if self._append or epoch is None else 0
            csv_rows.cut(path, self._begin)
        self.callback.append_header = csv_rows.size(path) == 0

    def fit_ended(self) -> None:
        """A ``fit`` with nothing to train leaves the file as it was. Callbacks see an epoch of it if the model was not built."""
        if self._before is not None:
            csv_rows.cut(self.callback.filename, self._before)
        self.closed()

    def closed(self) -> None:
        """The next ``fit`` without ``Checkpoint`` has the file that the user has asked for."""
        if self._before is not None:
            self._before, self.callback.append = None, self._append

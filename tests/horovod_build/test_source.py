"""The corrections of Horovod's sources, and those of the files of an installed Horovod."""

import io
import tarfile

from deepfreeze.errors import InstallError
from deepfreeze.horovod_build import source
from tests.support.refusals import refused

LAUNCHER = "impi_flags = ''\nflags = ['-bind-to none', '-map-by slot']\n"
MOVED = "tensorflow/compiler/xla/client/xla_builder.h"
KERAS = {
    "tensorflow/keras/__init__.py": "import tensorflow as tf\nfrom tensorflow import keras\n",
    "tensorflow/keras/callbacks.py": "from tensorflow import keras\n\nif keras:\n    from keras import backend as K\n",
    "keras/__init__.py": "import keras\nimport keras.backend as K\n",
    "keras/callbacks.py": "import keras\nimport keras.backend as K\n",
    "keras/elastic.py": "import keras\n",
}


def archive(folder, launcher=LAUNCHER, version=source.VERSION):
    """A source distribution with nothing in it but the file that is corrected."""
    path = folder / f"horovod-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo(f"horovod-{version}/horovod/runner/mpi_run.py")
        entry.size = len(launcher)
        tar.addfile(entry, io.BytesIO(launcher.encode()))
    return path


def installed(folder, **changed):
    for name, text in {**KERAS, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_mpiruns_options_get_the_dashes_that_every_open_mpi_takes(tmp_path):
    tree = source.unpack(archive(tmp_path), tmp_path / "out")
    assert (tree / "horovod/runner/mpi_run.py").read_text() == LAUNCHER.replace("'-", "'--")


def test_an_archive_that_is_not_this_horovods_is_refused(tmp_path):
    (tmp_path / "no.tar.gz").write_bytes(b"no archive")
    for path, found in (
        (tmp_path / "none.tar.gz", "No such file"),
        (tmp_path / "no.tar.gz", "can't be unpacked"),
        (archive(tmp_path, version="0.27.0"), "No such file"),
        (archive(tmp_path, launcher="other = 1\n"), "without ['-bind-to none'"),
    ):
        refused(lambda path=path: source.unpack(path, tmp_path / "out"), InstallError, where=path, found=found)


def test_headers_that_tensorflow_has_moved_are_found(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    (old / MOVED).parent.mkdir(parents=True)
    (old / MOVED).touch()
    assert source.include_folders(old, tmp_path / "more") == []
    (new / "external" / "highwayhash").mkdir(parents=True)
    assert source.include_folders(new, tmp_path / "more") == [tmp_path / "more", new / "external" / "highwayhash"]
    assert "hlo/builder/xla_builder.h" in (tmp_path / "more" / MOVED).read_text()


def test_horovods_keras_becomes_tensorflows_once(tmp_path):
    package = installed(tmp_path)
    source.mend(package)
    texts = {name: (package / name).read_text() for name in KERAS}
    for name, text in texts.items():
        assert "from tensorflow import keras" in text and "import keras.backend" not in text, name
        assert not text.startswith("import keras") and "from keras import" not in text, name
        compile(text, name, "exec")
    source.mend(package)
    assert {name: (package / name).read_text() for name in KERAS} == texts


def test_a_package_that_is_not_horovod_is_not_mended(tmp_path):
    refused(lambda: source.mend(tmp_path / "none"), InstallError, where=tmp_path / "none", found="No such file")
    package = installed(tmp_path / "other", **{"keras/callbacks.py": "print('other')\n"})
    found = "a file that does not import keras"
    refused(lambda: source.mend(package), InstallError, where=package / "keras/callbacks.py", found=found)

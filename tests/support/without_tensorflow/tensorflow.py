"""Takes the place of tensorflow in `make check`, where no test may import it: the import raises an error."""

raise AssertionError("a test that imports tensorflow, or starts a process that does, needs the marker `tensorflow`")

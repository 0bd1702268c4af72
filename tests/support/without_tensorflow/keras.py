"""Takes the place of keras in `make check`, where no test may import it: the import raises an error."""

raise AssertionError("a test that imports keras, or starts a process that does, needs the marker `tensorflow`")

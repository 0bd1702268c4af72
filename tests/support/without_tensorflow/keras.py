"""In the place of keras where no test may import it."""

raise AssertionError("a test that imports keras, or starts a process that does, needs the marker `tensorflow`")

"""In the place of tensorflow where no test may import it."""

raise AssertionError("a test that imports tensorflow, or starts a process that does, needs the marker `tensorflow`")

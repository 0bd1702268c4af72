"""In the place of tf_keras where no test may import it."""

raise AssertionError("a test that imports tf_keras, or starts a process that does, needs the marker `tensorflow`")

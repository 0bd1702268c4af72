"""The parts of a training, a file for each trade. ``table`` lists them."""

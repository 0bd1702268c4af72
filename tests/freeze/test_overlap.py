"""Under Horovod the upper layers are captured while back-propagation of the lower ones goes on."""

import json

from tests.support import jobs, kerases


@kerases.needs_keras_3
def test_the_top_layer_is_captured_before_the_bottom_layers_gradient_is_there():
    times = json.loads(jobs.run("overlap.py", ranks=2).strip().splitlines()[-1])
    assert times["top"] < times["bottom"]

"""Runs a command in the project's environment: tools/run.py python -m pytest tests"""

import os
import sys

from project import ROOT, environment

if len(sys.argv) < 2:
    sys.exit(__doc__)
env = environment()
os.chdir(ROOT)
os.environ["PATH"] = env["PATH"]  # execvpe looks the program up in our own PATH
os.execvpe(sys.argv[1], sys.argv[1:], env)

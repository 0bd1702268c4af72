"""The parameters of NT3 as CANDLE's programs have them: defaults in a file, each of them changed by an option of its name."""

import ast
import configparser
from pathlib import Path

DEFAULTS = Path(__file__).with_name("nt3_default_model.txt")


def finalize(parser):
    """All options of the command line, as a dictionary. The parser gets one for each parameter of the file, such as --epochs."""
    file = configparser.ConfigParser()
    file.read_string(DEFAULTS.read_text())
    group = parser.add_argument_group("parameters", f"Their defaults are in {DEFAULTS.name}.")
    for name, text in file["Global_Params"].items():
        default = ast.literal_eval(text)
        group.add_argument(f"--{name}", default=default, type=_value, metavar="VALUE", help=f"default: {default}")
    return vars(parser.parse_args())


def _value(text):
    """The Python value that a text stands for, as in the file; the text itself if it is none. A word needs no quotes so."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text

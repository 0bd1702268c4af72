"""Transfer learning on real images: puts the convolutional base of a checkpoint under a new classifier, and compares with random weights.

The base is trained on the digits 0 to 4 and checkpointed. Then two models learn the digits 5 to 9 from a few images of each, with the
same seeds, batches and learning rate: one begins with the base of that checkpoint, the other with random weights. Every few steps both are
tested on images of 5 to 9. The accuracies are written to a JSON file, from which the figure is drawn.
"""

import argparse
import json
import os
import sys

import keras
import numpy as np

import data
import deepfreeze

OLD, NEW = range(5), range(5, 10)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/transfer", help="directory for the runs, transfer.json and transfer.png")
    parser.add_argument("--model", default="small", choices=["small", "resnet50"], help="small: 13 convolutions")
    parser.add_argument(
        "--size", type=int, default=32, help="images are resized to SIZE x SIZE; 32 is ResNet-50's least"
    )
    parser.add_argument("--base-steps", type=int, default=150, help="steps on the digits 0 to 4")
    parser.add_argument("--steps", type=int, default=60, help="steps on the digits 5 to 9")
    parser.add_argument("--images", type=int, default=20, help="of each digit from 5 to 9 to learn from")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3, help="Adam's")
    parser.add_argument("--every", type=int, default=4, help="steps between tests")
    parser.add_argument("--seeds", type=int, default=3, help="repetitions, each with other weights, images and batches")
    parser.add_argument("--draw", metavar="FILE", help="only draw the figure from this JSON file, beside it")
    return parser.parse_args()


def network(kind, size, classifier):
    """A residual network over images of size x size x 3; ``kind`` is "small" or "resnet50". ``classifier`` is the name of its last layer.
    All other layers have the same names in each call, so that ``transfer`` finds them."""
    if kind == "resnet50":
        base = keras.applications.ResNet50(include_top=False, weights=None, pooling="avg", input_shape=(size, size, 3))
        inputs, x = base.input, base.output
    else:
        inputs = keras.Input((size, size, 3))
        x = norm(keras.layers.Conv2D(16, 3, padding="same", use_bias=False, name="stem")(inputs), "stem")
        for number, width in enumerate((16, 32, 64, 64), 1):
            x = block(x, width, f"block{number}")
        x = keras.layers.GlobalAveragePooling2D(name="average")(x)
    model = keras.Model(inputs, keras.layers.Dense(5, activation="softmax", name=classifier)(x))
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            # So few steps would leave the statistics that testing uses far behind the ones that training does, in both models.
            layer.momentum = 0.8
    return model


def norm(x, name):
    return keras.layers.ReLU(name=f"{name}_relu")(keras.layers.BatchNormalization(name=f"{name}_norm")(x))


def block(x, width, name):
    """A residual block, which halves height and width of the image."""
    conv = {"padding": "same", "use_bias": False}
    y = norm(keras.layers.Conv2D(width, 3, strides=2, name=f"{name}_conv1", **conv)(x), f"{name}_1")
    y = keras.layers.Conv2D(width, 3, name=f"{name}_conv2", **conv)(y)
    x = keras.layers.Conv2D(width, 1, strides=2, name=f"{name}_skip", **conv)(x)
    return norm(keras.layers.Add(name=f"{name}_add")([x, y]), f"{name}_2")


class Tests(keras.callbacks.Callback):
    """Measures the accuracy on the test images before the first step, after every ``every`` steps, and after the last."""

    def __init__(self, x, y, every, total):
        super().__init__()
        self.x, self.y, self.every, self.total = x, y, every, total
        self.steps, self.accuracy = [], []

    def on_train_begin(self, logs=None):
        self.test(0)

    def on_train_batch_end(self, batch, logs=None):
        if (batch + 1) % self.every == 0 or batch + 1 == self.total:
            self.test(batch + 1)

    def test(self, step):
        self.steps.append(step)
        probabilities = [self.model(self.x[at : at + 100], training=False).numpy() for at in range(0, len(self.x), 100)]
        self.accuracy.append(float(np.mean(np.concatenate(probabilities).argmax(1) == self.y)))


def digits(x, y, chosen, most=None, rng=None):
    """The images of the ``chosen`` digits, with labels from 0; all of them, or ``most`` of each, drawn at random."""
    if most is None:
        rows = np.flatnonzero(np.isin(y, chosen))
    else:
        rows = np.concatenate([rng.permutation(np.flatnonzero(y == digit))[:most] for digit in chosen])
    return x[rows], y[rows] - chosen[0]


def train(args, model, x, y, steps, run, seed, callbacks=()):
    """Trains the model from its present weights; the last step is checkpointed."""
    model.compile(
        keras.optimizers.Adam(args.lr), "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False
    )
    checkpoint = deepfreeze.Checkpoint(os.path.join(args.out, run), every=steps, resume="off", verbose=0)
    batches = data.batches(x, y, args.batch, 0, seed)
    model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[*callbacks, checkpoint])
    if checkpoint.stats.stopped:
        raise SystemExit(f"{run}: {checkpoint.stats.stopped} ended the training early")  # half a curve is none


def train_base(args, x, y, test_x, test_y):
    """Trains the base on the digits 0 to 4; returns its test accuracy."""
    keras.utils.set_random_seed(0)
    model = network(args.model, args.size, "digits_0_to_4")
    tests = Tests(*digits(test_x, test_y, OLD), args.base_steps, args.base_steps)
    train(args, model, *digits(x, y, OLD), args.base_steps, "base", 0, [tests])
    print(f"base: {args.base_steps} steps on the digits 0 to 4, test accuracy {tests.accuracy[-1]:.3f}", flush=True)
    return tests.accuracy[-1]


def learn(args, seed, beginning, images, test):
    """Trains a model on the digits 5 to 9, from the base or from random weights; returns its curve of test accuracies."""
    keras.utils.set_random_seed(seed)
    model = network(args.model, args.size, "digits_5_to_9")
    taken = 0
    if beginning == "transferred":
        report = deepfreeze.transfer(model, os.path.join(args.out, "base"), exclude="digits_0_to_4", verbose=0)
        if seed == 1:
            print(report, flush=True)
        taken = len(report.loaded)
    tests = Tests(*test, args.every, args.steps)
    run = f"{beginning}-{seed}"
    train(args, model, *images, args.steps, run, seed, [tests])
    parent = deepfreeze.latest(os.path.join(args.out, run)).parent
    parent = None if parent is None else f"{os.path.basename(parent.path)}@{parent.step}"
    print(f"{run}: accuracy {tests.accuracy[-1]:.3f} after {args.steps} steps, parent {parent or 'none'}", flush=True)
    return {
        "beginning": beginning, "seed": seed, "weights": taken, "parent": parent, "steps": tests.steps, "accuracy": tests.accuracy,
    }  # fmt: skip


def steps_to(curve, accuracy):
    """The first tested step at which a curve has this accuracy; None if it never has."""
    return next((s for s, a in zip(curve["steps"], curve["accuracy"], strict=True) if a >= accuracy), None)


def summary(result):
    """Lines of text: how many steps the models took to reach some accuracies, from the base and from random weights."""
    lines = []
    for beginning in ("transferred", "scratch"):
        curves = [curve for curve in result["curves"] if curve["beginning"] == beginning]
        parts = []
        for accuracy in (0.7, 0.8, 0.9):
            found = [steps_to(curve, accuracy) for curve in curves]
            parts.append(f"{accuracy}: {', '.join('-' if step is None else str(step) for step in found)}")
        last = np.mean([curve["accuracy"][-1] for curve in curves])
        lines.append(f"{beginning:12} steps to accuracy {'; '.join(parts)}; at the end {last:.3f}")
    return "\n".join(lines)


def draw(file):
    """Draws the figure of a JSON file, beside the file. Returns the figure's path; None if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        print("no figure: matplotlib is not installed", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with open(file) as stream:
        result = json.load(stream)
    settings = result["settings"]
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for beginning, colour in (("transferred", "#c0392b"), ("scratch", "#7a7a7a")):
        curves = [curve for curve in result["curves"] if curve["beginning"] == beginning]
        for curve in curves:
            axes.plot(curve["steps"], curve["accuracy"], color=colour, alpha=0.35, linewidth=1)
        mean = np.mean([curve["accuracy"] for curve in curves], axis=0)
        name = "base from the checkpoint" if beginning == "transferred" else "from scratch"
        axes.plot(curves[0]["steps"], mean, color=colour, linewidth=2.2, label=f"{name} (mean of {len(curves)})")
    axes.axhline(0.2, color="#bbbbbb", linewidth=0.8, linestyle=":")
    axes.set(xlabel=f"step, {settings['batch']} images each", ylabel="accuracy on test images of 5 to 9", ylim=(0, 1))
    axes.set_title(
        f"{settings['model']}: digits 5 to 9 from {settings['images']} images each, base trained on 0 to 4", fontsize=10
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    path = os.path.splitext(file)[0] + ".png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def main():
    args = options()
    if args.draw:
        draw(args.draw)
        return
    os.makedirs(args.out, exist_ok=True)
    x, y, test_x, test_y = data.load(args.size)
    result = {"settings": {key: value for key, value in vars(args).items() if key not in ("out", "draw")}}
    result["base_accuracy"] = train_base(args, x, y, test_x, test_y)
    test = digits(test_x, test_y, NEW)
    result["test_images"] = len(test[1])
    result["curves"] = []
    for seed in range(1, args.seeds + 1):
        images = digits(x, y, NEW, args.images, np.random.default_rng(seed))
        for beginning in ("transferred", "scratch"):
            result["curves"].append(learn(args, seed, beginning, images, test))
    file = os.path.join(args.out, "transfer.json")
    with open(file, "w") as stream:
        json.dump(result, stream, indent=1)
    print(summary(result))
    print(draw(file) or file)


if __name__ == "__main__":
    main()

"""Images per second of a network of ``tf.keras.applications`` on random data under Horovod, in the shape of Horovod's synthetic
benchmark for Keras."""

import argparse
from timeit import default_timer as timer

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from tensorflow.keras import applications

import deepfreeze

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--fp16-allreduce", action="store_true", help="use fp16 compression during allreduce")
parser.add_argument("--model", default="MobileNet", help="model to benchmark")
parser.add_argument("--batch-size", type=int, default=8, help="input batch size")
parser.add_argument("--num-batches-per-iter", type=int, default=14, help="number of batches per benchmark iteration")
parser.add_argument("--num-iters", type=int, default=16, help="number of benchmark iterations")
args = parser.parse_args()

hvd.init()

if hvd.rank() == 0:
    print(f"Model: {args.model}")
    print(f"Batch size: {args.batch_size}")
    print(f"Number of CPUs: {hvd.size()}")

# Set up standard model.
model = getattr(applications, args.model)(weights=None, input_shape=(32, 32, 3), alpha=0.25)
opt = tf.optimizers.SGD(0.01)

# Synthetic dataset
data = tf.random.uniform([args.batch_size, 32, 32, 3])
target = tf.random.uniform([args.batch_size, 1], minval=0, maxval=999, dtype=tf.int64)
dataset = tf.data.Dataset.from_tensor_slices((data, target)).cache().repeat().batch(args.batch_size)

compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none

opt = hvd.DistributedOptimizer(opt, compression=compression)

model.compile(loss=tf.losses.SparseCategoricalCrossentropy(), optimizer=opt, experimental_run_tf_function=False)

callbacks = [
    # All ranks begin with rank 0's variables.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Average the metrics over the ranks at the end of each epoch, before callbacks that go by them.
    hvd.callbacks.MetricAverageCallback(),
    deepfreeze.Checkpoint("runs/benchmark", every=10),
]


class TimingCallback(tf.keras.callbacks.Callback):
    """Prints the images per second of each iteration, and at the end their mean."""

    def on_train_begin(self, logs=None):
        self.img_secs = []

    def on_train_end(self, logs=None):
        img_sec_mean = np.mean(self.img_secs)
        img_sec_conf = 1.96 * np.std(self.img_secs)
        print(f"Img/sec per CPU: {img_sec_mean:.1f} +-{img_sec_conf:.1f}")
        print(f"Total img/sec on {hvd.size()} CPU(s): {hvd.size() * img_sec_mean:.1f}")

    def on_epoch_begin(self, epoch, logs=None):
        self.starttime = timer()

    def on_epoch_end(self, epoch, logs=None):
        time = timer() - self.starttime
        img_sec = args.batch_size * args.num_batches_per_iter / time
        print(f"Iter #{epoch}: {img_sec:.1f} img/sec per CPU")
        # skip warm up epoch
        if epoch > 0:
            self.img_secs.append(img_sec)


if hvd.rank() == 0:
    callbacks.append(TimingCallback())

model.fit(
    dataset,
    batch_size=args.batch_size,
    steps_per_epoch=args.num_batches_per_iter,
    callbacks=callbacks,
    epochs=args.num_iters,
    verbose=0,
)

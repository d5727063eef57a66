#!/usr/bin/env python3
"""The exchange of bench.servers by TensorFlow's ParameterServerStrategy; prints JSON lines.

    bench/peers/tensorflow_servers.py --install         an environment of its own, .venv-tensorflow (2 GB)
    tensorflow_servers.py [--bytes 67108864] [--workers 2] [--seconds 2]

A coordinator, the workers and one server, each a process (gRPC between them, as TensorFlow has it). A step that the
coordinator schedules on a worker subtracts the worker's gradient from a variable on the server and reads the
variable. Steps are scheduled ahead, so that no worker waits for the coordinator. The median is the time of all steps over
their number a worker, since TensorFlow says nothing of a single step: the coordinator measures it in several rounds."""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parents[2] / ".venv-tensorflow"
HOW = "to have it: python3 bench/peers/tensorflow_servers.py --install (2 GB)"
STEPS_A_ROUND = 4  # of each worker


def install():
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    subprocess.run([FOLDER / "bin" / "pip", "install", "-q", "tensorflow-cpu"], check=True)


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def one_thread(tf):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)


def serve(cluster, job, index):
    """A worker or the server: until the coordinator kills it."""
    import tensorflow as tf
    one_thread(tf)
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index, protocol="grpc", start=True).join()


def coordinate(options, cluster):
    import tensorflow as tf
    one_thread(tf)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros(options.bytes // 4), aggregation=tf.VariableAggregation.NONE)

    @tf.function
    def step(value):  # no constant, which could be made on the server
        gradient = tf.fill([options.bytes // 4], value)
        with tf.control_dependencies([weights.assign_sub(gradient)]):
            return tf.reduce_sum(tf.identity(weights.read_value())[:1])

    def round_of_steps():
        for _ in range(STEPS_A_ROUND * options.workers):
            coordinator.schedule(step, args=(tf.constant(1e-9),))
        coordinator.join()

    round_of_steps()
    times = []
    start = now = time.perf_counter()
    while now - start < options.seconds:
        before = now
        round_of_steps()
        now = time.perf_counter()
        times.append((now - before) / STEPS_A_ROUND)
    print(json.dumps({"worker": -1, "exchanges": len(times) * STEPS_A_ROUND * options.workers,
                      "median_seconds": statistics.median(times)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--serve", nargs=3, help="used by the coordinator: the cluster, a job, an index")
    options = parser.parse_args()
    if options.install:
        return install()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    if options.serve:
        cluster, job, index = options.serve
        return serve(json.loads(cluster), job, int(index))
    ports = [f"127.0.0.1:{port}" for port in free_ports(options.workers + 1)]
    cluster = {"worker": ports[1:], "ps": ports[:1]}
    children = [subprocess.Popen([sys.executable, __file__, "--serve", json.dumps(cluster), job, str(index)],
                                 stderr=subprocess.DEVNULL)
                for job, addresses in cluster.items() for index in range(len(addresses))]
    try:
        coordinate(options, cluster)
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()
    os._exit(0)  # the strategy's threads would wait for the dead


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs what the pods of each manifest of deploy/kubernetes run, each in the environment that its operator gives it.

  environments_test.py FOLDER TRIREME

The pods are processes of this host: their commands, variables and numbers are those of the manifest; rank 0's name
becomes an address of this host, /data and /secret a folder, and the image's trireme the one under test. All jobs
must end with the same weights.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import yaml

FOLDER, TRIREME = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
HERE = "127.0.0.1"
CONFIG = """
[data]
path = "{data}"
[model]
name = "gpt"
layers = 2
heads = 2
width = 32
block = 16
[batch]
global = 8
micro = 2
[train]
steps = 12
sample_bytes = 20
validate_sequences = 8
validate_every = 0
[checkpoint]
every = 4
"""


def documents(name):
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / name).read_text())}


def container_of(template):
    return template["spec"]["containers"][0]


def variables_of(container):
    return {one["name"]: one["value"] for one in container.get("env", [])}


class Environments(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trireme-pods-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        data = self.folder / "data.txt"
        data.write_text("".join(f"line {i * 7919 % 1000} of it\n" for i in range(2000)))
        (self.folder / "gpt.toml").write_text(CONFIG.format(data=data))
        secret = self.folder / "job"
        secret.write_text("a secret of this job alone")
        secret.chmod(0o400)
        self.port = random.randrange(15000, 30000)

    def here(self, word):
        """A word of a manifest, on this host."""
        if word == "trireme":
            return TRIREME
        for place in ("/data/", "/secret/"):
            if word.startswith(place):
                return str(self.folder / word.removeprefix(place))
        return word

    def run_pods(self, pods, seconds=180):
        """`pods`: (name, command, variables) of each; the last that is started is rank 0."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRIREME_", "SLURM_"))}
        running = []
        for name, command, variables in pods:
            environment = dict(clean, TRIREME_HOST=name, XDG_CACHE_HOME=str(self.folder / "cache"),
                               **{key: self.here(value) for key, value in variables.items()})
            running.append(subprocess.Popen(
                [self.here(word) for word in command], cwd=self.folder, env=environment, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        said = []
        try:
            for process in reversed(running):
                said.append(process.communicate(timeout=seconds)[0])
        finally:
            for process in running:
                process.kill()
                process.communicate()
        self.assertEqual([process.returncode for process in running], [0] * len(running), "\n---\n".join(said))

    def hash_of(self, run):
        done = subprocess.run([TRIREME, "inspect", str(self.folder / run), "--hash"], text=True, check=True,
                              stdout=subprocess.PIPE)
        return done.stdout

    def check_weights(self):
        subprocess.run([TRIREME, "train", "gpt.toml", "--ranks", "4", "--out", "alone"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        self.assertEqual(self.hash_of("runs/gpt"), self.hash_of("alone"))

    def test_indexed_job(self):
        job = documents("indexed-job.yaml")["Job"]
        container = container_of(job["spec"]["template"])
        variables = variables_of(container)
        self.assertEqual(variables["TRIREME_JOB_COMPLETIONS"], str(job["spec"]["completions"]))
        self.assertEqual(variables["TRIREME_JOB_FIRST_HOST"],
                         f"{job['metadata']['name']}-0.{job['spec']['template']['spec']['subdomain']}")
        variables["TRIREME_JOB_FIRST_HOST"] = HERE
        self.run_pods([(f"gpt-{index}", container["command"], dict(variables, JOB_COMPLETION_INDEX=str(index)))
                       for index in reversed(range(job["spec"]["completions"]))])
        self.check_weights()

    def test_tfjob(self):
        """As the training operator's genClusterSpec: evaluators are left out of the cluster."""
        job = documents("tfjob.yaml")["TFJob"]
        replicas = job["spec"]["tfReplicaSpecs"]
        name = job["metadata"]["name"]
        cluster = {kind.lower(): [f"{name}-{kind.lower()}-{index}.default.svc:{self.port}"
                                  for index in range(spec["replicas"])]
                   for kind, spec in replicas.items() if kind != "Evaluator"}
        cluster["worker"][0] = f"{HERE}:{self.port}"
        pods = []
        for kind in ("Evaluator", "PS", "Worker"):
            container = container_of(replicas[kind]["template"])
            self.assertEqual(container["name"], "tensorflow", "the operator sets TF_CONFIG in this container alone")
            for index in reversed(range(replicas[kind]["replicas"])):
                config = {"cluster": cluster, "task": {"type": kind.lower(), "index": index}, "environment": "cloud"}
                pods.append((f"{name}-{kind.lower()}-{index}", container["command"],
                             dict(variables_of(container), TF_CONFIG=json.dumps(config))))
        self.run_pods(pods)
        self.check_weights()
        self.assertTrue((self.folder / "runs" / "gpt" / "best").is_dir(), "the evaluator's")

    def test_pytorchjob(self):
        replicas = documents("pytorchjob.yaml")["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]
        size = sum(spec["replicas"] for spec in replicas.values())
        pods = []
        for rank in reversed(range(size)):
            container = container_of(replicas["Master" if rank == 0 else "Worker"]["template"])
            pods.append((f"gpt-{rank}", container["command"],
                         dict(variables_of(container), RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=HERE,
                              MASTER_PORT="23456", PYTHONUNBUFFERED="1", PET_NNODES=str(size),
                              PET_NODE_RANK=str(rank), PET_NPROC_PER_NODE="auto", PET_MASTER_ADDR=HERE,
                              PET_MASTER_PORT="23456")))
        self.run_pods(pods)
        self.check_weights()

    def test_trainjob(self):
        """As the trainer's plugin for torch."""
        trainer = documents("trainjob.yaml")["TrainJob"]["spec"]["trainer"]
        size = trainer["numNodes"]
        self.run_pods([(f"gpt-node-0-{rank}", trainer["command"],
                        dict(variables_of(trainer), PET_NNODES=str(size), PET_NODE_RANK=str(rank),
                             PET_NPROC_PER_NODE=str(trainer["numProcPerNode"]), PET_MASTER_ADDR=HERE,
                             PET_MASTER_PORT="29400", JOB_COMPLETION_INDEX=str(rank)))
                       for rank in reversed(range(size))])
        self.check_weights()

    def test_mpijob(self):
        """The launcher pod's command; mpirun starts all its processes here."""
        command = container_of(documents("mpijob.yaml")["MPIJob"]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"])[
            "command"]
        self.assertEqual(command[0], "mpirun")
        self.run_pods([("gpt-launcher", ["mpirun.openmpi", "--oversubscribe", *command[1:]], {})])
        self.check_weights()


if __name__ == "__main__":
    unittest.main()

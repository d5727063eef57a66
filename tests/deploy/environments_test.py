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
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_training  # noqa: E402

FOLDER, TRIREME = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
HERE = "127.0.0.1"


def documents(name):
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / name).read_text())}


def container_of(template):
    return template["spec"]["containers"][0]


def variables_of(container):
    return {one["name"]: one["value"] for one in container.get("env", [])}


class Environments(unittest.TestCase):
    alone = {}   # configuration: the weights' hash

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trireme-pods-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        tiny_training.write(self.folder, "gpt.toml", "steps = 12\n[checkpoint]\nevery = 4\n")
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

    def start_pod(self, name, command, variables):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRIREME_", "SLURM_"))}
        environment = dict(clean, TRIREME_HOST=name, XDG_CACHE_HOME=tiny_training.cache(TRIREME),
                           **{key: self.here(value) for key, value in variables.items()})
        pod = subprocess.Popen(
            [self.here(word) for word in command], cwd=self.folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for last in (pod.stdout.close, pod.wait, pod.kill):  # called from the last to the first
            self.addCleanup(last)
        return pod

    def run_pods(self, pods, seconds=180):
        """`pods`: (name, command, variables) of each; the last that is started is rank 0."""
        running = [self.start_pod(*pod) for pod in pods]
        said = [process.communicate(timeout=seconds)[0] for process in reversed(running)]
        self.assertEqual([process.returncode for process in running], [0] * len(running), "\n---\n".join(said))

    def hash_of(self, run):
        done = subprocess.run([TRIREME, "inspect", str(self.folder / run), "--hash"], text=True, check=True,
                              stdout=subprocess.PIPE)
        return done.stdout

    def check_weights(self):
        """They are those of one process that trains alone, which does so once for jobs of one configuration."""
        config = (self.folder / "gpt.toml").read_text().replace(str(self.folder), "")
        if config not in self.alone:
            subprocess.run([TRIREME, "train", "gpt.toml", "--out", "alone"], cwd=self.folder, check=True,
                           stdout=subprocess.DEVNULL)
            self.alone[config] = self.hash_of("alone")
        self.assertEqual(self.hash_of("runs/gpt"), self.alone[config])

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

    def test_elastic_job(self):
        self.lose_pods(*self.standing_pods("elastic-job.yaml"),
                       [("gpt-coordinator", None), ("gpt", 2), ("gpt", 0)])

    def test_elastic_servers(self):
        self.lose_pods(*self.standing_pods("elastic-servers.yaml"),
                       [("gpt-server", 1), ("gpt-coordinator", None), ("gpt", 0), ("gpt-server", 0)])

    def standing_pods(self, manifest):
        """The places of a manifest with a coordinator, and a function that starts the pod of a place."""
        jobs = {one["metadata"]["name"]: one for one in yaml.safe_load_all((FOLDER / manifest).read_text())
                if one["kind"] == "Job"}
        address = f"{HERE}:{self.port}"

        def start(name, index):
            container = container_of(jobs[name]["spec"]["template"])
            variables = {one["name"]: one.get("value", str(index)) for one in container["env"]}
            if index is not None:
                self.assertEqual(variables["TRIREME_COORDINATOR"], "gpt-coordinator:29400")
                self.assertEqual(variables["TRIREME_SIZE"], str(jobs[name]["spec"]["completions"]))
                self.assertEqual(variables["TRIREME_LOCAL_SIZE"], "1", "a pod has its cores for itself")
                variables.update(TRIREME_COORDINATOR=address, OMP_NUM_THREADS="1")  # here pods share the cores
            command = [address if word == "0.0.0.0:29400" else word for word in container["command"]]
            return self.start_pod(f"{name}-{index}", command, variables)

        places = [("gpt-coordinator", None)]
        for name in jobs.keys() - {"gpt-coordinator"}:
            places += [(name, index) for index in range(jobs[name]["spec"]["completions"])]
        return places, start

    def test_dynamic_tfjob(self):
        """As the training operator's convertClusterSpecToSparseClusterSpec."""
        job = documents("dynamic-tfjob.yaml")["TFJob"]
        self.assertTrue(job["spec"]["enableDynamicWorker"])
        replicas, name = job["spec"]["tfReplicaSpecs"], job["metadata"]["name"]
        addresses = {kind: [f"{name}-{kind.lower()}-{index}.default.svc:{self.port}"
                            for index in range(spec["replicas"])] for kind, spec in replicas.items()}
        addresses["PS"][0] = f"{HERE}:{self.port}"

        def start(kind, index):
            worker = kind == "Worker"
            cluster = {"worker": {str(index): addresses[kind][index]} if worker else {},
                       "ps": addresses["PS"] if worker else [addresses["PS"][index]]}
            config = {"sparseCluster": cluster, "task": {"type": kind.lower(), "index": index}}
            container = container_of(replicas[kind]["template"])
            self.assertEqual(container["name"], "tensorflow")
            variables = dict(variables_of(container), TF_CONFIG=json.dumps(config),
                             TRIREME_LOCAL_SIZE=str(replicas["Worker"]["replicas"]))   # they share this host's cores
            self.assertEqual(variables["TRIREME_SERVERS"], str(replicas["PS"]["replicas"]))
            if kind == "PS" and index > 0:   # no name server here knows ps 0
                variables["TRIREME_COORDINATOR"] = addresses["PS"][0]
            return self.start_pod(f"{name}-{kind.lower()}-{index}", container["command"], variables)

        places = [(kind, index) for kind in ("Worker", "PS") for index in reversed(range(replicas[kind]["replicas"]))]
        self.lose_pods(places, start, [("Worker", 1), ("PS", 0), ("Worker", 0)])

    def await_free_port(self):
        """A pod's processes end together. Here the coordinator, a child of ps 0, may end a moment later."""
        end = time.monotonic() + 60
        while True:
            with socket.socket() as one:
                if one.connect_ex((HERE, self.port)) != 0:
                    return
            self.assertLess(time.monotonic(), end, "the coordinator outlives its pod")
            time.sleep(0.05)

    def lose_pods(self, places, start, victims):
        """Pods are killed one after the other, and started again as Kubernetes does."""
        config = self.folder / "gpt.toml"
        config.write_text(config.read_text().replace("steps = 12", "steps = 1500").replace("every = 4", "every = 500"))
        (self.folder / "coordinator").mkdir()

        def steps():
            events = self.folder / "runs/gpt/events.jsonl"
            return events.read_text().count('"step"') if events.exists() else 0

        def await_steps(count):
            end = time.monotonic() + 180
            while steps() < count:
                self.assertLess(time.monotonic(), end, f"{steps()} of {count} steps")
                time.sleep(0.05)

        pods = {place: start(*place) for place in places}
        for place in victims:
            await_steps(steps() + 100)
            pods[place].kill()
            pods[place].wait()
            if place == ("PS", 0):
                self.await_free_port()
            pods[place] = start(*place)
        said = [pod.communicate(timeout=300)[0] for pod in pods.values()]
        self.assertEqual([pod.returncode for pod in pods.values()], [0] * len(pods), "\n---\n".join(said))
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

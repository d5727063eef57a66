#!/usr/bin/env python3
"""The manifests of deploy/kubernetes against the types that Kubernetes and Kubeflow publish for Python, made from
the OpenAPI of the API server and of the CRDs.

  validate_manifests.py FOLDER

Needs kubernetes, kubeflow-training, kubeflow-trainer-api and PyYAML. Unknown fields, wrong types and missing
required fields are faults.
"""
import pathlib
import re
import sys
import unittest

import kubernetes.client.models
import kubeflow.training.models
import kubeflow_trainer_api.models
import yaml

FOLDER = pathlib.Path(sys.argv.pop(1))
ROOTS = {"Service": "V1Service", "Job": "V1Job", "TFJob": "KubeflowOrgV1TFJob", "MPIJob": "KubeflowOrgV1MPIJob",
         "PyTorchJob": "KubeflowOrgV1PyTorchJob"}
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object}


def model(name):
    for models in (kubernetes.client.models, kubeflow.training.models):
        if hasattr(models, name):
            return getattr(models, name)
    raise AssertionError(f"no published type {name}")


def check(value, kind, path):
    """Returns the value as `kind`; raises ValueError with its path."""
    many = re.fullmatch(r"(list|dict)[\[(](?:str, )?(.*)[\])]", kind)
    if many:
        if not isinstance(value, list if many[1] == "list" else dict):
            raise ValueError(f"{path} is no {many[1]}")
        if many[1] == "list":
            return [check(one, many[2], f"{path}[{i}]") for i, one in enumerate(value)]
        return {key: check(one, many[2], f"{path}.{key}") for key, one in value.items()}
    if kind in PLAIN:
        if not isinstance(value, PLAIN[kind]) or kind == "int" and isinstance(value, bool):
            raise ValueError(f"{path} is no {kind}")
        return value
    own = model(kind)
    fields = {name: field for field, name in own.attribute_map.items()}
    if not isinstance(value, dict) or set(value) - set(fields):
        raise ValueError(f"{path} is no {kind}: {value if not isinstance(value, dict) else set(value) - set(fields)}")
    try:
        return own(**{fields[name]: check(one, own.openapi_types[fields[name]], f"{path}.{name}")
                      for name, one in value.items()})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check_trainjob(value):
    """The trainer's types are another generation, which ignores what it does not know."""
    try:
        read = kubeflow_trainer_api.models.TrainerV1alpha1TrainJob.from_dict(value).to_dict()
    except ValueError as error:
        raise ValueError(f"TrainJob: {error}") from error
    if read != value:
        raise ValueError(f"TrainJob has unknown fields: {value} was read as {read}")


def check_document(document):
    if document["kind"] == "TrainJob":
        return check_trainjob(document)
    return check(document, ROOTS[document["kind"]], document["kind"])


def pods_in(value):
    """The specifications of pods in a part of a document."""
    if isinstance(value, dict) and "containers" in value:
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from pods_in(one)


class Manifests(unittest.TestCase):
    def test_are_of_the_published_types(self):
        kinds = []
        for path in sorted(FOLDER.glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                kinds.append(document["kind"])
                with self.subTest(path.name):
                    check_document(document)
        self.assertEqual(set(kinds), {*ROOTS, "TrainJob"})

    def test_ranks_have_time_to_save(self):
        """A pod that Kubernetes ends saves a checkpoint first, on a slow disk, too. mpirun ends its ranks itself; where
        workers come and go, a pod that is removed must not stop the others."""
        checked = set()
        for path in sorted(FOLDER.glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                dynamic = document["spec"].get("enableDynamicWorker", False)
                for pod in pods_in(document) if document["kind"] != "MPIJob" and not dynamic else ():
                    command = pod["containers"][0].get("command", ["trireme", "train"])  # TrainJob: in its trainer
                    if command[:2] == ["trireme", "train"]:
                        checked.add(document["kind"])
                        self.assertGreaterEqual(pod.get("terminationGracePeriodSeconds", 30), 120, path.name)
        self.assertEqual(checked, {"Job", "TFJob", "PyTorchJob", "TrainJob"})

    def test_faults_are_found(self):
        for name, was, fault in (("tfjob", "replicas: 4", "replicas: four"), ("tfjob", "template:", "templates:"),
                                 ("tfjob", "image:", "images:"), ("tfjob", "name: tensorflow", "command: [a]"),
                                 ("trainjob", "numNodes: 4", "numNodes: four"), ("trainjob", "image:", "images:"),
                                 ("trainjob", "runtimeRef: {name: torch-distributed}", "suspend: false"),
                                 ("trainjob", "mountPath: /data", "path: /data")):
            text = (FOLDER / f"{name}.yaml").read_text().replace(was, fault, 1)
            with self.assertRaises(ValueError, msg=fault):
                check_document(yaml.safe_load(text))


if __name__ == "__main__":
    unittest.main()

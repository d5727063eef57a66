#!/usr/bin/env python3
"""The manifests of deploy/kubernetes against the types that Kubernetes and Kubeflow publish for Python.

  validate_manifests.py FOLDER

Needs kubernetes, kubeflow-training (both generated from the OpenAPI of the API server and of the CRDs)
and PyYAML. Unknown fields, wrong types and missing required fields are faults.
"""
import pathlib
import re
import sys
import unittest

import kubernetes.client.models
import kubeflow.training.models
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


class Manifests(unittest.TestCase):
    def test_are_of_the_published_types(self):
        kinds = []
        for path in sorted(FOLDER.glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                kinds.append(document["kind"])
                with self.subTest(path.name):
                    check(document, ROOTS[document["kind"]], document["kind"])
        self.assertEqual(set(kinds), set(ROOTS))

    def test_faults_are_found(self):
        path = FOLDER / "tfjob.yaml"
        for was, fault in (("replicas: 4", "replicas: four"), ("template:", "templates:"), ("image:", "images:"),
                           ("name: tensorflow", "command: [a]")):
            with self.assertRaises(ValueError, msg=fault):
                check(yaml.safe_load(path.read_text().replace(was, fault, 1)), ROOTS["TFJob"], "TFJob")


if __name__ == "__main__":
    unittest.main()

"""Sums the time of a GPU's kernels by class, from a profile in Chrome's trace format (`trireme train --profile`)."""
import collections
import json
import re

STEPS = 3  # in a profile
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# The first that matches a kernel's name counts.
CLASSES = {"attention": r"flash|fmha|sdpa|attention|attn",
           "collectives and folds": r"nccl|fold",
           "copies": r"memcpy|memset|copy|catarray",
           "products": r"gemm|gemv|nvjet|cutlass|cublas|xmma|splitk|linear",
           "norms, softmax, loss": r"norm|softmax|nll|cross_entropy|trireme_loss",
           "optimizer": r"adam|multi_tensor|foreach|trireme_update",
           "embedding and indices": r"embedding|index|gather|scatter|sort",
           "sums": r"reduce|triton_(red|per)|trireme_(leaf|squares)",
           "elementwise": r"elementwise|triton_poi|gelu|dropout|trireme_mask"}


def class_of(name):
    return next((title for title, words in CLASSES.items() if re.search(words, name, re.IGNORECASE)), "others")


def read(path, categories=ON_DEVICE):
    """Milliseconds a step by class, and of the ten longest kernels by name. Raises ValueError without any."""
    with open(path, encoding="utf-8", errors="replace") as file:
        spans = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X" and one.get("cat") in categories]
    if not spans:
        raise ValueError(f"{path} has no spans of {', '.join(categories)}")
    names = collections.Counter()
    for span in spans:
        names[span["name"]] += span["dur"] / 1000 / STEPS
    classes = collections.Counter()
    for name, milliseconds in names.items():
        classes[class_of(name)] += milliseconds
    return {"classes": dict(classes), "longest": {name[:100]: value for name, value in names.most_common(10)},
            "launches": len(spans) / STEPS}

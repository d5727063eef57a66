#!/usr/bin/env python3
"""The PyTorch peers end: nothing of theirs still holds the Gloo group when it is destroyed. The limit has all products."""
import argparse
import gc
import os
import pathlib
import sys
import tempfile
import unittest
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import bert_model  # noqa: E402
import gloo_group  # noqa: E402
import gpt_model  # noqa: E402
import products  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch_gpt  # noqa: E402

HOLDERS = (torch_gpt.DistributedDataParallel, torch_gpt.ZeroRedundancyOptimizer)


class Peers(unittest.TestCase):
    def train(self, parallel):
        """One step in a group of one; returns the holders of the group that lived when it was destroyed."""
        made, alive = [], []
        original_parallelised, original_destroy = torch_gpt.parallelised, dist.destroy_process_group

        def parallelised(*arguments):
            both = original_parallelised(*arguments)
            made.extend(weakref.ref(one) for one in both if isinstance(one, HOLDERS))
            return both

        def destroy():
            alive.extend(one() for one in made if one() is not None)
            original_destroy()

        with tempfile.TemporaryDirectory() as folder:
            data = os.path.join(folder, "text")
            with open(data, "wb") as file:
                file.write(bytes(range(256)) * 4)
            options = argparse.Namespace(data=data, ranks=1, steps=1, global_batch=2, layers=1, heads=1, width=8,
                                         block=8, vocab=256, model="gpt", parallel=parallel, precision="fp32",
                                         device="cpu", profile=None)
            torch_gpt.parallelised, dist.destroy_process_group = parallelised, destroy
            gc.disable()   # only what the peers themselves collect counts
            try:
                gloo_group.member(0, torch_gpt.train, (options,), 1, os.path.join(folder, "store"))
            finally:
                gc.enable()
                torch_gpt.parallelised, dist.destroy_process_group = original_parallelised, original_destroy
        self.assertTrue(made)
        return alive

    def test_nothing_holds_the_group_when_it_is_destroyed(self):
        for parallel in ("ddp", "zero1"):
            with self.subTest(parallel):
                self.assertEqual(self.train(parallel), [])


class Products(unittest.TestCase):
    def test_all_linear_layers_of_a_model_are_recorded(self):
        for model in (gpt_model.Gpt, bert_model.Bert):
            with self.subTest(model), torch.no_grad(), products.Recorder() as recorder:
                model(layers=2, heads=2, width=16, block=8, vocab=32)(torch.zeros(3, 8, dtype=torch.long))
                for shape in ((24, 16, 48), (24, 16, 16), (24, 16, 64), (24, 64, 16)):
                    self.assertGreaterEqual(recorder.linear.count(shape), 2, shape)
                self.assertEqual(recorder.linear.count((24, 16, 32)), 1)


if __name__ == "__main__":
    unittest.main()

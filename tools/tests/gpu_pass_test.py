#!/usr/bin/env python3
"""Tests tools/gpu_pass with made-up commands: going on, refusing, reading figures, writing the table."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

TOOLS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOOLS))
import gpu_kernels  # noqa: E402
import gpu_machine  # noqa: E402
import gpu_table  # noqa: E402
import setup  # noqa: E402
from tasks import DONE, FAILED, Busy, Task, TaskError, Tasks  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("gpu_pass", str(TOOLS / "gpu_pass"))
gpu_pass = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_pass", LOADER))
sys.modules["gpu_pass"] = gpu_pass
LOADER.exec_module(gpu_pass)

SHAPES = {"GPT-2 124M": {"batch": 32, "block": 1024}}
FOUND = {"machine": {"gpus": ["NVIDIA H200"], "machine": "", "driver": "580.1", "cuda": "13.0", "nccl": "2.28.3",
                     "torch": "2.11.0+cu130", "commit": "abc", "date": "2026-11-24"},
         "tests": {"tests": 5, "of": 12, "gpus": 1},
         "hash-fp32-1": {"hash": "a" * 64, "step_seconds": 0.004}, "hash-fp32-2": {"hash": "a" * 64},
         "hash-fp32-1-graphs": {"hash": "a" * 64, "step_seconds": 0.0015},
         "hash-bf16-1": {"hash": "a" * 64}, "hash-bf16-2": {"hash": "b" * 64},
         "speed-GPT-2-124M-reproducible": {"step_seconds": 0.1, "mfu": 0.4, "predicted_bytes": 30e9,
                                           "measured_bytes": 31e9},
         "peer-GPT-2-124M": {"step_seconds": 0.08, "measured_bytes": 20e9},
         "kernels-own": {"classes": {"products": 30, "copies": 50}, "launches": 1500}}


def found(name):
    return FOUND.get(name, {})


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def counting(self, name, script="", **more):
        """A task that writes a line into the file `name` each time it runs."""
        return Task("speed", name, [["sh", "-c", f"echo begun >>{self.folder}/{name}.runs; {script}"]], **more)

    def runs(self, name):
        return (self.folder / f"{name}.runs").read_text().count("begun")


class GoingOn(Folder):
    def test_a_second_call_runs_only_what_the_first_one_did_not_finish(self):
        now = [0.0]

        def read(output):
            now[0] = 539.9  # of the call's 540 s
            return {"value": int(output)}

        todo = [self.counting("first", "echo 7", read=read),
                self.counting("second", f"test -e {self.folder}/ready || exec sleep 60")]
        tasks = Tasks(self.folder, 540, lambda: now[0])
        self.assertFalse(gpu_pass.carry_out(todo, tasks, lambda text: None))
        self.assertEqual(tasks.status(todo[1]), "")
        (self.folder / "ready").touch()
        again = Tasks(self.folder, 60)
        self.assertTrue(gpu_pass.carry_out(todo, again, lambda text: None))
        self.assertEqual(again.found("first"), {"value": 7})
        self.assertEqual([self.runs("first"), self.runs("second")], [1, 2])

    def test_a_task_that_takes_longer_than_it_may_has_failed(self):
        task = self.counting("slow", "exec sleep 60", seconds=0.2)
        tasks = Tasks(self.folder, 60)
        tasks.run(task)
        self.assertEqual(tasks.status(task), FAILED)
        self.assertIn("took more than 0 s", tasks.why(task))

    def test_a_failed_task_says_its_last_words_and_runs_only_when_asked_for_again(self):
        task = self.counting("bad", "echo the disk is full >&2; exit 5")
        for _ in range(2):
            tasks = Tasks(self.folder, 60)
            tasks.run(task)
        self.assertIn("ended with 5: the disk is full", tasks.why(task))
        tasks.forget([task])
        tasks.run(task)
        self.assertEqual(self.runs("bad"), 2)

    def test_a_failed_task_may_write_bytes_that_are_not_utf_8(self):
        task = self.counting("binary", "printf 'no \\377 text\\n' >&2; exit 4")
        tasks = Tasks(self.folder, 60)
        tasks.run(task)
        self.assertEqual(tasks.status(task), FAILED)
        self.assertIn("no \ufffd text", tasks.why(task))

    def test_a_task_whose_output_cannot_be_read_has_failed_and_the_others_run(self):
        bad = [self.counting("nothing", "true", read=gpu_pass.read_bandwidth),
               self.counting("no-json", "echo '{torn'", read=gpu_pass.read_training),
               self.counting("no-event", "echo '{}'", read=gpu_pass.read_training)]
        todo = [*bad, Task("speed", "absent", [[self.folder / "no-program"]]), self.counting("last")]
        tasks = Tasks(self.folder, 60)
        self.assertTrue(gpu_pass.carry_out(todo, tasks, lambda text: None))
        self.assertEqual([tasks.status(task) for task in todo], [FAILED] * 4 + [DONE])
        for task in bad:
            self.assertIn("its output cannot be read: ", tasks.why(task))
        self.assertIn("no-program cannot be started: ", tasks.why(todo[3]))

    def test_two_calls_at_once_are_refused(self):
        first, second = Tasks(self.folder, 60), Tasks(self.folder, 60)
        first.lock()
        with self.assertRaisesRegex(Busy, f"Another call works in {self.folder}"):
            second.lock()
        first.run(Task("speed", "quick", read=lambda _: {"value": 7}))
        first.held.close()
        second.lock()
        second.held.close()
        self.assertEqual(second.found("quick"), {"value": 7}, "what the first call has found stays")

    def test_without_a_build_nothing_that_needs_it_runs(self):
        build = Task("build", "build", [["sh", "-c", "echo no compiler >&2; false"]])
        todo = [build, self.counting("speed"), Task("peer", "peer", [["true"]])]
        tasks, said = Tasks(self.folder, 60), []
        self.assertTrue(gpu_pass.carry_out(todo, tasks, said.append))
        self.assertIn("no compiler\nbuild: build failed: sh ended with 1: no compiler", said[1])
        self.assertEqual([tasks.status(task) for task in todo], [FAILED, "", DONE])


class Refusing(Folder):
    def test_without_a_gpu_it_says_what_it_found(self):
        python = self.folder / "python"
        python.write_text("""#!/bin/sh
echo '{"version": "2.13.0+cpu", "cuda": null, "folder": "/torch", "gpus": []}'
""")
        python.chmod(0o755)
        done = subprocess.run([TOOLS / "gpu_pass", "--python", python, "--folder", self.folder], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"No GPU can be used here: found {python} (torch 2.13.0+cpu, for the CPU alone).", done.stderr)

    def test_a_python_that_is_not_there_is_named(self):
        done = subprocess.run([TOOLS / "gpu_pass", "--python", "no/python", "--folder", "results", "--rehearse"],
                              capture_output=True, text=True, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"No Python here holds LibTorch (tried {self.folder}/no/python).", done.stderr)
        self.assertTrue((self.folder / "results").is_dir(), "paths are those of the caller's folder")

    def test_a_packed_build_needs_no_compiler_for_its_data(self):
        headers = self.folder / "torch" / "include" / "ATen"
        headers.mkdir(parents=True)
        (headers / "Tensor.h").write_text("class Tensor;\n")
        torch = gpu_machine.Torch("a", "2.11.0+cu130", "13.0", str(self.folder / "torch"), [])
        setting = gpu_pass.Setting(torch, self.folder, False, self.folder / "packed")
        with mock.patch.dict(os.environ, {"PATH": ""}):
            gpu_pass.prepare(setting)
        self.assertEqual(setting.data.read_text(), "class Tensor;\n")
        for task in gpu_pass.hash_tasks(setting, Tasks(self.folder, 60))[:-1]:
            self.assertIn(f"data.path={setting.data}", task.commands[0])

    def test_data_that_were_not_written_to_the_end_are_written_again(self):
        (self.folder / "good").write_text("text")
        with mock.patch.object(pathlib.Path, "read_bytes", side_effect=KeyboardInterrupt), \
                self.assertRaises(KeyboardInterrupt):
            gpu_pass.turns.write_data(self.folder / "data", self.folder)
        self.assertFalse((self.folder / "data").exists())

    def test_the_first_python_with_cuda_and_a_gpu_is_taken(self):
        cpu = gpu_machine.Torch("a", "2.13.0+cpu", None, "", [])
        blind = gpu_machine.Torch("b", "2.11.0+cu130", "13.0", "", [])
        gpu = gpu_machine.Torch("c", "2.11.0+cu130", "13.0", "", [{"name": "NVIDIA H200"}])
        self.assertEqual(gpu_machine.choose([cpu, blind, gpu], needs_gpu=True), gpu)
        self.assertEqual(gpu_machine.choose([cpu, blind], needs_gpu=False), cpu)
        with self.assertRaisesRegex(setup.SetupError, "a .*for the CPU alone.*; b .*CUDA 13.0, 0 GPUs"):
            gpu_machine.choose([cpu, blind], needs_gpu=True)

    def test_a_packed_build_is_used_for_its_commit_alone(self):
        build, packed = self.folder / "build", self.folder / "packed"
        with self.assertRaisesRegex(setup.SetupError, "There is no .*bin/trireme and no .*Build first"):
            gpu_machine.pack(build, packed, "abc")
        for name in (*gpu_machine.PROGRAMS, gpu_machine.TESTS):
            (build / name).parent.mkdir(parents=True)
            shutil.copy2(shutil.which("ls"), build / name)
        with self.assertRaisesRegex(setup.SetupError, "is no packed build"):
            gpu_machine.check_packed(packed, "abc")
        with self.assertRaisesRegex(setup.SetupError, "was built from an unknown commit, and this tree is abc"):
            gpu_machine.pack(build, packed, "abc")
        (build / "commit").write_text("")   # git could not tell it: --commit does
        gpu_machine.pack(build, packed, "abc")
        shutil.rmtree(packed)
        (build / "commit").write_text("ab0")
        with self.assertRaisesRegex(setup.SetupError, "was built from ab0, and this tree is abc"):
            gpu_machine.pack(build, packed, "abc")
        (build / "commit").write_text("abc")
        packed.mkdir()
        (packed / "letter").write_text("of somebody")
        with self.assertRaisesRegex(setup.SetupError, "holds other files"):
            gpu_machine.pack(build, packed, "abc")
        (packed / "letter").unlink()
        (build / "trireme-configured.json").write_text(json.dumps({"libtorch": 'set(PACKAGE_VERSION "2.11.0")\n'}))
        for _ in range(2):
            gpu_machine.pack(build, packed, "abc")
        gpu_machine.check_packed(packed, "abc")
        with self.assertRaisesRegex(setup.SetupError, "built from abc, and this tree is def"):
            gpu_machine.check_packed(packed, "def")
        for program in gpu_machine.PROGRAMS:
            self.assertTrue(os.access(packed / program, os.X_OK))
        torch = gpu_machine.Torch("a", "2.11.0+cu130", "13.0", "/site/torch", [])
        gpu_machine.check_torch(packed, torch)
        with self.assertRaisesRegex(setup.SetupError, "was built with LibTorch 2.11, and a .torch 2.13.0"):
            gpu_machine.check_torch(packed, gpu_machine.Torch("a", "2.13.0+cu130", "13.0", "/site/torch", []))
        self.assertTrue(gpu_machine.environment_of(packed, torch)["LD_LIBRARY_PATH"]
                        .startswith(f"{packed}/lib:/site/torch/lib:/site/nvidia/nccl/lib"))

    def test_a_packed_build_has_the_libraries_that_other_machines_may_lack(self):
        ldd = """
        linux-vdso.so.1 (0x00007ffd3b7f2000)
        libtorch.so => /site/torch/lib/libtorch.so (0x00007f1)
        libcudart.so.13 => /site/nvidia/cu13/lib/libcudart.so.13 (0x00007f1)
        libgrpc++.so.1.51 => /lib/x86_64-linux-gnu/libgrpc++.so.1.51 (0x00007f1)
        libstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f1)
        libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)
        libcares.so.2 => /lib/x86_64-linux-gnu/libcares.so.2 (0x00007f1)
        libnone.so.1 => not found
        /lib64/ld-linux-x86-64.so.2 (0x00007f1)"""
        self.assertEqual(list(gpu_machine.libraries_of("trireme", ldd)), ["libgrpc++.so.1.51", "libcares.so.2"])

    def test_a_missing_package_is_named(self):
        self.assertEqual(gpu_machine.missing(lambda name: name != "protoc", lambda name: name != "CLI/CLI.hpp"),
                         ["protobuf-compiler", "libcli11-dev"])
        with self.assertRaisesRegex(setup.SetupError, "apt-get install .* libcli11-dev"):
            gpu_machine.check_packages(["libcli11-dev"])
        known = setup.wanted_packages((setup.ROOT / "tools" / "debian-packages.txt").read_text())
        self.assertEqual([name for name in gpu_machine.NEEDED if name not in known], [])


class Reading(unittest.TestCase):
    def test_warm_up_steps_do_not_count_and_device_memory_is_what_is_told(self):
        lines = [f'{{"event": "step", "step_seconds": {seconds}, "loss": 2.5, "model_flops_utilization": 0.5}}'
                 for seconds in (9, 9, 9, 3, 1, 2)]
        lines += ['{"event": "plan", "predicted_memory_bytes": 1, "predicted_device_bytes": 5, '
                  '"measured_memory_bytes": 2, "measured_device_bytes": 6}']
        self.assertEqual(gpu_pass.read_training("\n".join(lines)),
                         {"step_seconds": 2, "loss": 2.5, "mfu": 0.5, "predicted_bytes": 5, "measured_bytes": 6})
        with self.assertRaisesRegex(TaskError, "warm-up"):
            gpu_pass.read_training("\n".join(lines[:3]))

    def test_only_tests_that_ran_on_a_gpu_count(self):
        some = "[ RUN      ] A.a\nrun on 1 GPUs\nrun on 2 GPUs\n[       OK ] A.a\n"
        none = "[ RUN      ] A.b\nnot run on 5 GPUs: there are 2\n[       OK ] A.b\n"
        self.assertEqual(gpu_pass.read_tests(some + none), {"tests": 1, "of": 2, "gpus": 2})
        with self.assertRaisesRegex(TaskError, "None of the tests"):
            gpu_pass.read_tests(none)

    def test_kernels_are_summed_by_class_for_a_step(self):
        spans = [{"ph": "X", "cat": "kernel", "name": name, "dur": 1500}
                 for name in ("nvjet_tst_128x64", "void pytorch_flash::flash_fwd_kernel<cutlass>", "nvjet_tst_128x64")]
        spans += [{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "dur": 750}, {"ph": "i", "cat": "kernel"},
                  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "dur": 9}]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"traceEvents": spans}, file)
            file.flush()
            found = gpu_kernels.read(file.name)
            with self.assertRaisesRegex(ValueError, "no spans of nothing"):
                gpu_kernels.read(file.name, ("nothing",))
        self.assertEqual(found["classes"], {"products": 1.0, "attention": 0.5, "copies": 0.25})
        self.assertEqual(next(iter(found["longest"].items())), ("nvjet_tst_128x64", 1.0))

    def test_bandwidth_is_that_of_the_largest_buffer(self):
        lines = [json.dumps({"event": "bench", "bytes": 2**20 * size, "seconds": 1e-3 * size, "ranks": 4})
                 for size in (1, 128, 64)]
        found = gpu_pass.read_bandwidth("\n".join(["measuring", *lines]))
        self.assertEqual(found["bytes"], 128 * 2**20)
        self.assertAlmostEqual(found["bus_bytes_per_second"], 1.5 * 2**30 / 1.024)
        self.assertIn("All-reduce of 128 MiB by 4 GPUs, reproducible: 1.0 GB/s, 1.6 GB/s over each one's links.",
                      gpu_table.checks(lambda name: found if name == "bandwidth-auto" else {})[0])

    def test_weights_that_depend_on_the_ranks_are_a_failure(self):
        same = {"hash-fp32-1": {"hash": "a"}, "hash-fp32-2": {"hash": "a"}, "hash-bf16-1": {"hash": "b"}}
        self.assertEqual(gpu_pass.compare(same), {})
        with self.assertRaisesRegex(TaskError, "in fp32: hash-fp32-1 has a, hash-fp32-2 has no hash"):
            gpu_pass.compare(same | {"hash-fp32-2": {}})
        with self.assertRaisesRegex(TaskError, "No run in fp32 ended"):
            gpu_pass.compare({"hash-fp32-1": {}, "hash-bf16-1": {"hash": "b"}})


class Table(unittest.TestCase):
    def test_the_section_is_replaced_as_a_whole_and_the_rest_stays(self):
        page = "before\n<!-- gpu pass -->\nold\nlines\n<!-- end -->\nafter\n"
        once = gpu_table.replaced(page, gpu_table.section(found, SHAPES))
        self.assertTrue(once.startswith("before\n<!-- gpu pass -->\nRun on 1 x NVIDIA H200, driver 580.1, CUDA 13.0"))
        self.assertTrue(once.endswith("|\n<!-- end -->\nafter\n"))
        self.assertNotIn("old", once)
        self.assertEqual(gpu_table.replaced(once, "old\nlines\n"), page)
        with self.assertRaises(ValueError):
            gpu_table.replaced("no marks", "")

    def test_it_says_what_was_found_and_what_was_not(self):
        text = gpu_table.section(found, SHAPES)
        self.assertIn("commit abc, 2026-11-24", text)
        self.assertIn("on up to 1 GPUs: 5 of 12 tests ran", text)
        self.assertIn("gpt-nano in fp32 on one GPU (ranks: 1, 2, 1 with graphs): the same weights.", text)
        self.assertIn("- Its step on one rank: 4.00 ms, 1.50 ms with `train.graphs`.", text)
        self.assertIn("**different weights**: 1: aaaaaaaaaaaa, 2: bbbbbbbbbbbb", text)
        self.assertIn("| GPT-2 124M | 32,768 | yes | 327,680 | 40.0 % | 30.0 GB | 31.0 GB | 409,600 | 20.0 GB | 0.80x |",
                      text)
        self.assertIn("| copies | 50.0 ms | - |\n| products | 30.0 ms | - |\n| all of them | 80.0 ms in 1,500", text)
        self.assertIn("Not run on a GPU yet", gpu_table.section(lambda name: {}, SHAPES))

    def test_the_page_has_the_marks(self):
        page = (setup.ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
        self.assertEqual(len(gpu_table.MARKS.findall(page)), 1)


if __name__ == "__main__":
    unittest.main()

"""Each rule of tools/check_layers.py against a small tree that breaks it, and one that breaks none."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import check_layers  # noqa: E402

LAYERS = """
0 base:
1 observe: base
2 net: base observe
4 job: base net
4 tensor torch: base
5 models torch: base tensor
7 layers torch: base tensor models
- testing: base net
- testing/device torch: base
"""


class CheckLayers(unittest.TestCase):
    def violations(self, files, layers=LAYERS):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "layers.txt").write_text(layers)
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.violations(root)[1]

    def assert_refused(self, files, *words, layers=LAYERS):
        found = self.violations(files, layers)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_good_tree_has_none(self):
        self.assertEqual(self.violations({
            "trireme/base/clock.h": "#include <chrono>\nusing C = std::chrono::steady_clock;",
            "trireme/net/transport.h": '#include "trireme/base/clock.h"',
            "trireme/net/shm/shm.cc": '#include "trireme/net/transport.h"\n// no condition_variable here',
            "trireme/net/tcp/tcp.cc": '#include "trireme/net/transport.h"\nauto s = "sleep(1)";',
            "trireme/net/net_test.cc": '#include "trireme/testing/run_ranks.h"\nwaiter->sleep(second);',
            "trireme/testing/run_ranks.h": '#include "trireme/net/transport.h"',
            "trireme/observe/log.cc": "#include <grpcpp/grpcpp.h>",
            "trireme/tensor/t.cc": '#include <ATen/ATen.h>\n#include "trireme/base/clock.h"',
            "trireme/layers/tensor/a.cc": '#include "trireme/models/block.h"',
            "trireme/models/block.h": "#include <ATen/core/Tensor.h>",
            "trireme/job.h": '#include "trireme/net/transport.h"',
            "trireme/trireme.h": '#include "trireme/models/block.h"',
            "examples/x/main.cc": '#include <torch/torch.h>\n#include "trireme/trireme.h"',
            "trireme/models/CMakeLists.txt": "trireme_module(models LIBTORCH DEPS base tensor LIBRARIES z)",
        }), [])

    def test_an_include_goes_only_down(self):
        self.assert_refused({"trireme/base/a.h": '#include "trireme/net/transport.h"'},
                            "trireme/base/a.h:1", "base (floor 0) may not include net")

    def test_an_include_by_a_relative_path_is_one_as_well(self):
        self.assert_refused({"trireme/base/a.h": '#include "../net/transport.h"', "trireme/net/transport.h": ""},
                            "trireme/base/a.h:1", "base (floor 0) may not include net")
        self.assert_refused({"trireme/net/shm/a.cc": '#include "../tcp/b.h"', "trireme/net/tcp/b.h": ""},
                            "net/shm", "net/tcp")

    def test_files_of_one_name_in_two_folders_are_two(self):
        files = {"trireme/net/a.cc": '#include "trireme/base/a.h"\n#include "b.h"', "trireme/net/b.h": "",
                 "trireme/base/a.h": '#include "b.h"', "trireme/base/b.h": "#include <c10/util/Half.h>"}
        self.assertIn("trireme/net/a.cc: net is without LibTorch but sees "
                      "trireme/base/a.h > trireme/base/b.h > c10/util/Half.h", self.violations(files))

    def test_a_sub_folder_may_be_a_module_of_its_own(self):
        layers = LAYERS + "7 job/torch torch: base job tensor\n"
        good = {"trireme/job/torch/t.cc": '#include "trireme/job/a.h"\n#include <ATen/ATen.h>',
                "trireme/job/sub/b.cc": '#include "trireme/job/a.h"',
                "trireme/job/torch/CMakeLists.txt": "trireme_module(job_torch LIBTORCH DEPS job)"}
        self.assertEqual(self.violations(good, layers), [])
        self.assert_refused({"trireme/job/a.cc": '#include "trireme/job/torch/t.h"'},
                            "trireme/job/a.cc:1", "may not include job/torch", layers=layers)
        self.assert_refused({"trireme/job/a.cc": "#include <ATen/ATen.h>"}, "without LibTorch",
                            layers=layers)
        self.assert_refused({"trireme/job/torch/CMakeLists.txt": "trireme_module(job_torch DEPS job)"},
                            "LIBTORCH", "differ", layers=layers)

    def test_the_same_floor_is_not_included_unless_listed(self):
        self.assert_refused({"trireme/job/a.cc": '\n#include "trireme/tensor/t.h"'},
                            "trireme/job/a.cc:2", "may not include tensor")

    def test_a_lower_floor_that_is_not_listed_is_refused(self):
        self.assert_refused({"trireme/tensor/a.cc": '#include "trireme/net/n.h"'}, "may not include net")

    def test_only_tests_include_testing(self):
        self.assert_refused({"trireme/net/a.cc": '#include "trireme/testing/run_ranks.h"'}, "testing")
        self.assert_refused({"trireme/models/a.cc": '#include "trireme/testing/device/d.h"'}, "testing/device")

    def test_tests_include_modules_below_testing(self):
        self.assertEqual(self.violations({
            "trireme/models/a_test.cc": '#include "trireme/testing/device/d.h"',
            "trireme/testing/device/d.h": "#include <ATen/core/Tensor.h>"}), [])

    def test_an_unknown_module_is_named(self):
        self.assert_refused({"trireme/extra/a.cc": ""}, "extra is not in layers.txt")

    def test_siblings_do_not_see_one_another(self):
        self.assert_refused({"trireme/net/shm/a.cc": '#include "trireme/net/tcp/b.h"'}, "net/shm", "net/tcp")

    def test_siblings_do_not_see_one_another_through_a_header_above(self):
        self.assert_refused({"trireme/net/shm/a.cc": '#include "trireme/net/all.h"',
                             "trireme/net/all.h": '#include "trireme/net/tcp/b.h"'},
                            "trireme/net/all.h > trireme/net/tcp/b.h")

    def test_a_module_without_the_mark_sees_no_libtorch(self):
        self.assert_refused({"trireme/net/a.cc": "#include <c10/util/Half.h>"}, "without LibTorch")

    def test_libtorch_is_found_through_our_own_headers(self):
        found = self.violations({"trireme/base/a.h": "#include <ATen/core/Tensor.h>",
                                 "trireme/net/b.cc": '#include "trireme/base/a.h"'})
        self.assertEqual(len(found), 2, found)
        self.assertIn("trireme/base/a.h > ATen/core/Tensor.h", found[1])

    def test_the_public_job_header_sees_no_libtorch(self):
        found = self.violations({"trireme/tensor/t.h": "#include <ATen/core/Tensor.h>",
                                 "trireme/job.h": '#include "trireme/tensor/t.h"'})
        self.assertEqual(len(found), 1, found)
        self.assertIn("job.h is without LibTorch", found[0])

    def test_torch_torch_h_stands_in_examples_alone(self):
        self.assert_refused({"trireme/models/a.cc": "#include <torch/torch.h>"}, "torch/torch.h")

    def test_grpc_and_libtorch_do_not_meet(self):
        self.assert_refused({"trireme/tensor/a.cc": "#include <grpcpp/grpcpp.h>\n#include <ATen/ATen.h>"},
                            "together with grpcpp/grpcpp.h")

    def test_grpc_and_libtorch_do_not_meet_through_a_header(self):
        self.assert_refused({"trireme/base/rpc.h": "#include <grpcpp/grpcpp.h>",
                             "trireme/tensor/a.cc": '#include "trireme/base/rpc.h"\n#include <ATen/ATen.h>'},
                            "together with", "trireme/base/rpc.h > grpcpp/grpcpp.h")

    def test_waiting_goes_through_the_waiter(self):
        for code in ("std::condition_variable ready;", "std::this_thread::sleep_for(x);", "::sleep(1);",
                     "auto now = std::chrono::steady_clock::now();"):
            self.assert_refused({"trireme/net/a.cc": "\n" + code}, "trireme/net/a.cc:2", "base::Waiter")

    def test_waiting_goes_through_the_waiter_also_above_the_layers(self):
        self.assert_refused({"trireme/layers/a.cc": "void f() { sleep(1); }\n"}, "sleep", "floor 11",
                            layers=LAYERS.replace("7 layers", "11 layers"))

    def test_callers_of_backends_name_none(self):
        self.assert_refused({"trireme/comm/engine.h": "class GpuGroup;\n"}, "engine.h:1", "Gpu", "Backend",
                            layers=LAYERS + "3 comm: base\n")

    def test_cmake_deps_stay_within_the_law(self):
        self.assert_refused({"trireme/base/CMakeLists.txt": "trireme_module(base DEPS net)"}, "DEPS names net")

    def test_cmake_and_the_mark_agree(self):
        self.assert_refused({"trireme/net/CMakeLists.txt": "trireme_module(net LIBTORCH DEPS base)"}, "LIBTORCH")

    def test_examples_see_the_public_face_only(self):
        self.assert_refused({"examples/x/main.cc": '#include "trireme/net/transport.h"'}, "trireme/trireme.h")

    def test_no_test_skips_itself(self):
        self.assert_refused({"trireme/net/a_test.cc": "TEST(A, B) { GTEST" "_SKIP(); }"}, "GTEST" "_SKIP")

    def test_layers_txt_itself_only_goes_down(self):
        self.assert_refused({}, "lies above", layers="0 base: net\n1 net:\n")

    def test_layers_txt_has_no_circle_on_one_floor(self):
        found = self.violations({}, layers="3 a: b\n3 b: a\n")
        self.assertEqual(len(found), 2, found)

    def test_layers_txt_keeps_libtorch_out_of_modules_without_it(self):
        self.assert_refused({}, "without LibTorch", layers="1 tensor torch:\n2 net: tensor\n")


if __name__ == "__main__":
    unittest.main()

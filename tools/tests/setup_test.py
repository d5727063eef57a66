"""The decisions of tools/setup.py, fed with made-up answers of dpkg-query and pip."""
import contextlib
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import build  # noqa: E402
import setup  # noqa: E402


def report(*names):
    """As `pip install --dry-run --report` writes it, with the fields that are read."""
    return {"install": [{"metadata": {"name": name, "version": "1"},
                         "download_info": {"url": f"https://index.invalid/{name}.whl"}} for name in names]}


PLAIN = report("torch", "filelock", "sympy")
CUDA = report("torch", "nvidia_cublas", "nvidia-cudnn-cu13", "cuda-toolkit", "triton", "filelock")


class Packages(unittest.TestCase):
    def test_the_list_is_the_first_words(self):
        self.assertEqual(setup.wanted_packages("# list\ng++   compiler\n\ncmake # why\n"), ["g++", "cmake"])

    def test_what_tests_and_soak_alone_need_is_not_installed_for_others(self):
        text = "g++ compiler\n[test]\nzsh completion\n[soak]\nclang fuzzers\n"
        self.assertEqual(setup.wanted_packages(text), ["g++"])
        self.assertEqual(setup.wanted_packages(text, ["test"]), ["g++", "zsh"])
        self.assertEqual(setup.wanted_packages(text, ["test", "soak"]), ["g++", "zsh", "clang"])

    def test_the_list_in_the_tree_names_what_the_build_calls(self):
        wanted = setup.wanted_packages((setup.ROOT / "tools" / "debian-packages.txt").read_text())
        for name in ("g++", "cmake", "ninja-build", "ccache", "python3-venv", "libgrpc++-dev"):
            self.assertIn(name, wanted)
        self.assertEqual(len(wanted), len(set(wanted)))

    def test_only_whole_packages_count(self):
        self.assertEqual(setup.missing_packages(["a", "b", "c", "d"], "a ii \nb rc \nc:amd64 ii \n"),
                         ["b", "d"])

    def test_root_needs_no_sudo(self):
        update, install = setup.apt_commands(["a"], is_root=True, has_sudo=False)
        self.assertEqual(update, ["apt-get", "update"])
        self.assertEqual(install[0], "apt-get")
        self.assertEqual(install[-1], "a")

    def test_others_use_sudo(self):
        for command in setup.apt_commands(["a"], is_root=False, has_sudo=True):
            self.assertEqual(command[0], "sudo")

    def test_without_either_the_exact_command_is_printed_and_nothing_is_run(self):
        self.assertIsNone(setup.apt_commands(["a"], is_root=False, has_sudo=False))
        with mock.patch.object(setup, "query_dpkg", return_value=""), \
                mock.patch.object(setup.os, "geteuid", return_value=1000), \
                mock.patch.object(setup, "sudo_works", return_value=False), \
                mock.patch.object(setup.shutil, "which", return_value="/usr/bin/dpkg-query"), \
                mock.patch.object(setup.subprocess, "run") as run:
            with self.assertRaisesRegex(setup.SetupError, r"sudo apt-get install -y .* g\+\+ cmake"):
                setup.install_packages()
            run.assert_not_called()

    def test_nothing_missing_asks_dpkg_once_and_nothing_else(self):
        wanted = setup.wanted_packages((setup.ROOT / "tools" / "debian-packages.txt").read_text())
        answer = "".join(f"{name} ii \n" for name in wanted)
        with mock.patch.object(setup.shutil, "which", return_value="/usr/bin/dpkg-query"), \
                mock.patch.object(setup.subprocess, "run") as run:
            run.return_value.stdout = answer
            setup.install_packages()
            self.assertEqual(run.call_count, 1)
            self.assertEqual(run.call_args.args[0][0], "dpkg-query")


    def setUp(self):
        self.locks = []

    def install(self, *answers, update=0):
        """The commands that are run where dpkg-query gives these answers ("" or ALL) and apt-get update this code."""
        wanted = setup.wanted_packages((setup.ROOT / "tools" / "debian-packages.txt").read_text())
        there = "".join(f"{name} ii \n" for name in wanted)
        with mock.patch.object(setup, "query_dpkg", side_effect=[there if one else "" for one in answers]), \
                mock.patch.object(setup.os, "geteuid", return_value=0), \
                mock.patch.object(setup.shutil, "which", return_value="/usr/bin/dpkg-query"), \
                mock.patch.object(setup, "configure_again"), mock.patch.object(setup, "say"), \
                mock.patch.object(setup, "lock") as lock, mock.patch.object(setup.subprocess, "run") as run:
            lock.side_effect = lambda *words: contextlib.nullcontext(self.locks.append(words))
            run.side_effect = lambda command, **_: mock.Mock(returncode=update if "update" in command else 0)
            setup.install_packages()
            return [call.args[0][1] for call in run.call_args_list]

    def test_packages_come_from_the_lists_that_are_here_where_new_ones_cannot_be_had(self):
        self.assertEqual(self.install(False, False, True), ["update", "install"])
        self.assertEqual(self.install(False, False, True, update=100), ["update", "install"])

    def test_what_another_set_up_has_installed_meanwhile_is_not_installed_again(self):
        self.assertEqual(self.install(False, True, True), [])
        self.assertEqual(self.locks, [("/usr/bin/dpkg-query", "Another set-up installs Debian packages; waiting for it.", "r")])


class Wheel(unittest.TestCase):
    def choose(self, what, allow_cuda=False, index=True):
        return setup.choose_wheel(what, allow_cuda, lambda: index, lambda _: "2.6 GB to download")

    def test_a_plain_wheel_is_taken_as_it_comes(self):
        self.assertEqual(self.choose(PLAIN, index=False), [])

    def test_cuda_packages_are_seen_under_any_spelling(self):
        self.assertEqual(setup.cuda_packages(CUDA),
                         ["cuda-toolkit", "nvidia-cublas", "nvidia-cudnn-cu13", "triton"])
        self.assertEqual(setup.cuda_packages(PLAIN), [])

    def test_with_cuda_the_cpu_index_is_taken(self):
        self.assertEqual(self.choose(CUDA), ["--index-url", setup.CPU_INDEX])

    def test_without_the_cpu_index_it_stops_and_says_the_size(self):
        with self.assertRaisesRegex(setup.SetupError, r"2\.6 GB to download.*\n.*make train TORCH=cuda"):
            self.choose(CUDA, index=False)

    def test_torch_cuda_goes_on(self):
        self.assertEqual(self.choose(CUDA, allow_cuda=True, index=False), [])

    def test_sizes_in_words(self):
        self.assertEqual(setup.describe_bytes(2_600_000_000, 0), "2.6 GB to download")
        self.assertEqual(setup.describe_bytes(2_600_000_000, 1), "at least 2.6 GB to download")
        self.assertEqual(setup.describe_bytes(0, 5), setup.CUDA_SIZE_GUESS)


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)

    def libtorch(self, name):
        folder = self.root / name / "share" / "cmake" / "Torch"
        folder.mkdir(parents=True)
        (folder / "TorchConfig.cmake").touch()
        return folder


class UsersTorch(Folder):
    def test_torch_dir_wins(self):
        first, second = self.libtorch("first"), self.libtorch("second")
        environment = {"TORCH_DIR": str(self.root / "first"), "Torch_DIR": str(second)}
        self.assertEqual(setup.torch_of_the_user(environment), first)

    def test_a_wrong_torch_dir_is_named(self):
        with self.assertRaisesRegex(setup.SetupError, "TORCH_DIR=/nowhere"):
            setup.torch_of_the_user({"TORCH_DIR": "/nowhere"})

    def test_cmakes_own_variables_are_heard(self):
        folder = self.libtorch("mine")
        self.assertEqual(setup.torch_of_the_user({"Torch_DIR": str(folder)}), folder)
        paths = f"/nowhere;{self.root / 'mine'}"
        self.assertEqual(setup.torch_of_the_user({"CMAKE_PREFIX_PATH": paths}), folder)
        self.assertEqual(setup.torch_of_the_user({"CMAKE_PREFIX_PATH": paths.replace(";", ":")}), folder)

    def test_none_named(self):
        self.assertIsNone(setup.torch_of_the_user({"CMAKE_PREFIX_PATH": "/nowhere"}))


class Environment(Folder):
    def whole(self):
        config = self.libtorch(".venv/torch")
        venv = setup.Venv(self.root / ".venv")
        venv.mark.touch()
        self.whole_stamp(venv, config)
        return venv, config

    def whole_stamp(self, venv, config):
        venv.stamp.write_text(json.dumps({"torch": setup.TORCH, "config": str(config)}))

    def test_a_whole_one_is_used_as_it_is(self):
        venv, config = self.whole()
        self.assertEqual(venv.torch(), config)

    def test_cuda_is_taken_anew_where_the_wheel_is_for_the_cpu_alone(self):
        venv, config = self.whole()
        self.assertIsNone(venv.torch(wants_cuda=True))
        venv.stamp.write_text(json.dumps({"torch": setup.TORCH, "config": str(config), "cuda": True}))
        self.assertEqual(venv.torch(wants_cuda=True), config, "asked for, and there is no other here")
        self.whole_stamp(venv, config)
        (config.parents[2] / "lib").mkdir()
        (config.parents[2] / "lib" / "libtorch_cuda.so").touch()
        self.assertEqual(venv.torch(wants_cuda=True), config)
        self.assertEqual(venv.torch(), config)

    def test_one_without_its_stamp_is_made_anew(self):
        venv, _ = self.whole()
        venv.stamp.unlink()
        self.assertIsNone(venv.torch())
        (venv.folder / "half-installed").touch()
        with mock.patch.object(setup.subprocess, "run") as run:
            run.return_value.returncode = 0
            venv.create()
        self.assertFalse((venv.folder / "half-installed").exists())
        self.assertTrue(venv.mark.exists())

    def test_one_whose_removal_was_interrupted_is_ours_and_not_whole(self):
        venv, _ = self.whole()
        with mock.patch.object(setup.shutil, "rmtree", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            venv.create()
        venv.check_ours()
        self.assertIsNone(venv.torch())

    def test_one_that_cannot_be_removed_stops_with_a_sentence(self):
        venv, _ = self.whole()
        with mock.patch.object(setup.shutil, "rmtree", side_effect=PermissionError(13, "Permission denied", "torch")), \
                self.assertRaisesRegex(setup.SetupError, "cannot be emptied: .*Permission denied.* Remove it yourself"):
            venv.create()

    def test_a_torn_stamp_another_version_or_a_lost_file_do_not_count(self):
        venv, config = self.whole()
        text = venv.stamp.read_text()
        venv.stamp.write_text(text[:20])
        self.assertIsNone(venv.torch())
        venv.stamp.write_text(text.replace(setup.TORCH, "torch==1.0"))
        self.assertIsNone(venv.torch())
        venv.stamp.write_text(text)
        (config / "TorchConfig.cmake").unlink()
        self.assertIsNone(venv.torch())

    def test_the_users_own_is_not_touched(self):
        folder = self.root / ".venv"
        folder.mkdir()
        (folder / "pyvenv.cfg").touch()
        with self.assertRaisesRegex(setup.SetupError, "not made by this set-up"):
            setup.Venv(folder).check_ours()

    def test_an_empty_folder_of_an_interrupted_set_up_is_ours(self):
        (self.root / ".venv").mkdir()
        setup.Venv(self.root / ".venv").check_ours()

    def test_the_next_python_is_tried_where_one_cannot_make_it(self):
        venv = setup.Venv(self.root / ".venv")
        answers = {"/broken/python3": 1, "/usr/bin/python3": 0}

        def run(command, **_):
            return mock.Mock(returncode=answers.get(command[0], 0))

        with mock.patch.object(setup.subprocess, "run", side_effect=run) as calls, \
                mock.patch.object(setup.shutil, "which", return_value="/broken/python3"), \
                mock.patch.object(setup.os, "access", return_value=True):
            venv.create()
        self.assertEqual([call.args[0][0] for call in calls.call_args_list][:2],
                         ["/broken/python3", "/usr/bin/python3"])


class Commit(unittest.TestCase):
    def test_a_tree_without_git_has_none(self):
        with mock.patch.dict(setup.os.environ, {"PATH": ""}):
            self.assertEqual(setup.tree_commit(), "")


class Lock(unittest.TestCase):
    def test_one_has_it_at_a_time(self):
        held = setup.lock("Makefile", "")
        # Another process waits, and says so.
        waits = setup.subprocess.Popen([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(setup.ROOT / 'tools')!r}); "
                                        "import setup; setup.lock('Makefile', 'busy'); print('got it')"],
                                       stdout=setup.subprocess.PIPE, stderr=setup.subprocess.PIPE, text=True)
        self.assertEqual(waits.stderr.readline(), "busy\n")
        held.close()
        self.assertEqual(waits.communicate()[0], "got it\n")


class Modules(Folder):
    def configured_again(self, code):
        """Whether the build folder is configured again after pip has ended with `code`."""
        stamp = self.root / "build" / "trireme-configured.json"
        stamp.parent.mkdir(exist_ok=True)
        stamp.touch()
        with mock.patch.object(setup, "ROOT", self.root), \
                mock.patch.object(setup.Venv, "torch", return_value=self.root), \
                mock.patch.object(setup.subprocess, "run") as run, \
                mock.patch.object(setup.Venv, "pip", return_value=code):
            run.return_value.returncode = 1   # the modules are not there
            setup.install_test_modules()
        return not stamp.exists()

    def test_the_build_is_configured_again_only_where_they_have_come(self):
        self.assertTrue(self.configured_again(0))
        self.assertFalse(self.configured_again(1))


class Configure(Folder):
    def run_configure(self, folder, options):
        with mock.patch.object(build, "run") as run, \
                mock.patch.object(build, "ROOT", self.root):
            build.configure(folder, pathlib.Path("/torch"), options)
            return run.call_args.args[0] if run.called else None

    def test_once_then_only_when_its_options_change(self):
        folder = self.root / "build"
        folder.mkdir()
        self.assertIsNotNone(self.run_configure(folder, []))
        (folder / "build.ninja").touch()
        (folder / "CMakeCache.txt").touch()
        self.assertIsNone(self.run_configure(folder, []))
        self.assertIn("--fresh", self.run_configure(folder, ["A=1"]))
        self.assertIsNone(self.run_configure(folder, ["A=1"]))
        for variable in ("CXX", "CXXFLAGS"):
            with mock.patch.dict(build.os.environ, {variable: "another"}):
                self.assertIsNotNone(self.run_configure(folder, ["A=1"]))

    def test_again_when_a_default_changes_which_the_cache_would_keep(self):
        folder, cmake = self.root / "build", self.root / "cmake"
        folder.mkdir()
        cmake.mkdir()
        (cmake / "a.cmake").write_text('set(BATCH 16 CACHE STRING "Sources")\noption(PCH "One (a floor)" ON)\n')
        with mock.patch.object(build, "ROOT", self.root):
            self.assertEqual(build.defaults(), ["BATCH 16", "PCH ON"])
        self.run_configure(folder, [])
        (folder / "build.ninja").touch()
        self.assertIsNone(self.run_configure(folder, []))
        (cmake / "a.cmake").write_text('set(BATCH 40 CACHE STRING "Sources")\n')
        (folder / "CMakeCache.txt").touch()
        self.assertIn("--fresh", self.run_configure(folder, []))

    def test_a_libtorch_that_was_replaced_in_its_folder_is_built_for_anew(self):
        folder, torch = self.root / "build", self.libtorch("mine")
        folder.mkdir()
        for version, expected in (("2.13.0", ["cmake"]), ("2.13.0", []), ("2.14.0", ["ninja", "cmake"])):
            (torch / "TorchConfigVersion.cmake").write_text(f'set(PACKAGE_VERSION "{version}")\n')
            with mock.patch.object(build, "run") as run, mock.patch.object(build, "ROOT", self.root):
                build.configure(folder, torch, [])
            self.assertEqual([call.args[0][0] for call in run.call_args_list], expected)
            (folder / "build.ninja").touch()

    def test_a_folder_outside_the_tree_is_configured_too(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNotNone(self.run_configure(pathlib.Path(folder), []))

    def test_an_interrupted_one_is_run_again(self):
        folder = self.root / "build"
        folder.mkdir()
        with mock.patch.object(build, "run", side_effect=SystemExit), \
                mock.patch.object(build, "ROOT", self.root), self.assertRaises(SystemExit):
            build.configure(folder, None, [])
        (folder / "build.ninja").touch()
        self.assertIsNotNone(self.run_configure(folder, []))


if __name__ == "__main__":
    unittest.main()

"""The training that tests of whole programs run: a small GPT on 2,000 lines of text, made up."""
import contextlib
import os
import pathlib

CONFIG = """[data]
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
sample_bytes = 20
validate_sequences = 8
validate_every = 0
"""


def write(folder, name="tiny.toml", more=""):
    """Writes the configuration `name` into `folder`, and its data. `more`: keys of [train], then other tables."""
    data = folder / "data.txt"
    data.write_text("".join(f"line {i * 7919 % 1000} of it\n" for i in range(2000)))
    (folder / name).write_text(CONFIG.format(data=data) + more)


def cache(program):
    """The cache folder (XDG_CACHE_HOME) of the build of `program`, whose calibrations are believed from here on."""
    return believed(pathlib.Path(program).parent.parent / "cache")


def believed(folder):
    """The same for any cache folder. Beside other tests every program would measure this machine again, for half a
    second."""
    folder = pathlib.Path(folder)
    for file in folder.glob("trireme/*.txt"):
        with contextlib.suppress(FileNotFoundError):
            text = file.read_text()
            if text.startswith("disturbed: "):
                own = file.with_name(f"{file.name}.believed.{os.getpid()}")   # others read the file meanwhile
                own.write_text(text.removeprefix("disturbed: "))
                own.rename(file)
    return str(folder)

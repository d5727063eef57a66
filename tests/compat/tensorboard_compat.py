"""Reads with Python's tensorboard what TensorBoardWriter wrote: tensorboard_compat.py TOOL"""

import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        events = EventAccumulator(folder, size_guidance={"scalars": 0})
        events.Reload()
        assert sorted(events.Tags()["scalars"]) == ["loss/train", "loss/validation"], events.Tags()
        train = {one.step: one.value for one in events.Scalars("loss/train")}
        # The second file starts again at step 151 and replaces what the first said of that step and
        # later.
        assert sorted(train) == list(range(1, 161)), sorted(train)
        for step, value in train.items():
            wanted = 5 / step if step <= 150 else -step
            assert abs(value - wanted) <= 1e-6 * abs(wanted), (step, value)
        validation = [(one.step, one.value) for one in events.Scalars("loss/validation")]
        assert [step for step, _ in validation] == [50, 100, 150], validation
        assert all(one.wall_time > 1.6e9 for one in events.Scalars("loss/train"))
    print("tensorboard reads what was written")


if __name__ == "__main__":
    main()

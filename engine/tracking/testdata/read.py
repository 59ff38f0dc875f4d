"""Prints what TensorBoard reads from a folder: values of the reward and texts of samples, by step."""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
reward = {e.step: e.value for e in events.Scalars("trainer.tiny.policy/reward")}
texts = {
    e.step: e.tensor_proto.string_val[0].decode()
    for tag in events.Tags()["tensors"] if tag.startswith("samples/")
    for e in events.Tensors(tag)
}
print(json.dumps({"reward": reward, "texts": texts}))

"""REINFORCE in plain PyTorch on the bridge: all the code of a separate trainer."""

import argparse
import sys

import torch
from transformers import AutoModelForCausalLM

from recipe_sdk import Bridge
from recipe_sdk.dtypes import DTYPES


def token_logprobs(model, ids, temperature):
    """[L - 1] log-probabilities of ids[0, 1:]: the model's output at t - 1 predicts token t. This is the one shift."""
    logits = model(input_ids=ids.to(model.device)).logits[0, :-1].float() / temperature
    return logits.log_softmax(-1).gather(-1, ids[0, 1:, None].to(model.device)).squeeze(-1)


def main(bridge):
    path, own = bridge.block.model.path, {"learning_rate": 1e-2, "dtype": "float32", **bridge.settings}
    found = bridge.resume()
    torch.manual_seed(bridge.block.seed)
    model = AutoModelForCausalLM.from_pretrained(found.path if found else path, dtype=DTYPES[own["dtype"]])
    model.to(bridge.device)
    optimizer = torch.optim.AdamW(model.parameters(), own["learning_rate"], weight_decay=0.0)
    if found:
        optimizer.load_state_dict(torch.load(found.path / "optimizer.pt"))

    def save(folder):
        bridge.save_model(folder)
        torch.save(optimizer.state_dict(), folder / "optimizer.pt")

    bridge.attach(
        named=model.named_parameters, logprobs=lambda ids, t: token_logprobs(model, ids, t), save=save,
        storage=lambda: dict(model.named_parameters()), trained=model.dtype, ahead=True,
    )  # fmt: skip
    for batch in bridge.batches():
        loss = 0.0
        for row in batch.rows(tokens=1):  # one sequence per row
            t = row.index[1:]
            logprobs = token_logprobs(model, row.tokens, float(batch.temperature[row.sequences[0]]))
            part = -(batch.advantages[t].to(logprobs) * batch.trained[t].to(logprobs) * logprobs).sum()
            (part / batch.trained_total).backward()
            loss += float(part.detach()) / batch.trained_total
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        bridge.settle()
        optimizer.step()
        optimizer.zero_grad()
        bridge.stepped({"loss/total": loss, "grad_norm": float(norm)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    bridge, error = Bridge.open(parser.parse_args().config), None
    try:
        main(bridge)
    except Exception as e:
        error = e
    sys.exit(bridge.close(error))

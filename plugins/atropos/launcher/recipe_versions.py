"""Which policy version sampled which token of a group, from the answers that the rollout got.

A group says which versions sampled it (policy_version: [oldest, newest]). Where these are several, its sequences say
which token is whose in overrides[i].policy_versions. The environment does not know any of this: its sequences are found
again in the answers by their tokens, each of which begins with what was asked and goes on with what was answered.
"""

import json

HEADERS = ("X-Recipe-Policy-Version", "X-Recipe-Policy-Version-Max")


def stamp(headers):
    """The oldest and the newest version that may have sampled an answer, as far as its headers say."""
    return [int(value) for value in (headers.get(name, "") for name in HEADERS) if value.isdigit()]


class Answer:
    """One answer of a rollout, as the HTTP client has it; read when it is needed, which it seldom is."""

    def __init__(self, headers, answer=None, request=None):
        self.versions = stamp(headers)
        self.answer = answer  # of /generate; None: one that does not say which tokens it was asked with
        self.request = request

    def turns(self):
        """[(where the answer begins, all tokens, [(version, start, end)] from there)], one a completion"""
        text = getattr(self.answer, "_body", None)  # None until the environment has read it
        if not text or not self.versions:
            return []
        try:
            return self.read(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError):
            return []  # not an answer of the gateway's

    def read(self, reply):
        request = self.request if isinstance(self.request, dict) else {}
        if isinstance(reply, dict) and "token_ids" in reply:  # Atropos's shape
            prompt, outputs = reply["prompt_token_ids"], reply["token_ids"]
            spans = reply.get("policy_versions") or [None] * len(outputs)
        else:  # SGLang's
            completions = reply if isinstance(reply, list) else [reply]
            prompt, outputs = request["input_ids"], [c["output_ids"] for c in completions]
            spans = [c["meta_info"].get("policy_versions") for c in completions]
        oldest = min(self.versions)
        turns = []
        for output, known in zip(outputs, spans):
            list_of = [(s["version"], s["start"], s["end"]) for s in known or []] or [(oldest, 0, len(output))]
            turns.append((len(prompt), prompt + output, list_of))
        return turns


def of_sequence(tokens, turns):
    """[{version, start, end}] over the tokens of a sequence that are known to be sampled."""
    versions = [None] * len(tokens)
    for begin, whole, spans in turns:
        end = min(len(tokens), len(whole))  # an environment may have cut it
        if end <= begin or tokens[end - 1] != whole[end - 1] or tokens[:end] != whole[:end]:
            continue
        for version, start, stop in spans:
            for i in range(begin + start, min(begin + stop, end)):
                # Equal completions may be of several versions; staleness counts from the oldest.
                versions[i] = version if versions[i] is None else min(version, versions[i])
    found = []
    for i, version in enumerate(versions):
        if version is None:
            continue
        if found and found[-1]["end"] == i and found[-1]["version"] == version:
            found[-1]["end"] = i + 1
        else:
            found.append({"version": version, "start": i, "end": i + 1})
    return found


def mark(group, answers):
    """Say in a group which versions sampled it, and its tokens if there are several."""
    versions = [v for answer in answers for v in answer.versions]
    if not versions:
        return
    group.setdefault("policy_version", [min(versions), max(versions)])
    if min(versions) == max(versions):
        return
    sequences = group.get("tokens") or []
    turns = [turn for answer in answers for turn in answer.turns()]
    found = [of_sequence(list(tokens), turns) for tokens in sequences]
    given = group.get("overrides") or [{} for _ in sequences]
    if not any(found) or not isinstance(given, list) or len(given) != len(sequences):
        return
    group["overrides"] = [
        {"policy_versions": spans, **(own or {})} if spans else own for own, spans in zip(given, found)
    ]

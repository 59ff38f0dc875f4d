"""Groups whose tokens several policy versions sampled: their age is that of the oldest token."""

from recipe_sdk.testing import make_group


def test_the_oldest_token_of_a_group_counts(make, api):
    def batch(k):
        mixed, fresh = make_group(2 * k), make_group(2 * k + 1)
        mixed["policy_version"], fresh["policy_version"] = [4, 8], [7, 8]
        spans = [{"version": 4, "start": 2, "end": 3}, {"version": 8, "start": 3, "end": len(mixed["tokens"][0])}]
        mixed["overrides"] = [{"policy_versions": spans}] + [{}] * (len(mixed["tokens"]) - 1)
        return [mixed, fresh]

    w = make(api(batch=batch).url, steps=1, policy_version=8, data={"max_staleness": 2})()
    (m,) = w.metrics()
    assert m["staleness/histogram"] == {"4": 1, "1": 1}
    assert m["staleness/mixed_groups"] == 2
    assert m["staleness/dropped_groups"] == 1 and m["groups/count"] == 1

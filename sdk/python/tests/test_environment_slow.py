"""A call of an author's code that takes long is named before its time is over."""

import asyncio

from recipe_sdk.environment.slow import Slow


def test_a_call_that_takes_long_is_named() -> None:
    logged: list[str] = []
    told: list[str] = []

    async def scenario() -> None:
        slow = Slow(lambda level, text: logged.append(f"{level}: {text}"), told.append, 120.0, after=0.01)
        with slow.call("accuracy", lambda: "the completion '7'") as started:
            await asyncio.sleep(0.05)  # it waits for a free process
            assert not told
            started()
            with slow.call("accuracy", lambda: "the completion '8'") as other:
                other()
                await asyncio.sleep(0.2)
                assert told[-1] == "accuracy with the completion '7', and 1 more calls"
            assert told[-1] == "accuracy with the completion '7'"
        assert told[-1] == ""
        with slow.call("fast", lambda: "the completion '9'") as started:
            started()
        await asyncio.sleep(0.05)

    asyncio.run(scenario())
    assert logged == [
        "warn: accuracy with the completion '7' has not returned for 0.01 s; it is ended after score_timeout = 120 s",
        "warn: accuracy with the completion '8' has not returned for 0.01 s; it is ended after score_timeout = 120 s "
        "(2 such calls so far)",
    ]

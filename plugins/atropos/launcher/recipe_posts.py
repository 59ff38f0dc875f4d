"""What becomes of the posts of scored groups.

atroposlib writes one line to its log when a post fails, or none, and goes on: an environment whose every group is lost
looks busy and well. Each post is reported: "posted" with its number of groups, or "post-failed" with the cause.
"""

import asyncio
import contextvars
import functools
import inspect
import json

# (status, text) of the last answer to the post that this task makes; a list, which tasks that it starts share.
ANSWER = contextvars.ContextVar("answer", default=None)

# Answers of the trajectory API that say something of the group itself. Others, such as 503, may be given to any group.
REFUSALS = (400, 413, 422)

# Errors of clients of inference servers that say nothing of the environment, by name: it need not have these packages.
AWAY = {
    "APIConnectionError", "APITimeoutError", "InternalServerError", "RateLimitError", "ClientError", "TransportError"
}  # fmt: skip


class Posts:
    def __init__(self, events):
        self.events = events

    def failed(self, groups, error, away=False):
        self.events.write("post-failed", groups=groups, error=error, away=away)

    def install(self, base):
        """Watch the posts of base, atroposlib's BaseEnv. Where it sends in another way than is known here, nothing is
        changed."""
        send = getattr(base, "_send_scored_data_to_api", None)  # all attempts at one post
        if not inspect.iscoroutinefunction(send):
            return
        posts = self

        @functools.wraps(send)
        async def watched(env, scored_data, *args, **kwargs):
            groups = len(scored_data) if isinstance(scored_data, list) else 1
            answer = []
            token = ANSWER.set(answer)
            try:
                result = await send(env, scored_data, *args, **kwargs)
            except Exception as e:
                refused = answer[0] >= 400 if answer else False
                away = answer[0] not in REFUSALS if refused else is_away(e)
                posts.failed(groups, cause(e) + where_refused(answer), away)
                raise
            finally:
                ANSWER.reset(token)
            if answer and answer[0] >= 400:
                posts.failed(groups, "the trajectory API refused it" + where_refused(answer), answer[0] not in REFUSALS)
            else:
                posts.events.write("posted", groups=groups)
            return result

        base._send_scored_data_to_api = watched
        watch_requests()


def where_refused(answer):
    return f" (HTTP {answer[0]}: {answer[1]})" if answer and answer[0] >= 400 else ""


def watch_requests():
    import aiohttp

    request = aiohttp.ClientSession._request

    async def watched(session, method, url, **kwargs):
        reply = await request(session, method, url, **kwargs)
        answer = ANSWER.get()
        if answer is not None and method == "POST":
            text = ""
            if reply.status >= 400:
                # aiohttp keeps what was read: whoever asks for the text afterwards gets it.
                text = message(await reply.text(errors="replace"))
            answer[:] = [reply.status, text]
        return reply

    aiohttp.ClientSession._request = watched


def message(body):
    """The message in the body of an error response: the mistakes that FastAPI lists with their places, or the text."""
    try:
        detail = json.loads(body)["detail"]
        if not isinstance(detail, str):
            detail = "; ".join(".".join(map(str, d["loc"])) + ": " + d["msg"] for d in detail[:5])
    except (ValueError, KeyError, TypeError):
        detail = body
    return limited(detail or body)


def limited(text, most=2000):
    """A text in one line. A longer one ends after a sentence, or else after a word."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    head = text[:most]
    end = max(head.rfind(". "), head.rfind("; ")) + 1
    if end <= most // 2:
        end = max(head.rfind(" "), most // 2)
    return f"{head[:end]} … ({len(text) - end} more characters)"


def is_away(error):
    """Whether an error says that a server did not answer, and nothing of the environment."""
    error = behind(error)
    if isinstance(error, (ConnectionError, TimeoutError, asyncio.TimeoutError)):
        return True
    return any(c.__name__ in AWAY for c in type(error).__mro__)


def behind(error):
    """The first error behind a retry."""
    last = getattr(error, "last_attempt", None)
    return (last.exception() or error) if last is not None else error


def cause(error):
    """The first error behind a retry, in one line."""
    error = behind(error)
    return limited(f"{type(error).__name__}: {error}")


def misshapen(env, group):
    """Why atroposlib will drop a group without a message, or None."""
    if not isinstance(group, dict):
        kind = type(group).__name__
        return f"a {kind} was returned where a group (a dictionary with tokens, masks and scores) is expected"
    size = (group.get("group_overrides") or {}).get("group_size", env.config.group_size)
    tokens = group.get("tokens")
    if tokens is None:
        return "the group has no tokens"
    if len(tokens) != size:
        return f"the group has {len(tokens)} sequences and group_size is {size}"
    return None

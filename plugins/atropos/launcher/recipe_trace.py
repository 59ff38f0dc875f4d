"""The trace of each rollout, from its prompt to its post.

A rollout that is sampled is the first span of a trace. Its requests to inference and its post carry the header
traceparent (W3C Trace Context), from which the gateway and the trajectory API continue the trace.
"""

import contextvars
import os
import random
import secrets
import time
from urllib.parse import urlsplit

HEADER = "traceparent"

# The rollout of this task; tasks that it starts share it.
ROLLOUT = contextvars.ContextVar("rollout", default=None)


def ratio(environment=os.environ):
    """The part of the rollouts that is sampled; None: the run is not traced. See package sdk/trace."""
    if environment.get("OTEL_TRACES_SAMPLER") != "parentbased_traceidratio":
        return None
    try:
        return float(environment.get("OTEL_TRACES_SAMPLER_ARG", ""))
    except ValueError:
        return None


class Rollout:
    def __init__(self, sampled):
        self.trace, self.span = secrets.token_hex(16), secrets.token_hex(8)
        self.sampled, self.began = sampled, time.time()

    def header(self):
        return f"00-{self.trace}-{self.span}-{'01' if self.sampled else '00'}"


class Tracer:
    def __init__(self, events, settings):
        self.events = events
        self.ratio = ratio()
        urls = [settings.get("env", {}).get("rollout_server_url")]
        urls += [server.get("base_url") for server in settings.get("openai") or []]
        # Other servers, of a tool for one, are not told.
        self.servers = {urlsplit(url).netloc for url in urls if url}

    def begin(self):
        if self.ratio is not None:
            ROLLOUT.set(Rollout(random.random() < self.ratio))

    def end(self, groups=None, error=""):
        """End the rollout of this task, if it has not ended yet, with the group or groups that were made of it."""
        rollout = ROLLOUT.get()
        ROLLOUT.set(None)
        if rollout is None or not rollout.sampled:
            return
        made = [g for g in (groups if isinstance(groups, list) else [groups]) if isinstance(g, dict)]
        self.events.write(
            "span",
            trace_id=rollout.trace,
            span_id=rollout.span,
            seconds=time.time() - rollout.began,
            scores=[float(s) for g in made for s in g.get("scores") or []],
            lengths=[sum(1 for m in mask if m != -100) for g in made for mask in g.get("masks") or []],
            error=error,
        )

    def header_for(self, method, netloc):
        # What asks for health and status goes on after the rollout in which it was started.
        rollout = ROLLOUT.get()
        return rollout.header() if rollout and method == "POST" and netloc in self.servers else None

    def install(self):
        """Send the header with the requests of all HTTP clients that atroposlib and openai's client use."""
        if self.ratio is None:
            return
        import aiohttp

        request, tracer = aiohttp.ClientSession._request, self

        async def traced(session, method, url, **kwargs):
            header = tracer.header_for(method, urlsplit(str(url)).netloc)
            if header:
                kwargs["headers"] = {**dict(kwargs.get("headers") or {}), HEADER: header}
            return await request(session, method, url, **kwargs)

        aiohttp.ClientSession._request = traced

    def install_httpx(self, client):
        if self.ratio is None:
            return
        send, tracer = client.send, self

        async def traced(client, request, *args, **kwargs):
            header = tracer.header_for(request.method, request.url.netloc.decode())
            if header:
                request.headers[HEADER] = header
            return await send(client, request, *args, **kwargs)

        client.send = traced

"""Runs an unmodified atroposlib environment and reports to its supervisor.

usage: recipe_atropos.py EVENTS CONFIG.yaml (--script FILE | --module NAME) COMMAND [FLAG ...]

The environment is run as if it had been called directly: same arguments, same settings, same code. Around a few methods
of atroposlib's BaseEnv this adds what a supervisor needs and a log cannot give:
- settings that the environment's class does not know, or that did not take effect, are reported instead of ignored;
- registration, status polls, groups, evaluations and their numbers are written to EVENTS, one JSON object a line;
- groups say which policy versions sampled them, and their tokens, from what the gateway says with each answer;
- posts of groups carry a key (recipe_keys.py), so that one which is sent again is stored once;
- rollouts begin the traces of a run that is traced (recipe_trace.py);
- what becomes of each post is reported (recipe_posts.py), and chat templates give what atroposlib expects
  (recipe_transformers.py);
- SIGTERM ends the environment without losing a group that has been scored: no new rollouts, then what is being sent is
  sent;
- an environment whose steps are all queued stays connected instead of leaving, until it is told to.
"""

import asyncio
import contextvars
import difflib
import functools
import importlib
import json
import logging
import os
import runpy
import signal
import sys
import time

import recipe_posts
import recipe_trace
import recipe_versions
import yaml
from recipe_posts import cause, is_away, limited

# The answers that the rollout of this task got so far; tasks that it starts share the list.
ANSWERS = contextvars.ContextVar("answers", default=None)

NOT_AN_ENVIRONMENT = 64
BAD_SETTINGS = 65
SETTINGS_IGNORED = 66


class Events:
    """The file that the supervisor follows. A full disk must not stop rollouts."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def write(self, event, **fields):
        line = json.dumps({"event": event, "time": time.time(), **fields}, default=str)
        try:
            self.file.write(line + "\n")
        except OSError:
            pass


class Observer:
    """Wraps the methods of one environment class."""

    def __init__(self, events, settings):
        self.events = events
        self.settings = settings
        self.tracer = recipe_trace.Tracer(events, settings)
        self.rolling = False  # registered: from now on groups may be lost
        self.draining = False
        self.sending = set()
        self.empty = 0  # rollouts in a row that brought no group
        self.asked = 0  # answers that they got from inference
        self.failed = 0
        self.failing = 0  # in a row
        self.own = 0  # of those: not because a server was away
        self.complaint = LastError()
        self.posts = recipe_posts.Posts(events)
        self.sampled = 0.0
        self.polled = 0.0
        self.called = False

    def drain(self, *_):
        if self.draining or not self.rolling:
            os._exit(143)  # a second signal, or nothing has been scored yet
        self.draining = True
        self.events.write("draining", sending=len(self.sending))

    # Settings.

    def check_known(self, cls):
        """Stop when the recipe sets something that the environment's class does not declare; pydantic would ignore
        it."""
        config, servers = cls.config_init()
        known = list(type(config).model_fields)
        asked = self.settings.get("env", {})
        unknown = {k: difflib.get_close_matches(k, known, 1) for k in asked if k not in known}
        shape = "list" if isinstance(servers, list) else type(servers).__name__
        self.events.write("class", name=cls.__name__, config=type(config).__name__, fields=known, servers=shape)
        if unknown:
            self.events.write("unknown", fields=unknown, known=known)
            sys.exit(BAD_SETTINGS)

    def check_taken(self, env):
        """Report settings that the environment replaced by its own."""
        for name, wanted in self.settings.get("env", {}).items():
            got = getattr(env.config, name, None)
            got = getattr(got, "value", got)  # an enumeration
            if got != wanted:
                self.events.write("replaced", field=name, wanted=wanted, got=got)
        wanted = self.settings.get("openai") or []
        got = [getattr(s.config, "base_url", None) for s in env.server.servers if hasattr(s, "config")]
        if wanted and any(u != wanted[0]["base_url"] for u in got):
            # Rollouts would go to another server, or nowhere.
            self.events.write("ignored", wanted=wanted[0]["base_url"], got=got)
            sys.exit(SETTINGS_IGNORED)

    # What happens.

    def group(self, env, group):
        """Report a scored group. What an environment scores with may be anything; to observe it must not break it."""
        try:
            fault = recipe_posts.misshapen(env, group)
            if fault:
                self.posts.failed(1, f"{fault}: atroposlib drops it")
            else:
                self.scored(env, group)
        except Exception as e:
            self.events.write("odd-group", error=cause(e))

    def scored(self, env, group):
        scores = [float(s) for s in group.get("scores") or []]
        if not scores:
            return
        masks = group.get("masks") or []
        lengths = [sum(1 for m in mask if m != -100) for mask in masks]
        longest = max((len(t) for t in group.get("tokens") or []), default=0)
        limit = env.max_token_len if env.max_token_len > 0 else None
        self.events.write(
            "group",
            scores=scores,
            same=len(set(scores)) == 1 and env.config.ensure_scores_are_not_same,
            long=limit is not None and longest >= limit,
            lengths=lengths,
            step=env.curr_step,
        )
        now = time.time()
        if now - self.sampled < 1 or not masks:
            return
        self.sampled = now
        best = max(range(len(scores)), key=scores.__getitem__)
        tokens = group["tokens"][best]
        start = next((i for i, m in enumerate(masks[best]) if m != -100), len(tokens))
        self.events.write(
            "sample",
            prompt=env.tokenizer.decode(tokens[:start]),
            completion=env.tokenizer.decode(tokens[start:]),
            score=scores[best],
        )

    def install(self, base):
        observer, events = self, self.events
        original = {
            name: getattr(base, name)
            for name in (
                "_register_env",
                "get_status",
                "add_train_workers",
                "collect_trajectories",
                "handle_send_to_api",
                "evaluate_log",
                "wandb_log",
                "__init__",
            )
        }

        def wrap(name):
            def put(function):
                setattr(base, name, functools.wraps(original[name])(function))

            return put

        @wrap("__init__")
        def init(env, *args, **kwargs):
            original["__init__"](env, *args, **kwargs)
            observer.check_taken(env)
            events.write("made", name=env.name or type(env).__name__, group_size=env.config.group_size)
            # Methods that a subclass replaces are wrapped on the instance.
            for method in ("collect_trajectories", "postprocess_histories", "evaluate"):
                setattr(env, method, getattr(observer, "around_" + method)(env, getattr(env, method)))

        @wrap("_register_env")
        async def register(env):
            data = await original["_register_env"](env)
            events.write(
                "registered" if data.get("status") == "success" else "waiting",
                env_id=data.get("env_id"),
                name=data.get("wandb_name"),
            )
            return data

        @wrap("get_status")
        async def status(env):
            observer.rolling = True
            await original["get_status"](env)
            observer.poll(env)
            while observer.finished(env) and not observer.draining:
                await asyncio.sleep(0.5)
                await original["get_status"](env)
                observer.poll(env)
            if observer.draining:
                for worker in env.workers:
                    worker.cancel()
                if observer.sending:
                    await asyncio.wait(observer.sending)
                events.write("drained")
                raise SystemExit(0)

        @wrap("add_train_workers")
        async def add(env):
            if not observer.draining:
                await original["add_train_workers"](env)

        @wrap("handle_send_to_api")
        async def send(env, scored_data, item=None, *args, **kwargs):
            for group in scored_data if isinstance(scored_data, list) else [scored_data]:
                if group is None:
                    continue
                observer.group(env, group)
                if isinstance(group, dict):
                    recipe_versions.mark(group, ANSWERS.get() or [])
            # A worker may be canceled (a full queue, an evaluation, the end); what it has scored is still sent.
            task = asyncio.ensure_future(original["handle_send_to_api"](env, scored_data, item, *args, **kwargs))
            observer.sending.add(task)
            task.add_done_callback(observer.sending.discard)
            lost = ""
            try:
                return await asyncio.shield(task)
            except (
                Exception
            ) as e:  # before the post itself, which reports its own failures; atroposlib writes one line to its log
                observer.posts.failed(len(scored_data) if isinstance(scored_data, list) else 1, cause(e), is_away(e))
                lost = cause(e)
                raise
            finally:
                observer.tracer.end(scored_data, lost)

        @wrap("evaluate_log")
        async def evaluate_log(env, metrics, *args, **kwargs):
            events.write("evaluation", metrics=numbers(metrics), step=env.curr_step)
            return await original["evaluate_log"](env, metrics, *args, **kwargs)

        @wrap("wandb_log")
        async def wandb_log(env, wandb_metrics=None):
            found = numbers(wandb_metrics or {})
            if found:
                events.write("metrics", metrics=found, step=env.curr_step)
            return await original["wandb_log"](env, wandb_metrics)

        cli = base.cli.__func__

        def observed_cli(cls):
            observer.called = True
            observer.check_known(cls)
            return cli(cls)

        base.cli = classmethod(observed_cli)

    def rollout_failed(self, error, doing):
        """A rollout raised; atroposlib writes one line to its log and goes on."""
        self.failed += 1
        self.failing += 1
        self.own += not is_away(error)
        if self.failing & (self.failing - 1) == 0:
            self.events.write(
                "rollout-failed",
                rollouts=self.failed,
                in_a_row=self.failing,
                own=self.own,
                doing=doing,
                error=cause(error),
            )

    def around_collect_trajectories(self, env, method):
        async def collect(item):
            ANSWERS.set([])
            self.tracer.begin()
            try:
                result = await method(item)
            except Exception as e:
                self.tracer.end(error=cause(e))
                self.rollout_failed(e, "sampling")
                raise
            group = result[0] if isinstance(result, tuple) else result
            if not group:
                self.tracer.end()
            self.empty = 0 if group else self.empty + 1
            self.asked = 0 if group else self.asked + len(ANSWERS.get())
            if self.empty in (50, 500):
                self.events.write("empty", rollouts=self.empty, answers=self.asked, error=self.complaint.text)
            return result

        return collect

    def around_postprocess_histories(self, env, method):
        async def postprocess(trajectories):
            try:
                result = await method(trajectories)
            except Exception as e:
                self.tracer.end(error=cause(e))
                self.rollout_failed(e, "scoring")
                raise
            if result is None:
                self.tracer.end()
            self.failing = self.own = 0
            return result

        return postprocess

    def around_evaluate(self, env, method):
        async def evaluate(*args, **kwargs):
            self.events.write("evaluating", step=env.curr_step)
            try:
                return await method(*args, **kwargs)
            except Exception as e:  # atroposlib never looks at the task that evaluates, so its error would be lost
                self.events.write("evaluation-failed", step=env.curr_step, error=cause(e))
                raise
            finally:
                self.events.write("evaluated", step=env.curr_step)

        return evaluate

    def poll(self, env):
        now = time.time()
        if now - self.polled >= 2:
            self.polled = now
            self.events.write(
                "poll",
                step=env.status_dict.get("current_step"),
                queue=env.status_dict.get("queue_size"),
                workers=len(env.workers),
            )

    def finished(self, env):
        """Whether the environment would leave now: enough is queued for all of its steps."""
        queued = env.status_dict["queue_size"] * env.config.group_size // max(1, env.config.batch_size)
        return env.status_dict["current_step"] + queued > env.config.total_steps


class LastError:
    """Keeps the last error that a rollout has logged: where the environment catches an exception, that is all that is
    seen of it."""

    def __init__(self):
        self.text = ""

    def install(self):
        # Not a handler: the root logger has none until it is first used, and then prints only if it still has none.
        handle = logging.Logger.handle

        @functools.wraps(handle)
        def noted(logger, record):
            if record.levelno >= logging.ERROR and ANSWERS.get() is not None:
                self.note(record)
            return handle(logger, record)

        logging.Logger.handle = noted

    def note(self, record):
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += f": {cause(record.exc_info[1])}"
            self.text = limited(text)
        except Exception:
            pass  # a record that cannot be formatted


def note_answer(*answer):
    """Keep an answer with what it says of its versions."""
    answers = ANSWERS.get()
    if answers is not None:
        answers.append(recipe_versions.Answer(*answer))


def watch_answers(tracer):
    """Look at the headers of every answer, of all HTTP clients that atroposlib and the versions of openai's client
    use, and trace their requests."""
    import aiohttp

    request = aiohttp.ClientSession._request

    async def aiohttp_request(session, *args, **kwargs):
        answer = await request(session, *args, **kwargs)
        if answer.url.path.endswith("/generate"):
            note_answer(answer.headers, answer, kwargs.get("json"))
        else:
            note_answer(answer.headers)
        return answer

    aiohttp.ClientSession._request = aiohttp_request
    for name in ("httpx", "httpx2"):  # openai's client before and from version 3
        try:
            client = importlib.import_module(name).AsyncClient
        except (ImportError, AttributeError):
            continue
        watch_httpx(client)
        tracer.install_httpx(client)


def watch_httpx(client):
    send = client.send

    async def noted(client, *args, **kwargs):
        answer = await send(client, *args, **kwargs)
        note_answer(answer.headers)
        return answer

    client.send = noted


def numbers(metrics):
    out = {}
    for name, value in metrics.items():
        if isinstance(value, bool):
            continue
        try:
            out[name] = float(value)
        except (TypeError, ValueError):
            continue
    return out


def main():
    path, config, how, what, *arguments = sys.argv[1:]
    events = Events(path)
    with open(config) as f:
        settings = yaml.safe_load(f)
    # The folder to import from, which is the working directory; before it that of the script, as when it is called
    # directly.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if how == "--script":
        sys.path.insert(0, os.path.dirname(os.path.abspath(what)))

    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import recipe_hide
    import recipe_keys
    import recipe_transformers

    recipe_hide.install(settings)
    recipe_transformers.install()
    from atroposlib.envs.base import BaseEnv

    observer = Observer(events, settings)
    observer.install(BaseEnv)
    watch_answers(observer.tracer)
    observer.tracer.install()
    recipe_keys.install(BaseEnv)
    observer.posts.install(BaseEnv)
    observer.complaint.install()
    signal.signal(signal.SIGTERM, observer.drain)
    sys.argv = [what, arguments[0], "--config", config, *arguments[1:]]
    if how == "--script":
        runpy.run_path(what, run_name="__main__")
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=False)
    if not observer.called:
        events.write("no-environment")
        sys.exit(NOT_AN_ENVIRONMENT)


if __name__ == "__main__":
    main()

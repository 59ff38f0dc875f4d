"""Credentials stay out of what the environment writes: it knows the trajectory API by a URL with a token in it, which
the errors of HTTP clients quote, and its logs lie in the run directory."""

import sys


def secrets(settings):
    """The token in the trajectory API's URL and the keys of inference."""
    found = []
    url = (settings.get("env") or {}).get("rollout_server_url") or ""
    if "/t/" in url:
        found.append(url.split("/t/", 1)[1].split("/", 1)[0])
    found += [s.get("api_key") or "" for s in settings.get("openai") or []]
    return [s for s in found if len(s) >= 8]


class Hiding:
    """A text stream that writes <token> in place of secrets."""

    def __init__(self, stream, hidden):
        self._stream, self._hidden = stream, hidden

    def write(self, text):
        for secret in self._hidden:
            if secret in text:
                text = text.replace(secret, "<token>")
        return self._stream.write(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def install(settings):
    """From here on, what is written to stdout and stderr holds no secrets."""
    hidden = secrets(settings)
    if hidden:
        sys.stdout, sys.stderr = Hiding(sys.stdout, hidden), Hiding(sys.stderr, hidden)

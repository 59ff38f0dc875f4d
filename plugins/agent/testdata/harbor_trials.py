"""Runs task folders by Harbor's own package, with its own agents oracle and nop, and prints the rewards as JSON lines.

Harbor runs tasks in containers; there is none here. Sandbox is an environment of Harbor's interface over bubblewrap: it
copies what a Dockerfile's WORKDIR and COPY name, and runs commands in one folder tree. All else is Harbor's: reading
the folder, the agents, the verifier, the steps and their reward.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

WITHIN = 120  # seconds for one command


class Sandbox(BaseEnvironment):
    """A folder tree in which bubblewrap runs commands, with the programs of this machine."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.root = Path(self.trial_paths.trial_dir) / "root"
        self.workdir = PurePosixPath("/app")

    @staticmethod
    @override
    def type() -> str:
        return "bubblewrap-of-a-test"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @override
    def _validate_definition(self) -> None:
        if not (self.environment_dir / "Dockerfile").exists():
            raise FileNotFoundError(self.environment_dir / "Dockerfile")

    def host(self, path: str) -> Path:
        """Where a path of the sandbox is on this machine."""
        return self.root / str(PurePosixPath(path)).lstrip("/")

    @override
    async def start(self, force_build: bool) -> None:
        for line in (self.environment_dir / "Dockerfile").read_text().splitlines():
            match line.split():
                case ["WORKDIR", folder]:
                    self.workdir = self.workdir / folder
                case ["COPY", *sources, target] if not sources[0].startswith("--"):
                    for source in sources:
                        await self._copy(self.environment_dir / source, self.workdir / target)
        logs = ("/logs/agent", "/logs/verifier", "/logs/artifacts")
        for folder in (str(self.workdir), "/tmp", "/tests", "/solution", *logs):
            self.host(folder).mkdir(parents=True, exist_ok=True)

    async def _copy(self, source: Path, target: PurePosixPath) -> None:
        if source.is_dir():
            await self.upload_dir(source, str(target))
        else:
            await self.upload_file(source, str(target / source.name))

    @override
    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.root)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = self.host(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, target)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self.host(target_dir), dirs_exist_ok=True)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.host(source_path), target_path)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self.host(source_dir), target_dir, dirs_exist_ok=True)

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        argv = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
        for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib64"):
            if Path(folder).is_symlink():
                argv += ["--symlink", str(Path(folder).readlink()), folder]
            elif Path(folder).exists():
                argv += ["--ro-bind", folder, folder]
        for folder in sorted(self.root.iterdir()):
            argv += ["--bind", str(folder), "/" + folder.name]
        argv += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
        argv += ["--proc", "/proc", "--dev", "/dev", "--chdir", cwd or str(self.workdir)]
        for name, value in {"PATH": "/usr/bin:/bin", **self.task_env_config.env, **(env or {})}.items():
            argv += ["--setenv", name, value]
        process = await asyncio.create_subprocess_exec(
            *argv, "bash", "-c", command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec or WITHIN)
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)


async def reward(folder: Path, agent: str, trials: Path) -> dict[str, float] | None:
    """The rewards of a trial; None: it gave none."""
    config = TrialConfig(
        task=TaskConfig(path=folder),
        agent=AgentConfig(name=agent),
        environment=EnvironmentConfig(import_path="harbor_trials:Sandbox"),
        trials_dir=trials,
    )
    trial = await Trial.create(config)
    result = await trial.run()
    if result.exception_info is not None:
        print(result.exception_info.exception_message, file=sys.stderr)
    return result.verifier_result.rewards if result.verifier_result else None


async def main(trials: Path, folders: list[Path]) -> None:
    """Prints a line for each folder."""
    for folder in folders:
        found = {agent: await reward(folder, agent, trials) for agent in ("oracle", "nop")}
        print(json.dumps({"folder": str(folder), **found}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]]))

package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/plugins/agent/taskfolder"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
)

// How long scripts may run whose task sets no time.
const (
	testsWithin    = 10 * time.Minute
	setupWithin    = 10 * time.Minute
	solutionWithin = 10 * time.Minute
)

// Folders of a sandbox in which scripts run.
const (
	testsFolder    = "/tests"
	solutionFolder = "/solution"
	rewardFolder   = "/logs/verifier"
)

// stage is where the steps of one task are done: what the agent works in.
type stage struct {
	setting
	folder *taskfolder.Task
	place  *place
	mounts []taskfolder.Mount
	scene  scene
	said   string // the last lines of the tests that ran last
}

// room is what may be copied at once for a rollout.
func (s setting) room() *taskfolder.Room {
	return &taskfolder.Room{Bytes: gibibytes(s.Sandbox.Disk), Files: mostEntries}
}

// stage makes the folders that the agent works in.
func (s setting) stage(folder *taskfolder.Task, p *place) (*stage, error) {
	out := &stage{setting: s, folder: folder, place: p, mounts: folder.Mounts(filepath.Join(p.dir, "root")),
		scene: scene{dir: folder.Workdir, memory: folder.MemoryMB << 20}}
	if err := folder.Fill(out.mounts, s.room()); err != nil {
		return nil, err
	}
	for _, m := range out.mounts {
		out.scene.mounts = append(out.scene.mounts, sandbox.Mount{Host: m.Host, Inside: m.Inside, Writable: true})
	}
	for _, name := range []string{"agent", "artifacts"} {
		host := filepath.Join(p.dir, "logs", name)
		if err := os.MkdirAll(host, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder for a rollout: %w", err)
		}
		out.scene.mounts = append(out.scene.mounts, sandbox.Mount{Host: host, Inside: "/logs/" + name, Writable: true})
	}
	var err error
	out.scene.env, err = s.resolve(folder.Env)
	return out, err
}

// begin puts the files of a step where the agent starts.
func (s *stage) begin(ctx context.Context, b *box, env map[string]string, step taskfolder.Step) error {
	if err := s.folder.Put(step, s.mounts, s.room()); err != nil {
		return &environment.InfraFailed{Err: err}
	}
	if !step.Setup {
		return nil
	}
	has := s.scene
	has.noNetwork = !step.Agent.Network
	ended, err := s.script(ctx, b, env, has, taskScript{name: "setup", argv: []string{"/bin/bash",
		s.folder.Workdir + "/setup.sh"}, limit: setupWithin})
	if err != nil {
		return err
	}
	if ended.code == nil || *ended.code != 0 {
		return &environment.InfraFailed{Err: fmt.Errorf("setup.sh of step %s ended with %s; its last lines: %s", step.Name,
			ended.how, strings.TrimSpace(ended.tail))}
	}
	return nil
}

// judge runs the tests of a step where the agent has worked, whose processes have ended, and reads the rewards. The
// agent could not see the tests, and they have another home folder than it had.
func (s *stage) judge(ctx context.Context, b *box, env map[string]string, step taskfolder.Step) (map[string]float64,
	error) {
	rewards := filepath.Join(s.place.dir, "verifier")
	err := temporary.Remove(rewards) // of an earlier step
	if err == nil {
		err = os.Mkdir(rewards, 0o700)
	}
	if err != nil {
		return nil, &environment.InfraFailed{Err: fmt.Errorf("make a folder for the tests: %w", err)}
	}
	if err := s.tidy(ctx, b); err != nil {
		return nil, &environment.InfraFailed{Err: err}
	}
	has := s.scene
	if step.Fresh != nil {
		if has, err = s.fresh(step); err != nil {
			return nil, &environment.InfraFailed{Err: err}
		}
	}
	has.noNetwork = !step.Verifier.Network
	has.mounts = append(has.mounts[:len(has.mounts):len(has.mounts)],
		sandbox.Mount{Host: rewards, Inside: rewardFolder, Writable: true})
	limit := step.Verifier.Timeout
	if limit == 0 {
		limit = testsWithin
	}
	ended, err := s.script(ctx, b, env, has, taskScript{name: "tests", from: step.Tests, file: "test.sh",
		inside: testsFolder, own: step.Verifier.Env, limit: limit})
	if err != nil {
		return nil, err
	}
	if _, err := sandbox.Tidy(ctx, rewards, rewardFolder); err != nil {
		return nil, &environment.InfraFailed{Err: err}
	}
	s.said = strings.TrimSpace(ended.tail)
	out, err := taskfolder.Rewards(rewards)
	if ended.late {
		err = fmt.Errorf("the tests had not ended after %s", limit)
	}
	if err != nil {
		return nil, &environment.InfraFailed{Err: &inFolder{fmt.Errorf("%w (test.sh ended with %s; its last lines: %s)", err,
			ended.how, s.said), rewards}}
	}
	return out, nil
}

// tidy removes links that the agent has left which lead out of a folder: to the right answer, once the tests are there.
func (s *stage) tidy(ctx context.Context, b *box) error {
	ctx, cancel := context.WithTimeout(ctx, tidyWithin)
	defer cancel()
	removed := 0
	for _, m := range s.scene.mounts {
		n, err := sandbox.Tidy(ctx, m.Host, m.Inside)
		if err != nil {
			return err
		}
		removed += n
	}
	if removed > 0 {
		b.log("info", fmt.Sprintf("removed what an agent had left: %d links out of its folders, pipes or sockets", removed))
	}
	return nil
}

// fresh makes the folders of tests that do not run where the agent has worked, with what they get of it.
func (s *stage) fresh(step taskfolder.Step) (scene, error) {
	folder := filepath.Join(s.place.dir, "fresh")
	if err := temporary.Remove(folder); err != nil { // of an earlier step
		return scene{}, err
	}
	mounts, room := step.Fresh.Mounts(folder), s.room()
	if err := step.Fresh.Fill(mounts, room); err != nil {
		return scene{}, err
	}
	for _, name := range step.Artifacts {
		if err := taskfolder.Carry(name, s.mounts, mounts, room); err != nil {
			return scene{}, err
		}
	}
	out := scene{dir: step.Fresh.Workdir, memory: step.Fresh.MemoryMB << 20}
	for _, m := range mounts {
		out.mounts = append(out.mounts, sandbox.Mount{Host: m.Host, Inside: m.Inside, Writable: true})
	}
	out.mounts = append(out.mounts, sandbox.Mount{Host: filepath.Join(s.place.dir, "logs/artifacts"),
		Inside: "/logs/artifacts", Writable: true})
	var err error
	out.env, err = s.resolve(step.Fresh.Env)
	return out, err
}

// solve runs the solution of a step.
func (s *stage) solve(ctx context.Context, b *box, env map[string]string, step taskfolder.Step) error {
	limit := step.Agent.Timeout
	if limit == 0 {
		limit = solutionWithin
	}
	has := s.scene
	has.noNetwork = !step.Agent.Network
	ended, err := s.script(ctx, b, env, has, taskScript{name: "solution", from: []string{step.SolutionFrom},
		file: "solve.sh", inside: solutionFolder, own: step.Solution.Env, limit: limit})
	if err == nil && ended.late {
		err = fmt.Errorf("the solution had not ended after %s", limit)
	}
	return err
}

// taskScript is a script of a task: its tests, its solution, or what sets up a step.
type taskScript struct {
	name   string
	argv   []string // empty: the file in the folder inside
	from   []string // folders of the task that are copied to inside, one over the other
	file   string
	inside string // a folder of the sandbox
	own    []taskfolder.Variable
	limit  time.Duration
}

// script runs a script in a sandbox, without a way to the model, with an empty home folder.
func (s *stage) script(ctx context.Context, b *box, env map[string]string, has scene, of taskScript) (*ended, error) {
	made := filepath.Join(s.place.dir, "of-"+of.name)
	home := filepath.Join(made, "home")
	err := temporary.Remove(made) // of an earlier step
	if err == nil {
		err = os.MkdirAll(home, 0o700)
	}
	folder, room := filepath.Join(made, "files"), s.room()
	for _, from := range of.from {
		if err == nil {
			err = s.folder.CopyFolder(from, folder, room)
		}
	}
	if err == nil && of.file != "" {
		err = os.Chmod(filepath.Join(folder, of.file), 0o700)
	}
	if err != nil {
		return nil, &environment.InfraFailed{Err: fmt.Errorf("copy the %s: %w", of.name, err)}
	}
	own, err := s.resolve(of.own)
	if err != nil {
		return nil, err
	}
	spec := b.specOf(has, of.limit)
	spec.Gateway = sandbox.Gateway{}
	spec.Argv = of.argv
	if of.file != "" {
		spec.Argv = []string{"/bin/sh", "-c", of.inside + "/" + of.file}
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Host: folder, Inside: of.inside, Writable: true})
	}
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Host: home, Inside: (&place{rollout}).home(), Writable: true})
	return b.start(ctx, of.name, s.place, spec, s.scriptEnv(env, has.env, own))
}

// scriptEnv are the variables of a script: those of the machine and the task, without what leads to the model and
// without the block's own, which may be the agent's secrets.
func (s setting) scriptEnv(env map[string]string, sets ...map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range env {
		_, own := s.own[name]
		model := strings.HasPrefix(name, "OPENAI_") || strings.HasPrefix(name, "ANTHROPIC_") || name == "RECIPE_MODEL"
		if !model && (!own || name == "PATH") {
			out[name] = value
		}
	}
	path := out["PATH"]
	for _, set := range sets {
		maps.Copy(out, withPath(set, path))
	}
	out["TMPDIR"], out["HOME"] = "/tmp", (&place{rollout}).home()
	return out
}

// withPath are variables of a task, with the PATH of the sandbox where they name it.
func withPath(set map[string]string, path string) map[string]string {
	out := map[string]string{}
	for name, value := range set {
		if name == markName { // it is what the block finds its programs by
			continue
		}
		out[name] = strings.ReplaceAll(value, taskfolder.OwnPath, path)
	}
	return out
}

package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	"golang.org/x/text/unicode/norm"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// Where the machine of a job has no file system in common with the engine's, files are staged: the job's agent gets
// those of the recipe's folder and of the block's folders in the run's directory, by digest, and keeps them in a folder
// of the job.

const (
	// stageFiles and stageBytes limit what is staged for a block: a recipe's folder may be a home directory by mistake.
	stageFiles = 20_000
	stageBytes = 20 << 30
	// stageEvery is how often it is reported how far it is.
	stageEvery = 5 * time.Second
)

// files describes how files reach the machines of an executor.
func (x Executor) files() (executor.Files, error) {
	if len(x.Config) == 0 {
		return executor.FilesOf(cty.NilVal), nil
	}
	config, err := ctyjson.Unmarshal(x.Config, cty.DynamicPseudoType)
	if err != nil {
		return executor.Files{}, fmt.Errorf("read the configuration of %s: %w", x.Block, err)
	}
	return executor.FilesOf(config), nil
}

// Staged reports whether files are staged to the machines of an executor.
func (x Executor) Staged() bool {
	f, err := x.files()
	return err == nil && f.Staged()
}

// manifest is what is staged for a block.
type manifest struct {
	files []agent.File
	from  map[string]string // path on this machine, by digest
	bytes int64
}

// Need is what a plan says about the files that would be staged for a block.
type Need struct {
	Files int
	Bytes int64 // of them together
}

// Needs counts the files of the recipe's folder that are staged for a block of an executor.
func (s Spec) Needs() (Need, error) {
	how, err := s.Executor.files()
	if err != nil {
		return Need{}, err
	}
	var n Need
	err = s.recipeFiles(how, func(_, _ string, info fs.FileInfo) error {
		n.Files++
		n.Bytes += info.Size()
		return nil
	})
	return n, err
}

// recipeFiles calls each for the files of the recipe's folder that are staged, with their paths here and in the job's
// folder.
func (s Spec) recipeFiles(how executor.Files, each func(from, to string, info fs.FileInfo) error) error {
	tops := how.Stage
	if len(tops) == 0 {
		tops = []string{"."}
	}
	w := walker{top: s.RecipeDir, run: s.RunDir, to: agent.RecipeFolder, each: each}
	for _, t := range tops {
		if !filepath.IsLocal(t) {
			return &sdk.Error{Summary: fmt.Sprintf("%s: stage = %q is outside the recipe's folder", s.Executor.Block, t),
				Remedy: "name files and folders in " + s.RecipeDir + ", relative to it"}
		}
		if err := w.walk(filepath.Clean(t)); err != nil {
			return err
		}
	}
	return nil
}

// walker walks over files that are to be staged.
type walker struct {
	top  string // folder on this machine
	run  string // directory of the run, which is left out
	to   string // the same in the job's folder
	each func(from, to string, info fs.FileInfo) error

	files int
	bytes int64
}

func (w *walker) walk(start string) error {
	return filepath.WalkDir(filepath.Join(w.top, start), func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && p != filepath.Join(w.top, start) { // removed meanwhile
			return nil
		}
		if err != nil {
			return fmt.Errorf("list what is to be staged: %w", err)
		}
		rel, err := filepath.Rel(w.top, p)
		if err != nil {
			return err
		}
		if hidden := strings.HasPrefix(d.Name(), ".") || d.Name() == "__pycache__"; rel != start && hidden || p == w.run {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return w.file(p, rel, d)
	})
}

func (w *walker) file(p, rel string, d fs.DirEntry) error {
	if d.IsDir() {
		return nil
	}
	info, err := d.Info()
	if err == nil && d.Type() == fs.ModeSymlink {
		info, err = w.follow(p, rel)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile, or a link to nothing
	}
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	w.files++
	w.bytes += info.Size()
	if w.files > stageFiles || w.bytes > stageBytes {
		return &sdk.Error{Summary: fmt.Sprintf("more than %d files or %d GiB in %s would be staged", stageFiles,
			stageBytes>>30, w.top),
			Remedy: "name what the blocks need: stage = [\"rewards.py\", \"data\"] in the executor block"}
	}
	return w.each(p, path.Join(w.to, filepath.ToSlash(rel)), info)
}

// follow is what a link leads to: a file of the same folder.
func (w *walker) follow(p, rel string) (fs.FileInfo, error) {
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return nil, err
	}
	top, err := filepath.EvalSymlinks(w.top)
	if err != nil {
		return nil, err
	}
	if inside, err := filepath.Rel(top, real); err != nil || !filepath.IsLocal(inside) {
		return nil, &sdk.Error{Summary: fmt.Sprintf("%s is a link to %s, outside %s", rel, real, w.top),
			Remedy: "what is staged must be in the recipe's folder: copy it there, or leave the link out with " +
				"stage = [\"rewards.py\", \"data\"] in the executor block"}
	}
	info, err := os.Stat(real)
	if err == nil && info.IsDir() {
		return nil, &sdk.Error{Summary: fmt.Sprintf("%s is a link to a folder, and is not followed", rel),
			Remedy: "name the folder itself"}
	}
	return info, err
}

// ofTheEngine are the files in a block's folder that belong to the engine, or to the machine.
var ofTheEngine = []string{recordName, joinName, "agent.json", "reattach.json", "output.json"}

// belongsToEngine says whether a name is one of them on some system: macOS does not tell Job.json from job.json, and
// takes one form of Unicode for another.
func belongsToEngine(name string) bool {
	name = norm.NFKC.String(name)
	return slices.ContainsFunc(ofTheEngine, func(own string) bool { return strings.EqualFold(own, name) })
}

// manifest lists what is staged for a block, with digests.
func (s Spec) manifest() (*manifest, error) {
	how, err := s.Executor.files()
	if err != nil {
		return nil, err
	}
	m := &manifest{from: map[string]string{}}
	if err := s.recipeFiles(how, m.add); err != nil {
		return nil, err
	}
	kinds, err := os.ReadDir(s.RunDir)
	if err != nil {
		return nil, fmt.Errorf("list the block's folders: %w", err)
	}
	for _, kind := range kinds { // blocks, checkpoints, samples, …
		folder := filepath.Join(s.RunDir, kind.Name(), filepath.Base(s.Dir))
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			continue
		}
		w := walker{top: folder, to: path.Join(agent.RunFolder, kind.Name(), filepath.Base(s.Dir)),
			each: func(from, to string, info fs.FileInfo) error {
				if name := path.Base(to); slices.Contains(ofTheEngine, name) || strings.HasPrefix(name, "agent-") {
					return nil
				}
				return m.add(from, to, info)
			}}
		if err := w.walk("."); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *manifest) add(from, to string, info fs.FileInfo) error {
	digest, size, err := digestOf(from)
	if err != nil {
		return fmt.Errorf("stage %s: %w", from, err)
	}
	m.files = append(m.files, agent.File{Path: to, Digest: digest, Size: size, Modified: info.ModTime(),
		Executable: info.Mode()&0o100 != 0})
	m.from[digest] = from
	m.bytes += size
	return nil
}

// digestOf is the SHA-256 digest of a file's content, with its size.
func digestOf(path string) (string, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), n, err
}

// stage brings the files of a block to the machine of its job. What an earlier job has brought there is not sent again,
// and what a cut has interrupted goes on where it was.
func (j *Job) stage(ctx context.Context, s Spec, report func(string)) error {
	m, err := s.manifest()
	if err != nil {
		return err
	}
	var missing []string
	err = j.peer.do(ctx, func(c *agent.Client) (err error) {
		missing, err = c.Missing(ctx, m.files)
		return err
	})
	if err != nil {
		return err
	}
	p := &progress{report: report, host: j.peer.host()}
	for _, f := range m.files {
		if slices.Contains(missing, f.Digest) {
			p.total += f.Size
		}
	}
	sent := map[string]bool{}
	for _, f := range m.files {
		if sent[f.Digest] || !slices.Contains(missing, f.Digest) {
			continue
		}
		sent[f.Digest] = true
		if err := j.put(ctx, f, m.from[f.Digest], p); err != nil {
			return fmt.Errorf("stage %s: %w", f.Path, err)
		}
		p.done += f.Size
	}
	return j.peer.do(ctx, func(c *agent.Client) error { return c.Place(ctx, m.files, s.folders()) })
}

// folders are those of the block that exist before it starts.
func (s Spec) folders() []string {
	var out []string
	for _, name := range []string{"blocks", "checkpoints"} {
		out = append(out, path.Join(agent.RunFolder, name, filepath.Base(s.Dir)))
	}
	return append(out, agent.RecipeFolder)
}

func (j *Job) put(ctx context.Context, f agent.File, from string, p *progress) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return j.peer.do(ctx, func(c *agent.Client) error { return c.Put(ctx, f, file, p.at) })
}

// progress reports how much of what is staged has been sent.
type progress struct {
	report func(string)
	host   string
	total  int64
	done   int64 // of the files that were sent
	said   time.Time
}

func (p *progress) at(sent int64) {
	if now := time.Now(); now.Sub(p.said) >= stageEvery {
		p.said = now
		p.report(fmt.Sprintf("staging %s of %s to %s", size(p.done+sent), size(p.total), p.host))
	}
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

package lineage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// hub is the folder in which the cache of Hugging Face keeps repositories; empty: not known.
func hub() string {
	if set := os.Getenv("HF_HUB_CACHE"); set != "" {
		return set
	}
	home := os.Getenv("HF_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		home = filepath.Join(user, ".cache", "huggingface")
	}
	return filepath.Join(home, "hub")
}

// cached is the commit of a repository that the cache has, of kind models or datasets; empty: none. A program that asks
// for a commit leaves no name of a branch, so the snapshot that was downloaded last counts then.
func cached(kind, name string) string {
	folder := filepath.Join(hub(), kind+"--"+strings.ReplaceAll(name, "/", "--"))
	if commit, err := os.ReadFile(filepath.Join(folder, "refs", "main")); err == nil {
		return strings.TrimSpace(string(commit))
	}
	snapshots, err := os.ReadDir(filepath.Join(folder, "snapshots"))
	if err != nil {
		return ""
	}
	commit, newest := "", time.Time{}
	for _, s := range snapshots {
		if info, err := s.Info(); err == nil && info.ModTime().After(newest) {
			commit, newest = s.Name(), info.ModTime()
		}
	}
	return commit
}

// repository is the name of a repository of the hub: NAME or OWNER/NAME.
var repository = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`)

// datasetsOf are the datasets that texts in a configuration name and that the cache of Hugging Face has.
func datasetsOf(config map[string]json.RawMessage) []Model {
	var out []Model
	eachText(config, func(text string) {
		if len(text) > 200 || !repository.MatchString(text) {
			return
		}
		if commit := cached("datasets", text); commit != "" {
			out = append(out, Model{Name: text, Revision: commit})
		}
	})
	return out
}

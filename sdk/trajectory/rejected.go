package trajectory

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
)

// RejectedGroups is a folder of groups that a trainer could not use, for people to look at. It keeps the first ones, up
// to a number and a size: what is wrong with one group is mostly wrong with the next.
type RejectedGroups struct {
	dir   string
	files int
	bytes int64
}

// Limits of a RejectedGroups.
const (
	asideFiles = 64
	asideBytes = 64 << 20
)

// NewRejectedGroups makes a RejectedGroups of a folder, which is created with the first group. What lies there counts.
func NewRejectedGroups(dir string) *RejectedGroups {
	s := &RejectedGroups{dir: dir}
	entries, _ := os.ReadDir(dir) // there may be none yet
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			s.files, s.bytes = s.files+1, s.bytes+info.Size()
		}
	}
	return s
}

// Dir is the folder.
func (s *RejectedGroups) Dir() string { return s.dir }

// Keep writes a group with the reason why it was not used. kept is false when the folder is full.
func (s *RejectedGroups) Keep(batch string, group json.RawMessage, why error) (kept bool, err error) {
	text, err := json.Marshal(struct {
		Time   time.Time       `json:"time"`
		Batch  string          `json:"batch"`
		Reason string          `json:"reason"`
		Group  json.RawMessage `json:"group"`
	}{time.Now().UTC(), batch, why.Error(), group})
	if err != nil {
		return false, fmt.Errorf("keeping a group that was set aside: %w", err)
	}
	if s.files >= asideFiles || s.bytes+int64(len(text)) > asideBytes {
		return false, nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return false, fmt.Errorf("keeping a group that was set aside: %w", err)
	}
	path := filepath.Join(s.dir, fmt.Sprintf("group-%s-%03d.json", time.Now().UTC().Format("20060102T150405"), s.files))
	if err := regular.WriteFile(path, text); err != nil {
		return false, fmt.Errorf("keeping a group that was set aside: %w", err)
	}
	s.files, s.bytes = s.files+1, s.bytes+int64(len(text))
	return true, nil
}

// Package samples is the record of a run's groups: each as it was posted, the step that trained on it and what the
// trainer computed for its tokens. The trajectory API writes it, views of a run read it. The format is in
// docs/recording.md.
//
// It is a record for people, not the queue: it is written behind the posts, never delays them, and may lose groups
// when
// the disk is slower than they come, which it counts.
package samples

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// FormatVersion is the `v` of every line. Readers skip lines of a higher version.
const FormatVersion = 1

// Type describes what a line is about.
type Type string

// The types of line.
const (
	Posted    Type = "group"     // a group was posted; its body is the group as JSON
	Delivered Type = "delivered" // a trainer has received it for a step
	Trained   Type = "trained"   // the trainer told what it computed for the group; the body is a Computed
	Dropped   Type = "dropped"   // it left the queue untrained
	Lost      Type = "lost"      // groups were posted that are not recorded
)

// Line is one line of an index file. Fields that a type does not use are left out.
type Line struct {
	V    int       `json:"v"`
	Type Type      `json:"type"`
	ID   uint64    `json:"id,omitempty"` // of the group in its trajectory store
	Time time.Time `json:"time"`

	Environment string    `json:"environment,omitempty"`
	Sequences   int       `json:"sequences,omitempty"`
	Tokens      int       `json:"tokens,omitempty"`  // of all sequences
	Longest     int       `json:"longest,omitempty"` // tokens of the longest sequence
	Scores      []float32 `json:"scores,omitempty"`
	// Versions are the oldest and the newest policy version that sampled it; nil: unknown.
	Versions []int64 `json:"versions,omitempty"`

	Step    int64  `json:"step,omitempty"`    // the trainer's, from 1
	Version *int64 `json:"version,omitempty"` // policy version of the weights that were trained; nil: unknown
	Reason  string `json:"reason,omitempty"`  // why it was dropped
	Groups  int64  `json:"groups,omitempty"`  // how many were lost

	// Where the body lies in the file of bodies: one zstd frame. Bytes 0: there is none.
	Offset int64 `json:"offset,omitempty"`
	Bytes  int64 `json:"bytes,omitempty"`
}

// Computed is what a trainer computed for the trained tokens of a group, sequence after sequence: little-endian
// float32, base64 in JSON. A list that is empty was not given.
type Computed struct {
	Logprobs   []byte `json:"logprobs,omitempty"`   // under the weights before the step
	Advantages []byte `json:"advantages,omitempty"` // as they entered the loss
}

// evaluation begins the name of a record's folder whose groups are the completions of an evaluation: they are never
// trained. Those of trajectories blocks begin with the kind of block.
const evaluation = "evaluation."

// EvaluationFolder is the name of a record of an evaluation.
func EvaluationFolder(name string) string { return evaluation + name }

// OfEvaluation reports whether a record of this name is of an evaluation.
func OfEvaluation(folder string) bool { return strings.HasPrefix(folder, evaluation) }

// Limits bound what a record keeps. The oldest files are deleted beyond them.
type Limits struct {
	Bytes int64         // on disk; 0: nothing is recorded
	Age   time.Duration // 0: none
}

const (
	indexSuffix  = ".jsonl"
	bodySuffix   = ".zst"
	segmentBytes = 32 << 20 // of bodies, after which new files are started
	indexBytes   = 8 << 20  // likewise of the index
	segmentAge   = 6 * time.Hour
)

// MaxIndex bounds what is read of an index file: a writer begins another one at an eighth of it.
const MaxIndex = 64 << 20

// Segment is two files of a record: an index, and the bodies that its lines name.
type Segment struct {
	Number        int    // from 1 on, without a gap but for those that are deleted
	Index, Bodies string // names in the folder of the record
}

// Segments lists the files in the folder of a record, oldest first. The last may be being written: its bodies first.
func Segments(dir string) ([]Segment, error) {
	numbers, err := segments(dir, ".")
	out := make([]Segment, len(numbers))
	for i, n := range numbers {
		out[i] = Segment{n, filepath.Base(file(dir, n, indexSuffix)), filepath.Base(file(dir, n, bodySuffix))}
	}
	return out, err
}

// segments lists the numbers of the files in dir, oldest first; none when the folder does not exist. dir is relative
// to
// root, and no link leads out of root.
func segments(root, dir string) ([]int, error) {
	top, err := os.OpenRoot(root)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the record of samples: %w", err)
	}
	defer func() { _ = top.Close() }()
	entries, err := fs.ReadDir(top.FS(), filepath.ToSlash(dir))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the record of samples: %w", err)
	}
	var out []int
	for _, e := range entries {
		var n int
		name, ok := strings.CutSuffix(e.Name(), indexSuffix)
		if _, err := fmt.Sscanf(name, "%d", &n); ok && err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

func file(dir string, segment int, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%08d%s", segment, suffix))
}

// Package taskfile reads the tasks of an environment from a file of JSON lines.
package taskfile

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/regular"
)

// maxLine bounds a line.
const maxLine = 16 << 20

// maxDepth bounds lists and objects within each other: programs in Python that score end on JSON that is nested some
// thousand deep.
const maxDepth = 512

// Read reads a task from each line that is not empty. The last evalTasks of them are held out; the others are put into
// an order that depends on the seed. Name is relative to the folder of the recipe. Parse gets the number of a line,
// from 1, and its bytes, which it may keep; its error is reported with the place.
func Read[T any](name, recipeDir string, evalTasks, seed int64, parse func(line int, text []byte) (T, error),
) (train, held []T, err error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(recipeDir, path)
	}
	f, _, err := regular.Follow(path)
	if err != nil {
		return nil, nil, fmt.Errorf("tasks: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if !bounded.FitsJSON(lines.Bytes(), math.MaxInt, maxDepth) {
			return nil, nil, fmt.Errorf("tasks: %s:%d: a task has lists and objects more than %d deep within each other", path,
				n, maxDepth)
		}
		one, err := parse(n, slices.Clone(lines.Bytes()))
		if err != nil {
			return nil, nil, fmt.Errorf("tasks: %s:%d: %w", path, n, err)
		}
		train = append(train, one)
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("tasks: read %s: %w", path, err)
	}
	all := len(train)
	train, held, ok := Hold(train, evalTasks, seed)
	if !ok {
		return nil, nil, fmt.Errorf("tasks: %s has %d tasks, and the last eval_tasks = %d of them are held out; give more "+
			"tasks or lower eval_tasks", path, all, evalTasks)
	}
	return train, held, nil
}

// Hold holds out the last evalTasks of all tasks, and puts the others into an order that depends on the seed. Not ok:
// none would be left.
func Hold[T any](all []T, evalTasks, seed int64) (train, held []T, ok bool) {
	keep := len(all) - int(evalTasks)
	if keep < 1 {
		return nil, nil, false
	}
	train, held = all[:keep], all[keep:]
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	rng.Shuffle(keep, func(i, j int) { train[i], train[j] = train[j], train[i] })
	return train, held, true
}

package taskfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/internal/regular"
)

// mostReward bounds a file with a reward.
const mostReward = 1 << 20

// rewardKey is the member that is the score.
const rewardKey = "reward"

// Rewards reads what the tests have written into their folder: reward.json, else reward.txt.
func Rewards(folder string) (map[string]float64, error) {
	data, err := regular.ReadFileIn(folder, "reward.json", mostReward)
	if err == nil {
		return fromJSON(data)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read reward.json: %w", err)
	}
	data, err = regular.ReadFileIn(folder, "reward.txt", mostReward)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the tests have written neither /logs/verifier/reward.json nor reward.txt")
	}
	if err != nil {
		return nil, fmt.Errorf("read reward.txt: %w", err)
	}
	text := strings.TrimSpace(string(data))
	score, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.ContainsAny(text, "xXpP") || !finite(score) { // Go reads 0x1p-2, the format does not
		return nil, fmt.Errorf("reward.txt has %.80q; expected a finite number", text)
	}
	return map[string]float64{rewardKey: score}, nil
}

// Score is the reward among rewards: the one of that name, or the only one. Metrics are the others.
func Score(rewards map[string]float64) (score float64, metrics map[string]float64, err error) {
	score, ok := rewards[rewardKey]
	if !ok && len(rewards) == 1 {
		for _, score = range rewards {
			ok = true
		}
	}
	if !ok {
		return 0, nil, fmt.Errorf("reward.json has no member %q and not one member alone: it has %q", rewardKey,
			slices.Sorted(maps.Keys(rewards)))
	}
	metrics = maps.Clone(rewards)
	delete(metrics, rewardKey)
	return score, metrics, nil
}

// Enough reports whether the rewards of a step let the next one begin.
func (s Step) Enough(rewards map[string]float64) bool {
	for name, least := range s.Least {
		if got, ok := rewards[name]; !ok || got < least {
			return false
		}
	}
	return true
}

// Combine makes the rewards of a task of those of the steps that were done: the last ones, or the mean of each. One
// that a step does not have counts as 0.
func (t *Task) Combine(steps []map[string]float64) map[string]float64 {
	if t.Final {
		return steps[len(steps)-1]
	}
	out := map[string]float64{}
	for _, rewards := range steps {
		for name, value := range rewards {
			out[name] += value / float64(len(steps))
		}
	}
	return out
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func fromJSON(data []byte) (map[string]float64, error) {
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return nil, fmt.Errorf("reward.json has %.80q; expected an object of numbers, all finite", data)
	}
	all := map[string]float64{}
	for name, value := range members {
		switch v := value.(type) {
		case float64:
			all[name] = v
		case bool: // numbers, in Python
			if all[name] = 0; v {
				all[name] = 1
			}
		default:
			return nil, fmt.Errorf("the member %q of reward.json is %.80v; expected a finite number", name, value)
		}
	}
	return all, nil
}

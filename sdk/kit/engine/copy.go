package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/sdk"
)

// WorkerFacts are facts about a worker of a server, as recipe_sdk writes them.
type WorkerFacts struct {
	Device     string   `json:"device"`     // cuda, cpu, …; empty: not known
	Reach      []string `json:"reach"`      // memory that it can copy weights from
	Machine    string   `json:"machine"`    // that it runs on; empty: not known
	Arithmetic string   `json:"arithmetic"` // how exactly it computes; empty: not known
}

// Copied is what one worker answers when it is asked to open or to copy a trainer's tensors, as recipe_sdk writes it.
type Copied struct {
	Unknown bool    `json:"unknown"` // it has not opened these handles: the worker or the trainer was started again
	Refused string  `json:"refused"` // why they cannot fit; nothing was touched
	Path    string  `json:"path"`    // direct or loader
	Why     string  `json:"why"`     // why it was loader
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// AllCopied reports whether all workers have copied the tensors.
func AllCopied(workers []Copied) bool {
	return !slices.ContainsFunc(workers, func(c Copied) bool { return c.Unknown || c.Refused != "" })
}

// CopyTensors has the workers of a server copy a trainer's tensors. Pull copies those whose handles have a key; where a
// worker does not know them, attach opens them first. The note is for the log.
func CopyTensors(title string, w sdk.Weights, attach func(handles string) ([]Copied, error),
	pull func(key string) ([]Copied, error)) (note string, err error) {
	known := gjson.Get(w.Handles, "key").String() // it comes early in a long text
	if known == "" {
		return "", &sdk.Error{Summary: fmt.Sprintf("version %d was published by %s without handles of its tensors",
			w.Version, w.Transport),
			Detail: "the trainer's plugin does not publish that way", Remedy: "set transport = \"reload\" in the sync block"}
	}
	for attached := false; ; attached = true {
		workers, err := pull(known)
		if err == nil {
			err = refusal(workers, w.Version)
		}
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(workers, func(c Copied) bool { return c.Unknown }) {
			return copyNote(title, workers), nil
		}
		if attached {
			return "", errors.New("a worker lost the trainer's tensors right after it had opened them; does something " +
				"restart it?")
		}
		if workers, err = attach(w.Handles); err == nil {
			err = refusal(workers, w.Version)
		}
		if err != nil {
			return "", err
		}
	}
}

func copyNote(title string, workers []Copied) string {
	slowest := slices.MaxFunc(workers, func(a, b Copied) int { return cmp.Compare(a.Seconds, b.Seconds) })
	note := fmt.Sprintf("%d tensors, %.1f MB copied in %.1f ms", slowest.Tensors, float64(slowest.Bytes)/1e6,
		slowest.Seconds*1e3)
	if slowest.Path != "direct" {
		note += " by " + title + "'s loader: " + slowest.Why
	}
	return note
}

// refusal is why a worker did not accept weights.
func refusal(workers []Copied, version int64) error {
	if len(workers) == 0 {
		return errors.New("no worker answered a request to copy weights")
	}
	for _, c := range workers {
		if c.Refused != "" {
			return &sdk.Error{Summary: fmt.Sprintf("version %d does not fit: %s", version, c.Refused),
				Remedy: "trainer and server must have the same model and reach the same memory, or each other (nccl); " +
					"transport = \"reload\" goes through files"}
		}
	}
	return nil
}

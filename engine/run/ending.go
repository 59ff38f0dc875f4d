package run

import (
	"errors"
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
)

// ending is how an attempt ended.
type ending struct {
	phase   sdk.Phase // completed, stopped or failed
	err     error
	remedy  string
	ready   bool // it had been ready
	last    []string
	outputs cty.Value // final; NilVal when unknown
	ordered bool      // it was asked to stop
	kill    bool      // its process is not asked to exit any more
	logged  bool      // the log already holds its last phase
	invalid bool      // the plugin refused the block's values
	final   bool      // the plugin says that another attempt would fail likewise
	stalled bool      // it had stood still for too long
}

func failed(doing string, err error) *ending {
	end := &ending{phase: sdk.Failed, err: fmt.Errorf("%s: %w", doing, err)}
	var known *sdk.Error // of an executor whose cluster refuses the job
	if errors.As(err, &known) {
		end.remedy = known.Remedy
	}
	return end
}

// refused is failed for what a plugin may refuse as it would every time.
func (at *attempt) refused(doing string, err error) *ending {
	end := failed(doing, err)
	end.invalid = errors.Is(err, host.ErrInvalid)
	var known *sdk.Error
	if errors.As(err, &known) {
		if place := at.place(known.Path); place != "" {
			end.err = fmt.Errorf("%s: %w", place, end.err)
		}
	}
	return end
}

// place is the file and line of the setting that a failure is about; empty: it names none.
func (at *attempt) place(path cty.Path) string {
	if at.recipe == nil {
		return ""
	}
	return at.recipe.Place(at.block, path)
}

// withPlaces is the message of a phase with the file and line of the setting that it is about, or of each of several.
func (at *attempt) withPlaces(ph blockevent.PhaseChange) string {
	lines, found := strings.Split(ph.Message, "\n"), false
	for i, line := range lines {
		text := strings.TrimLeft(line, " ")
		name, _, _ := strings.Cut(text, ":")
		if place := at.place(ph.Places[name]); place != "" {
			lines[i], found = line[:len(line)-len(text)]+place+": "+text, true
		}
	}
	if found {
		return strings.Join(lines, "\n")
	}
	if place := at.place(ph.Path); place != "" {
		return place + ": " + ph.Message
	}
	return ph.Message
}

// message is the ending in one line.
func (x ending) message() string {
	if x.err == nil {
		return string(x.phase)
	}
	return strings.TrimSpace(x.err.Error())
}

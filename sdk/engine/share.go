package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// shareVariable is NVIDIA's: the part of a GPU's multiprocessors that MPS gives a process, in per cent.
const shareVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

// shareWarning says what a share in a server's environment may do to what it samples; empty: there is none. Trainers
// compare products before they train, but a server answers all the same.
func shareWarning(environment []string) string {
	value := ""
	for _, entry := range environment { // the last counts
		if rest, found := strings.CutPrefix(entry, shareVariable+"="); found {
			value = rest
		}
	}
	share, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || share >= 100 {
		return ""
	}
	return fmt.Sprintf("%s is %s: products of matrices were seen to come out wrong with a share of a GPU's "+
		"multiprocessors (40, 60, 73 and 80 %% on an H100), and nothing says so. Unset it: environment_variables = { %s = "+
		"\"100\" } in this block, if it comes from the shell", shareVariable, strings.TrimSpace(value), shareVariable)
}

package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// ShareVariable is NVIDIA's: the part of a GPU's multiprocessors that MPS gives a process, in per cent.
const ShareVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

// Partial says whether a value of ShareVariable is less than all. With 40, 60, 73 and 80 % of an H100 cuBLAS multiplied
// wrong, and said nothing (docs/benchmarks/gpu.md).
func Partial(share string) bool {
	value, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
	return err == nil && value < 100
}

// shareWarning says what a share in a server's environment may do to what it samples; empty: there is none. Trainers
// compare products before they train, but a server answers all the same.
func shareWarning(environment []string) string {
	for _, entry := range environment {
		name, share, _ := strings.Cut(entry, "=")
		if name == ShareVariable && Partial(share) {
			return fmt.Sprintf("%s is %s: with a share of a GPU's multiprocessors products of matrices were seen to come out "+
				"wrong, and nothing says so. Unset it, or give this block all of them: environment_variables = { %s = \"100\" }",
				ShareVariable, strings.TrimSpace(share), ShareVariable)
		}
	}
	return ""
}

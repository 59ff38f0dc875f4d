package gateway

import (
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/internal/session"
)

// manyMetrics is a reward with more metrics than one may have.
func manyMetrics() string {
	var names []string
	for i := range session.MaxMetrics + 1 {
		names = append(names, fmt.Sprintf(`"task_%d":1`, i))
	}
	return `{"reward":1,"metrics":{` + strings.Join(names, ",") + `}}`
}

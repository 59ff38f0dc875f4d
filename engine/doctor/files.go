package doctor

import (
	"github.com/recipe-rl/recipe/internal/openfiles"
	"github.com/recipe-rl/recipe/sdk"
)

// CanRun explains why no run can be started on a machine; nil: nothing is known to be in its way.
func CanRun(m Machine) error {
	limit, err := m.Files()
	if err != nil {
		return nil // the check of open files says so
	}
	if said := openfiles.TooFew(limit, "here"); said != "" {
		return &sdk.Error{Summary: said, Remedy: openfiles.Remedy}
	}
	return nil
}

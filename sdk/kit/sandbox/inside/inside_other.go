//go:build !linux

package inside

import "errors"

func (Job) run([]string, *Report) error { return errors.New("sandboxes need Linux") }

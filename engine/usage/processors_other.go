//go:build !linux

package usage

import "errors"

// readProcessors fails: macOS tells these times through a framework only, for which this program would need cgo.
func readProcessors() (processors, error) { return processors{}, errors.ErrUnsupported }

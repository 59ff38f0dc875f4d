package proc

import (
	"errors"
	"net"
)

// BrokenOff says whether an error comes from the connection itself, as a write does to a program that has just ended:
// how the program ended then says more than the error.
func BrokenOff(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

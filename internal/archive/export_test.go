package archive

import "time"

// SetPatience sets how long Start waits for the store.
func (x *Archive) SetPatience(d time.Duration) { x.patience = d }

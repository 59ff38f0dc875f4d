package disk

import "os"

// File is a question to another machine: whether it has a file of this one, hence whether they share a file system.
type File struct {
	Path string `json:"path"`
	Seen bool   `json:"seen,omitempty"` // in the answer
}

// Look answers.
func (f File) Look() File {
	_, err := os.Stat(f.Path)
	return File{Path: f.Path, Seen: err == nil}
}

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// longestParent leaves room for the folder's own name and for vLLM's sockets, whose names have 36 characters: the path
// of a Unix socket has at most 107 bytes on Linux, 103 on macOS.
const longestParent = 103 - len("/recipe-server-123456789abc/") - 36

// temporary is the folder for temporary files of the replica's server. vLLM and SGLang leave sockets behind when they
// end, also by themselves; here they are removed with the folder. Its name depends on the block's folder and the
// replica alone, so the next attempt finds what a killed one has left, and a copy of the block's folder does not.
func (r *replica) temporary() string {
	parent := os.TempDir()
	if len(parent) > longestParent {
		parent = "/tmp"
	}
	sum := sha256.Sum256([]byte(r.s.block.Dir + "\x00" + r.id))
	return filepath.Join(parent, "recipe-server-"+hex.EncodeToString(sum[:6]))
}

// makeTemporary creates the folder, empty and for this user only. Empty without an error: the server runs on another
// machine.
func (r *replica) makeTemporary() (string, error) {
	if r.node > 0 {
		return "", nil
	}
	dir := r.temporary()
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.Mkdir(dir, 0o700) // not MkdirAll: it fails if another user was quicker
	}
	if err != nil {
		return "", fmt.Errorf("make a folder for the temporary files of replica %s, whose sockets will stay behind: %w",
			r.id, err)
	}
	return dir, nil
}

func (r *replica) removeTemporary() {
	if r.node > 0 {
		return
	}
	if err := os.RemoveAll(r.temporary()); err != nil {
		r.s.host.Log("warn", fmt.Sprintf("replica %s: remove the temporary files of its server: %v", r.id, err))
	}
}

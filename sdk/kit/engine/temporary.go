package engine

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/internal/temporary"
)

// longestParent leaves room for the folder's own name and for vLLM's sockets, whose names have 36 characters: the path
// of a Unix socket has at most 107 bytes on Linux, 103 on macOS.
const longestParent = 103 - len("/recipe-server-123456789abc/") - 36

const temporaryPrefix = "recipe-server-"

// temporary is the folder for temporary files of the replica's server. vLLM and SGLang leave sockets behind when they
// end, also by themselves; here they are removed with the folder. Its name depends on the block's folder, its token and
// the replica: the next attempt finds what a killed one has left, a copy of the block's folder does not, and another
// user cannot make it first.
func (r *replica) temporary() string {
	parent := os.TempDir()
	if len(parent) > longestParent {
		parent = "/tmp"
	}
	name := hmac.New(sha256.New, []byte(r.s.block.ControlToken))
	name.Write([]byte("temporary\x00" + r.s.block.Dir + "\x00" + r.id))
	return filepath.Join(parent, temporaryPrefix+hex.EncodeToString(name.Sum(nil)[:6]))
}

// makeTemporary creates the folder, empty and for this user only. The server is to inherit held, so that the folder is
// not removed while it runs, also without this process; what is left of killed ones is. Empty without an error: the
// server runs on another machine.
func (r *replica) makeTemporary() (dir string, held []*os.File, err error) {
	if r.node > 0 {
		return "", nil, nil
	}
	dir = r.temporary()
	file, err := temporary.At(dir, temporaryPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the temporary files of replica %s, whose sockets will stay behind: %w",
			r.id, err)
	}
	return dir, []*os.File{file}, nil
}

func (r *replica) removeTemporary() {
	if r.node > 0 {
		return
	}
	if err := os.RemoveAll(r.temporary()); err != nil {
		r.s.host.Log("warn", fmt.Sprintf("replica %s: remove the temporary files of its server: %v", r.id, err))
	}
}

package addr

import (
	"fmt"
	"strings"
)

// MaxFileName bounds, in bytes, the file name of an address or of a run. Most file systems allow 255; the rest is for
// what is added to a name, such as the ending of a file that is being written.
const MaxFileName = 200

// FileName is the name of the folders of the block in a run directory.
func (b Block) FileName() string { return FileName(b.String()) }

// FileName makes a file name of s: everything but letters, digits, '.', '_' and '-' becomes %XX.
func FileName(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' ||
			(c == '.' && i > 0) {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

package packages

import (
	"fmt"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxName is how many bytes the name of a file in an archive may have.
const maxName = 1024

// fileNames are the names in an archive. Two that differ by case or by the form of Unicode are one file on some
// systems (macOS, Windows) and two on others, so that what was looked at is not what is used: such archives are
// refused. Each folder stands for its whole path, so that what is kept of a name grows with its length, and not with
// its square.
type fileNames struct{ known map[inFolder]spelled }

// inFolder is a part of a name, in the form that all its spellings share, in the folder with a number.
type inFolder struct {
	folder int
	part   string
}

// spelled is such a part as the archive has it first.
type spelled struct {
	part   string
	folder int // its number
}

// add adds the name of a file, which may be there in this spelling already.
func (n *fileNames) add(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("the file name %.40q… is refused: it has %d bytes, expected at most %d", name, len(name), maxName)
	}
	if n.known == nil {
		n.known = map[inFolder]spelled{}
	}
	folder, begin := 0, 0
	for part := range strings.SplitSeq(name, "/") {
		end := begin + len(part)
		at := inFolder{folder, norm.NFD.String(cases.Fold().String(norm.NFD.String(part)))}
		first, known := n.known[at]
		if known && first.part != part {
			return fmt.Errorf("%q is refused: the archive also has %q, which is the same file where case or the form of "+
				"Unicode does not count; its author has to rename one", name[:end], name[:begin]+first.part)
		}
		if !known {
			first = spelled{part, len(n.known) + 1}
			n.known[at] = first
		}
		folder, begin = first.folder, end+1
	}
	return nil
}

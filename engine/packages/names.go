package packages

import (
	"fmt"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// fileNames are the names in an archive. Two that differ by case or by the form of Unicode are one file on some
// systems
// (macOS, Windows) and two on others, so that what was looked at is not what is used: such archives are refused.
type fileNames struct{ spelled map[string]string }

// add adds the name of a file, which may be there in this spelling already.
func (n *fileNames) add(name string) error {
	if n.spelled == nil {
		n.spelled = map[string]string{}
	}
	for end := 0; end < len(name); {
		if next := strings.IndexByte(name[end+1:], '/'); next >= 0 {
			end += 1 + next
		} else {
			end = len(name)
		}
		part := name[:end]
		same := norm.NFD.String(cases.Fold().String(norm.NFD.String(part)))
		if other, known := n.spelled[same]; known && other != part {
			return fmt.Errorf("%q is refused: the archive also has %q, which is the same file where case or the form of "+
				"Unicode does not count; its author has to rename one", part, other)
		}
		n.spelled[same] = part
	}
	return nil
}

package private

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNotShared(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		folder, file os.FileMode
		refused      bool
	}{
		"of this user":                   {0o700, 0o600, false},
		"that others may read":           {0o755, 0o644, false},
		"of a group":                     {0o775, 0o664, false},
		"that everybody may change":      {0o755, 0o666, true},
		"in a folder of everybody":       {0o777, 0o644, true},
		"in the temporary folder":        {0o777 | os.ModeSticky, 0o644, false},
		"of everybody, in the temporary": {0o777 | os.ModeSticky, 0o646, true},
	} {
		top := t.TempDir()
		folder := filepath.Join(top, "folder")
		path, link := filepath.Join(folder, "file"), filepath.Join(top, "link")
		for _, err := range []error{os.Mkdir(folder, 0o700), os.WriteFile(path, nil, 0o600), os.Chmod(path, test.file),
			os.Chmod(folder, test.folder), os.Symlink(path, link)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range []string{path, link} {
			if err := NotShared(p); (err != nil) != test.refused {
				t.Errorf("a file %s: %v", name, err)
			}
		}
	}
}

package decode

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/recipe-rl/recipe/schema/function"
)

func withFooter(footer string) []byte {
	return append([]byte("PAR1"+footer), append(binary.LittleEndian.AppendUint32(nil, uint32(len(footer))), "PAR1"...)...)
}

// A Parquet file comes with a stranger's folder, and validate and editors read its footer.
func FuzzColumnsOfParquet(f *testing.F) {
	var b bytes.Buffer
	type row struct {
		Prompt string   `parquet:"prompt"`
		Answer *int64   `parquet:"answer"`
		Tags   []string `parquet:"tags,list"`
	}
	if err := parquet.Write(&b, []row{{Prompt: "a"}, {Prompt: "b", Tags: []string{"x"}}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("PAR1\x00\x00\x00\x00PAR1"))
	f.Add(withFooter("\x15\x02\x19\xfc\xff\xff\xff\xff\x07"))                                  // a list of 2^31-1 columns
	f.Add(withFooter("\x15\x02\x19\x1c\x9c" + strings.Repeat("\x1c", headOfFooter)))           // a column of many levels
	f.Add(withFooter("\x15\x02\x19\x1c\x48\xff\xff\xff\xff\x07"))                              // a name of 2 GiB
	f.Add(withFooter("\x15\x02\x19\x1c\x48\x01a\x15\xff\xff\xff\xff\x0f\x00\x16\x02\x00\x00")) // a root of 2^31 columns
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "rows.parquet")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		files := &function.Files{Dir: dir}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		columnsOf(path, files)
		rowsOf(path, files)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("%d bytes took %d MiB", len(data), used>>20)
		}
	})
}

package bench

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// ReadResult reads the text of the result in an output directory, or in a file. A file that gzip
// made is unpacked, whatever its name. Results that are committed are packed: their text repeats
// itself, so they take a tenth of the space.
func ReadResult(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "result.json")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) { // the first bytes of every gzip file; no JSON begins with them
		return b, nil
	}
	in, err := gzip.NewReader(bytes.NewReader(b))
	if err == nil {
		b, err = io.ReadAll(in)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", path, err)
	}
	return b, nil
}

// ResultFiles lists the files of results in a directory, by name: *.json and *.json.gz. dir may be a pattern of
// filepath.Glob; without a match there are none.
func ResultFiles(dir string) ([]string, error) {
	var out []string
	for _, form := range []string{"*.json", "*.json.gz"} {
		files, err := filepath.Glob(filepath.Join(dir, form))
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	slices.Sort(out)
	return out, nil
}

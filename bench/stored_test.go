package bench

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAResultIsReadFromADirectoryAFileAndAPackedFile(t *testing.T) {
	const text = `{"schema":"` + Schema + `","id":"x"}`
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("result.json", []byte(text))
	put("b.json.gz", packed.Bytes())
	put("c.json", packed.Bytes()) // what decides is the content
	put("torn.json.gz", packed.Bytes()[:packed.Len()-4])
	put("notes.txt", nil)
	for _, name := range []string{"", "result.json", "b.json.gz", "c.json"} {
		path := filepath.Join(dir, name)
		if r, err := Load(path); err != nil || r.ID != "x" {
			t.Errorf("%q: %+v, %v", name, r, err)
		}
		if wrong, err := Verify(path, new(Harness)); err != nil || len(wrong) > 0 {
			t.Errorf("%q: %q, %v", name, wrong, err)
		}
	}
	for _, name := range []string{"torn.json.gz", "absent.json"} {
		if r, err := Load(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was read as %+v", name, r)
		}
	}
	files, err := ResultFiles(dir)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if want := []string{"b.json.gz", "c.json", "result.json", "torn.json.gz"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("files %q, %v; want %q", files, err, want)
	}
}

package lint

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// plant makes a tree from text in which "-- name --" starts a file. The module is example.com/m.
func plant(t *testing.T, text string) *tree {
	t.Helper()
	r, err := loadTree(files(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func files(text string) fstest.MapFS {
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module example.com/m\n\ngo 1.26\n")}}
	name := ""
	for line := range strings.Lines(text) {
		if head, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSuffix(strings.TrimSpace(head), " --")
			fsys[name] = &fstest.MapFile{}
		} else if name != "" {
			fsys[name].Data = append(fsys[name].Data, line...)
		}
	}
	return fsys
}

// wantFindings holds findings against their texts, in any order.
func wantFindings(t *testing.T, got []finding, want ...string) {
	t.Helper()
	var texts []string
	for _, f := range got {
		texts = append(texts, f.String())
	}
	for _, w := range want {
		if !slices.Contains(texts, w) {
			t.Errorf("not found: %s", w)
		}
	}
	for _, g := range texts {
		if !slices.Contains(want, g) {
			t.Errorf("found: %s", g)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d findings, want %d", len(got), len(want))
	}
}

func TestLoadTreeLeavesOutNestedModulesTestdataAndHiddenFolders(t *testing.T) {
	r := plant(t, `
-- internal/core/a.go --
package core
-- internal/core/testdata/b.go --
this does not parse
-- bench/peers/go.mod --
module example.com/peers
-- bench/peers/c.go --
package peers
-- .hidden/d.go --
package hidden
-- tools/go.mod --
module example.com/tools
`)
	if len(r.pkgs) != 1 || r.pkgs["internal/core"] == nil || len(r.pkgs["internal/core"].files) != 1 {
		t.Errorf("packages %v, want internal/core alone", r.pkgs)
	}
	if r.module != "example.com/m" {
		t.Errorf("module %q", r.module)
	}
}

func TestUnparsedFileFailsTheLoad(t *testing.T) {
	if _, err := loadTree(files("-- a/a.go --\npackage a\nfunc {")); err == nil {
		t.Error("a file that does not parse was passed over")
	}
}

package lint

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// plantModule writes a module to disk, where the go command can read it.
func plantModule(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, files(text)); err != nil {
		t.Fatal(err)
	}
	return dir
}

const shippedModule = `
-- go.mod --
module example.com/m

go 1.26

require pgregory.net/rapid v1.0.0

replace pgregory.net/rapid => ./rapid
-- rapid/go.mod --
module pgregory.net/rapid
-- rapid/rapid.go --
package rapid
-- internal/fault/off.go --
//go:build !faults

package fault

func Point() {}
-- internal/fault/on.go --
//go:build faults

package fault

import "os"

var hook = os.Getenv

func Point() { hook("x") }
-- internal/sim/sim.go --
package sim
-- internal/machine/machinetest/kit.go --
package machinetest
-- internal/core/core.go --
package core
`

func TestWhatMustNotShipIsFoundUnderAnySystemAndTag(t *testing.T) {
	dir := plantModule(t, shippedModule+`
-- cmd/millrace/main.go --
package main

import "example.com/m/internal/fault"

func main() { fault.Point() }
-- cmd/millrace/main_darwin.go --
package main

import _ "pgregory.net/rapid"
-- cmd/millrace/main_invariants.go --
//go:build invariants

package main

import _ "example.com/m/internal/machine/machinetest"
-- cmd/millrace/sim.go --
package main

import _ "example.com/m/internal/sim"
-- sdk/go/client.go --
package millrace

import _ "example.com/m/internal/core"
`)
	for _, c := range []struct {
		target, goos, tags string
		want               []string
	}{
		{"./cmd/millrace", "linux", "", []string{"example.com/m/internal/sim (a package for tests)"}},
		{"./cmd/millrace", "linux", "invariants", []string{
			"example.com/m/internal/machine/machinetest (a package for tests)", "example.com/m/internal/sim (a package for tests)",
		}},
		{"./cmd/millrace", "darwin", "", []string{"pgregory.net/rapid (a test library)", "example.com/m/internal/sim (a package for tests)"}},
		{"./cmd/millrace", "linux", "faults", []string{"example.com/m/internal/fault (fault points)", "example.com/m/internal/sim (a package for tests)"}},
		{"./sdk/go", "linux", "", []string{"example.com/m/internal/core (an internal package)"}},
	} {
		got, err := checkLinked(dir, "example.com/m", c.target, c.goos, c.tags)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, w := range c.want {
			want = append(want, c.target+" links "+w+", on "+c.goos+" with tags \""+c.tags+"\"")
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFaultPointsAndPlantedBugsInABinaryAreFound(t *testing.T) {
	dir := plantModule(t, shippedModule+`
-- cmd/millrace/main.go --
package main

import "example.com/m/internal/fault"

func main() { fault.Point() }
-- cmd/mutant/main.go --
package main

import "os"

func main() { println(os.Getenv("MILLRACE_MUTANT")) }
`)
	scratch := t.TempDir()
	for _, c := range []struct {
		target, tags string
		found        bool
	}{
		{"./cmd/millrace", "", false},
		{"./cmd/millrace", "faults", true},
		{"./cmd/mutant", "", true},
	} {
		got, err := checkBinary(dir, "example.com/m", c.target, c.tags, filepath.Join(scratch))
		if err != nil {
			t.Fatal(err)
		}
		if c.found != (len(got) > 0) {
			t.Errorf("%s with tags %q: found %q", c.target, c.tags, got)
		}
	}
	if _, err := checkLinked(dir, "example.com/m", "./cmd/absent", "linux", ""); err == nil {
		t.Error("a target that does not exist was accepted")
	}
}

package lint

import (
	"slices"
	"strings"
	"testing"
)

// smallLaw is a law of five packages.
const smallLaw = `
-- internal/lint/imports.txt --
# a comment
NONE < core, errs, lint
core,
	errs < machine/{queue,kv}  # Apply replays without disk or clock
core < store, server
server, core < api, sim, test/...
-- internal/lint/lint.go --
package lint
-- internal/core/core.go --
package core
-- internal/errs/errs.go --
package errs
-- internal/machine/kv/kv.go --
package kv
import "example.com/m/internal/core"
-- internal/server/server.go --
package server
-- internal/api/api.go --
package api
-- internal/sim/sim.go --
package sim
-- test/e2e/e2e_test.go --
package e2e
import _ "example.com/m/internal/server"
`

const (
	queueOK = "-- internal/machine/queue/queue.go --\npackage queue\n"
	storeOK = "-- internal/store/store.go --\npackage store\n"
)

func importFindings(t *testing.T, text string) []finding {
	t.Helper()
	r := plant(t, text)
	l, err := readLaw(r.fsys)
	if err != nil {
		t.Fatal(err)
	}
	return checkImports(r, l)
}

func TestTreeWithinTheLawPasses(t *testing.T) {
	wantFindings(t, importFindings(t, smallLaw+queueOK+storeOK))
}

func TestEdgeOutsideTheTableIsNamedWithRowAndReason(t *testing.T) {
	wantFindings(t, importFindings(t, smallLaw+storeOK+`-- internal/machine/queue/lease.go --
package queue

import (
	"fmt"

	"example.com/m/internal/core"
	"example.com/m/internal/store"
)
`), "internal/machine/queue/lease.go:7: imports internal/store; allowed: core, errs; because: Apply replays without disk or clock")
}

func TestEdgeBehindABuildTagIsFound(t *testing.T) {
	wantFindings(t, importFindings(t, smallLaw+storeOK+`-- internal/machine/queue/queue_plan9.go --
//go:build plan9 && neverset

package queue

import _ "example.com/m/internal/store"
`), "internal/machine/queue/queue_plan9.go:5: imports internal/store; allowed: core, errs; because: Apply replays without disk or clock")
}

func TestRowWithoutReasonNamesTheLaw(t *testing.T) {
	wantFindings(t, importFindings(t, smallLaw+queueOK+`-- internal/store/store.go --
package store
import _ "example.com/m/internal/errs"
`), "internal/store/store.go:2: imports internal/errs; allowed: core; because: a new edge is a decision; its place is internal/lint/imports.txt")
}

func TestPackageWithoutRowIsFound(t *testing.T) {
	wantFindings(t, importFindings(t, smallLaw+queueOK+storeOK+`-- internal/extra/extra.go --
package extra
`), "internal/extra/extra.go:1: package extra has no row in internal/lint/imports.txt")
}

func TestStaleRowIsFoundOnBothSides(t *testing.T) {
	law := strings.Replace(smallLaw, "core < store, server", "core, gone < store, server, away", 1)
	wantFindings(t, importFindings(t, law+queueOK+storeOK),
		"internal/lint/imports.txt:5: names gone, which has no Go file: delete it, or list it as planned",
		"internal/lint/imports.txt:5: names away, which has no Go file: delete it, or list it as planned")
}

func TestPlannedPackageMayBeAbsentAndMayNotExist(t *testing.T) {
	law := strings.Replace(smallLaw, "# a comment", "planned: store, {x,core}", 1)
	law = strings.Replace(law, "core < store", "core, x < store", 1)
	wantFindings(t, importFindings(t, law+queueOK),
		"internal/lint/imports.txt:1: lists core as planned, but it exists: take it off the list")
	unnamed := strings.Replace(smallLaw, "# a comment", "planned: y", 1)
	wantFindings(t, importFindings(t, unnamed+queueOK+storeOK), "internal/lint/imports.txt:1: lists y as planned, but no row names it")
}

func TestTestFilesMayImportKitsAndEdgeTestsTheServer(t *testing.T) {
	wantFindings(t, importFindings(t, smallLaw+storeOK+`-- internal/machine/queue/queue_test.go --
package queue_test
import (
	_ "example.com/m/internal/machine/queue"
	_ "example.com/m/internal/sim"
	_ "example.com/m/internal/store"
)
-- internal/machine/queue/queue.go --
package queue
import _ "example.com/m/internal/sim"
-- internal/api/api_test.go --
package api
import _ "example.com/m/internal/server"
-- internal/store/store_test.go --
package store
import _ "example.com/m/internal/server"
-- test/chaos/worker/main.go --
package main
import _ "example.com/m/test/chaos/campaign"
import _ "example.com/m/internal/store"
-- test/chaos/campaign/campaign.go --
package campaign
`),
		"test/chaos/worker/main.go:3: imports internal/store; allowed: server, core; because: a new edge is a decision; its place is internal/lint/imports.txt",
		"internal/machine/queue/queue_test.go:5: imports internal/store; allowed: core, errs; because: Apply replays without disk or clock",
		"internal/machine/queue/queue.go:2: imports internal/sim; allowed: core, errs; because: Apply replays without disk or clock",
		"internal/store/store_test.go:2: imports internal/server; allowed: core; because: a new edge is a decision; its place is internal/lint/imports.txt")
}

func TestUnreadableLawIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no row":         "core errs\n",
		"two rows":       "NONE < core\nNONE < core\n",
		"open brace":     "NONE < machine/{a,b\n",
		"trailing comma": "NONE < core,\n",
		"space":          "NONE < core errs\n",
	} {
		if _, err := readLaw(files("-- internal/lint/imports.txt --\n" + text)); err == nil {
			t.Errorf("%s: accepted %q", name, text)
		}
	}
}

func TestBracesAndRootsAreOpened(t *testing.T) {
	got, err := patterns("core, machine/{queue, kv}, gen/..., bench/{load}")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"internal/core", "internal/machine/queue", "internal/machine/kv", "gen/...", "bench/load"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

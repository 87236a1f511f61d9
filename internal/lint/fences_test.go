package lint

import (
	"testing"
)

func TestLibraryOutsideItsPackageIsFound(t *testing.T) {
	wantFindings(t, checkLibraries(plant(t, `
-- internal/store/store.go --
package store
import _ "github.com/cockroachdb/pebble/v2"
import _ "github.com/cockroachdb/pebble/v2/vfs"
-- internal/node/node.go --
package node
import _ "github.com/cockroachdb/pebble/v2/sstable"
-- internal/node/vfs_test.go --
package node
import _ "github.com/cockroachdb/pebble/v2/vfs/errorfs"
-- internal/replog/replogtest/kit.go --
package replogtest
import _ "github.com/cockroachdb/pebble/v2/vfs"
import _ "pgregory.net/rapid"
-- internal/replog/wal/wal.go --
package wal
import _ "go.etcd.io/raft/v3"
import _ "go.etcd.io/raftlike"
-- internal/core/core_hidden.go --
//go:build neverset

package core
import _ "google.golang.org/protobuf/proto"
-- internal/machine/kv/kv_test.go --
package kv
import _ "github.com/cockroachdb/datadriven"
-- internal/auth/auth.go --
package auth
import _ "github.com/golang-jwt/jwt/v5"
import _ "github.com/cockroachdb/datadriven"
import _ "google.golang.org/grpc/codes"
-- gen/millrace/v1/x.pb.go --
package v1
import _ "google.golang.org/grpc"
import _ "google.golang.org/protobuf/proto"
-- cmd/millrace/main.go --
package main
import _ "github.com/spf13/cobra"
import _ "github.com/rogpeppe/go-internal/testscript"
-- test/chaos/chaos.go --
package chaos
import _ "github.com/anishathalye/porcupine"
`)),
		"internal/node/node.go:2: imports github.com/cockroachdb/pebble/v2/sstable; allowed in: store; because: one package owns the engine",
		"internal/node/vfs_test.go:2: imports github.com/cockroachdb/pebble/v2/vfs/errorfs; allowed in: store and test kits; because: one package owns the engine, and hands others a file system through env",
		"internal/replog/wal/wal.go:2: imports go.etcd.io/raft/v3; allowed in: replog; because: one package owns consensus",
		"internal/core/core_hidden.go:4: imports google.golang.org/protobuf/proto; allowed in: all but core, keys and machine; because: stored and replayed bytes have an encoding of their own",
		"internal/auth/auth.go:3: imports github.com/cockroachdb/datadriven; allowed in: test files, *test packages, sim and test; because: a test library does not ship",
		"internal/auth/auth.go:4: imports google.golang.org/grpc/codes; allowed in: api/..., edge, etcdapi, rest, sdk/go/..., gen/..., bench/load, test/sdk/fake; because: only edges and clients speak it",
		"cmd/millrace/main.go:3: imports github.com/rogpeppe/go-internal/testscript; allowed in: test files, *test packages, sim and test; because: a test library does not ship",
	)
}

func TestClockInAMachineIsFoundUnderAnyNameAndTag(t *testing.T) {
	wantFindings(t, checkCalls(plant(t, `
-- internal/machine/queue/lease.go --
package queue
import clock "time"
func now() clock.Time { return clock.Now() }
var wait clock.Duration
-- internal/machine/queue/lease_js.go --
//go:build js

package queue
import "time"
var since = time.Since
-- internal/machine/queue/dot.go --
package queue
import . "time"
-- internal/machine/queue/shadow.go --
package queue
import "time"
type fake struct{}
func (fake) Now() int { return 0 }
func f(time fake) int { return time.Now() }
var d time.Duration
-- internal/machine/queue/queue_test.go --
package queue
import "time"
var now2 = time.Now()
-- internal/machine/machinetest/kit.go --
package machinetest
import "math/rand/v2"
var n = rand.Int()
`)),
		"internal/machine/queue/lease.go:3: uses time.Now: time is the entry's stamp",
		"internal/machine/queue/lease_js.go:5: uses time.Since: time is the entry's stamp",
		"internal/machine/queue/dot.go:1: has a dot import, which hides what a call is",
	)
}

func TestWorldAndConcurrencyInReplayedPackagesAreFound(t *testing.T) {
	wantFindings(t, checkCalls(plant(t, `
-- internal/keys/keys.go --
package keys
import (
	"hash/maphash"
	"log/slog"
	"math/rand"
	"net"
	"os"
)
func f(c chan int) {
	go f(nil)
	select {}
}
`)),
		"internal/keys/keys.go:3: imports hash/maphash: replicas must replay alike",
		"internal/keys/keys.go:4: imports log/slog: replicas must replay alike",
		"internal/keys/keys.go:5: imports math/rand: replicas must replay alike",
		"internal/keys/keys.go:6: imports net: replicas must replay alike",
		"internal/keys/keys.go:7: imports os: replicas must replay alike",
		"internal/keys/keys.go:9: has a channel: replicas must replay alike",
		"internal/keys/keys.go:10: starts a goroutine",
		"internal/keys/keys.go:11: has a select: replicas must replay alike",
	)
}

func TestVectorMayLockButNotStartWork(t *testing.T) {
	wantFindings(t, checkCalls(plant(t, `
-- internal/vector/vector.go --
package vector
import (
	"sync"
	"time"
)
var mu sync.Mutex
func f(d time.Duration) { go f(0) }
`)),
		"internal/vector/vector.go:4: imports time: vector knows neither time nor chance",
		"internal/vector/vector.go:7: starts a goroutine",
	)
}

func TestWorldOutsideItsSeamIsFound(t *testing.T) {
	wantFindings(t, checkCalls(plant(t, `
-- internal/node/node.go --
package node
import (
	"crypto/rand"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)
func f(l net.Listener) {
	time.AfterFunc(time.Second, nil)
	os.OpenFile("", 0, 0)
	os.Getpid()
	net.Dial("", "")
	http.Get("")
	mrand.Int()
	mrand.New(nil)
	rand.Read(nil)
	exec.Command("")
}
-- internal/auth/auth.go --
package auth
import "crypto/rand"
import "time"
var now = time.Now
-- internal/env/env.go --
package env
import "os/exec"
import "time"
var now = time.Now
-- internal/sim/sim.go --
package sim
import "time"
var now = time.Now
-- sdk/go/client.go --
package millrace
import "time"
var now = time.Now
`)),
		"internal/node/node.go:3: imports crypto/rand: randomness comes through env.Rand",
		"internal/node/node.go:8: imports os/exec: processes come through env",
		"internal/node/node.go:12: uses time.AfterFunc: time comes through env.Clock",
		"internal/node/node.go:13: uses os.OpenFile: files come through env.FS",
		"internal/node/node.go:15: uses net.Dial: connections come through env.Net",
		"internal/node/node.go:16: uses net/http.Get: connections come through env.Net",
		"internal/node/node.go:17: uses math/rand/v2.Int: randomness comes through env.Rand",
		"internal/auth/auth.go:4: uses time.Now: time comes through env.Clock",
	)
}

func replayFindings(t *testing.T, text string) []finding {
	t.Helper()
	found, err := checkReplay(plant(t, text), root)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestMapOrderInReplayedPackagesIsFound(t *testing.T) {
	const order = ": its order differs between replicas; "
	wantFindings(t, replayFindings(t, `
-- internal/core/core.go --
package core
type Set map[string]int
type Rows struct{ Set Set }
-- internal/machine/queue/queue.go --
package queue
import (
	"maps"
	"slices"

	"example.com/m/internal/core"
)
func direct(r core.Rows) { for range r.Set {} }
func generic[M ~map[string]int](m M) { for range m {} }
func keys(m core.Set) { for range maps.Keys(m) {} }
func collected(m core.Set) []string { return slices.Collect(maps.Keys(m)) }
func sorted(m core.Set) { for _, k := range slices.Sorted(maps.Keys(m)) { _ = k } }
func list(l []int) { for range l {} }
-- internal/machine/queue/tagged.go --
//go:build neverset

package queue
func list(l map[int]int) { for range l {} }
`),
		"internal/machine/queue/queue.go:8: ranges over a map"+order+"range over slices.Sorted(maps.Keys(m))",
		"internal/machine/queue/queue.go:9: ranges over a map"+order+"range over slices.Sorted(maps.Keys(m))",
		"internal/machine/queue/queue.go:10: walks a map with maps.Keys"+order+"use slices.Sorted(maps.Keys(m))",
		"internal/machine/queue/queue.go:11: walks a map with maps.Keys"+order+"use slices.Sorted(maps.Keys(m))",
		"internal/machine/queue/tagged.go:4: ranges over a map"+order+"range over slices.Sorted(maps.Keys(m))",
	)
}

func TestFloatThatIsComputedWithInReplayedPackagesIsFound(t *testing.T) {
	const say = " a float: compilers round differently per processor, so replicas would part ways"
	wantFindings(t, replayFindings(t, `
-- internal/machine/search/search.go --
package search
import "math"
const half = 1.0 / 2
type score float32
func less(a, b score) bool { return a < b }
func sum(a float64) float64 { a += 2; a++; return a }
func whole(a float64) int { return int(a) }
func most(a, b float64) float64 { return max(a, b) }
func store(v []float32) uint32 { w := v[0]; return math.Float32bits(w) }
`),
		"internal/machine/search/search.go:5: computes with or compares"+say,
		"internal/machine/search/search.go:6: computes with"+say,
		"internal/machine/search/search.go:6: computes with"+say,
		"internal/machine/search/search.go:7: makes an integer of"+say,
		"internal/machine/search/search.go:8: compares"+say,
	)
}

func TestPackageVariableThatChangesIsFound(t *testing.T) {
	const say = ": what replicas share is in the store"
	wantFindings(t, replayFindings(t, `
-- internal/core/core.go --
package core
import "errors"
var ErrBad = errors.New("bad")
var Limit = 3
var names = [...]string{"a", "b"}
func name(i int) string { return names[i] }
-- internal/machine/kv/kv.go --
package kv
import (
	"sync"

	"example.com/m/internal/core"
)
var (
	count int
	seen  = map[string]bool{}
	mu    sync.Mutex
	table = [4]struct{ n int }{}
)
func f() {
	count++
	seen["x"] = true
	delete(seen, "x")
	mu.Lock()
	table[1].n = 2
	core.Limit = 4
	p := &count
	count := 0
	count = 1
	_, _ = p, count
}
`),
		"internal/core/core.go:4: exports package variable Limit, which others can change: offer a function",
		"internal/machine/kv/kv.go:14: assigns package variable count"+say,
		"internal/machine/kv/kv.go:15: assigns package variable seen"+say,
		"internal/machine/kv/kv.go:16: changes package variable seen"+say,
		"internal/machine/kv/kv.go:17: takes the address of package variable mu"+say,
		"internal/machine/kv/kv.go:18: assigns package variable table"+say,
		"internal/machine/kv/kv.go:19: assigns package variable Limit"+say,
		"internal/machine/kv/kv.go:20: takes the address of package variable count"+say,
	)
}

func TestImportThatCannotBeReadIsFound(t *testing.T) {
	found := replayFindings(t, "-- internal/core/core.go --\npackage core\nimport _ \"example.com/absent\"\n")
	if len(found) != 1 || found[0].file != "internal/core/core.go" || found[0].line != 2 {
		t.Errorf("found %v", found)
	}
}

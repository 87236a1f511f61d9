package lint

import (
	"strings"
	"testing"
)

func TestErrorTextThatDecidesIsFound(t *testing.T) {
	const say = " an error's text: match its type"
	wantFindings(t, checkErrors(plant(t, `
-- internal/node/node.go --
package node
import (
	"regexp"
	"strings"
)
func f(err error, re *regexp.Regexp) {
	_ = err.Error() == "not found"
	_ = strings.Contains(strings.ToLower(err.Error()), "not found")
	_ = strings.HasPrefix(err.Error(), "x")
	_ = re.MatchString(err.Error())
	switch err.Error() {
	}
	println(err.Error())
	_ = iterator.Error() != nil
	_ = strings.ReplaceAll(err.Error(), "a", "b")
}
-- internal/node/node_test.go --
package node
import "strings"
func g(err error) bool { return strings.Contains(err.Error(), "names the file") }
`)),
		"internal/node/node.go:7: compares"+say,
		"internal/node/node.go:8: searches"+say,
		"internal/node/node.go:9: searches"+say,
		"internal/node/node.go:10: searches"+say,
		"internal/node/node.go:11: switches on"+say,
	)
}

func TestBarePanicIsFound(t *testing.T) {
	wantFindings(t, checkErrors(plant(t, `
-- internal/node/node.go --
package node
func f() {
	panic("bare")

	panic("explained") // nothing can be written any more
}
func g() {
	// The caller promised it.
	panic("explained")
}
func h(panic func(string)) { panic("a parameter") }
-- internal/errs/errs.go --
package errs
func Assertf() { panic("here it belongs") }
`)), "internal/node/node.go:3: panics: use errs.Assertf, or say in a comment why nothing else is left")
}

func TestCodeWithoutRowIsFound(t *testing.T) {
	const codes = `
-- internal/errs/errs.go --
package errs
type Code uint8
const (
	OK       Code = 0
	NotFound Code = 1
	Internal Code = 2
)
const Other = 3
-- internal/edge/errors.go --
package api
import "example.com/m/internal/errs"
var facts = []errs.Code{
	errs.NotFound,
	errs.Internal,
}
func f() errs.Code { return errs.NotFound }
`
	wantFindings(t, checkErrorTable(plant(t, codes)))
	wantFindings(t, checkErrorTable(plant(t, strings.Replace(codes, "\terrs.NotFound,\n", "", 1))),
		"internal/errs/errs.go:5: errs.NotFound has no row in the table of internal/edge/errors.go")
	gone := strings.Replace(codes, "internal/edge/errors.go", "internal/edge/other.go", 1)
	wantFindings(t, checkErrorTable(plant(t, gone)), "internal/edge/errors.go:1: is missing: it holds the table from facts to codes")
}

func TestPackageCommentAndExportedCommentsAreWanted(t *testing.T) {
	wantFindings(t, checkComments(plant(t, `
-- internal/one/a.go --
// Package one has one.
package one

type T struct{}

// U is described.
type U struct{}

func F() {}

func (U) Error() string { return "" }
func (u *U) Run()       {}
func (t hidden) Run()   {}

type hidden struct{}

// The group is described.
const (
	A = 1
	B = 2
)

var V, w = 1, 2
const C = 1 // it is a number
-- internal/two/a.go --
// Package two has one.
package two
-- internal/two/b_tagged.go --
//go:build neverset

// Package two has two.
package two
-- internal/none/a.go --
//go:build linux

package none
-- internal/none/a_test.go --
// Package none is described where no reader looks.
package none
-- test/e2e/a_test.go --
// Package e2e runs real processes.
package e2e
-- gen/millrace/v1/a.pb.go --
package v1
type X int
`)),
		"internal/one/a.go:4: exported type T has no comment",
		"internal/one/a.go:9: exported function F has no comment",
		"internal/one/a.go:12: exported function Run has no comment",
		"internal/one/a.go:23: exported var V has no comment",
		"internal/two/b_tagged.go:3: package two has a second package comment; the first is in internal/two/a.go",
		"internal/none/a.go:1: package none has no package comment",
	)
}

func TestSleepAndFixedPortInTestsAreFound(t *testing.T) {
	wantFindings(t, checkSleep(plant(t, `
-- internal/node/node_test.go --
package node
import (
	"testing"
	"testing/synctest"
	zeit "time"
)
func TestX(t *testing.T) {
	zeit.Sleep(1)
	synctest.Test(t, func(t *testing.T) { zeit.Sleep(1) })
	listen("127.0.0.1:7081", ":80", "localhost:1", "[::1]:9", "127.0.0.1:0", "node-2.example:7081", "a:b:7")
}
-- internal/node/node.go --
package node
import "time"
const address = ":7081"
func f() { time.Sleep(1) }
-- internal/machine/machinetest/kit.go --
package machinetest
import "time"
func f() { time.Sleep(1) }
-- test/chaos/kill_test.go --
package chaos
import "time"
func f() { time.Sleep(1) }
-- test/script/script_test.go --
package script
import "time"
func f() { time.Sleep(1) }
`)),
		"internal/node/node_test.go:8: sleeps: wait on a channel, or use testing/synctest",
		"internal/node/node_test.go:10: has a fixed port, 127.0.0.1:7081: listen on port 0; for a mere name take another host",
		"internal/node/node_test.go:10: has a fixed port, :80: listen on port 0; for a mere name take another host",
		"internal/node/node_test.go:10: has a fixed port, localhost:1: listen on port 0; for a mere name take another host",
		"internal/node/node_test.go:10: has a fixed port, [::1]:9: listen on port 0; for a mere name take another host",
		"internal/machine/machinetest/kit.go:3: sleeps: wait on a channel, or use testing/synctest",
		"test/script/script_test.go:3: sleeps: wait on a channel, or use testing/synctest",
	)
}

func TestEmptyNamesInitsAndUncitedTodosAreFound(t *testing.T) {
	wantFindings(t, checkNames(plant(t, `
-- internal/util/a.go --
package util
func init() {}
type t struct{}
func (t) init() {}
// TODO make it fast
// TODO(#12): make it faster
/* TODO(decision 0012), then TODO it again */
-- gen/x/a.go --
package types
func init() {}
`)),
		"internal/util/a.go:1: package name util says nothing: name what it holds",
		"internal/util/a.go:2: has an init: call what is needed where it is needed",
		"internal/util/a.go:5: a TODO cites nothing: write TODO(#12) for an issue, TODO(decision 0012) for a record",
		"internal/util/a.go:7: a TODO cites nothing: write TODO(#12) for an issue, TODO(decision 0012) for a record",
	)
}

func TestLongFilesAndFunctionsWantAReason(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("\n", n) }
	long := "-- internal/a/long.go --\npackage a\n" + lines(800) +
		"-- internal/a/long_test.go --\npackage a\n" + lines(1000) +
		"-- internal/a/func.go --\npackage a\nfunc (t T) F() {" + lines(80) + "}\nfunc G() {" + lines(79) + "}\n"
	found, err := checkSizes(plant(t, "-- internal/lint/sizes.txt --\n# none\n"+long))
	if err != nil {
		t.Fatal(err)
	}
	wantFindings(t, found,
		"internal/a/long.go:1: internal/a/long.go has 801 lines, over 800: split it, or write the reason into internal/lint/sizes.txt",
		"internal/a/func.go:2: internal/a/func.go:F has 81 lines, over 80: split it, or write the reason into internal/lint/sizes.txt")

	found, err = checkSizes(plant(t, `-- internal/lint/sizes.txt --
internal/a/long.go it is a table
internal/a/func.go:F it is straight
internal/a/func.go:G it was straight
`+long))
	if err != nil {
		t.Fatal(err)
	}
	wantFindings(t, found, "internal/lint/sizes.txt:3: internal/a/func.go:G is not long: delete the line")

	if _, err = checkSizes(plant(t, "-- internal/lint/sizes.txt --\ninternal/a/long.go\n")); err == nil {
		t.Error("a line without a reason was accepted")
	}
}

func TestUnplainWordsAreFound(t *testing.T) {
	files := "-- go.mod --\nmodule m\n-- internal/a/a.go --\n// Package a begins anew beside b.\npackage a\n\nconst text = \"cursor is none of them\" // there is no such thing, it is no longer\n" +
		"-- internal/a/a_test.go --\npackage a\n\nconst token = \"nobody\"\n-- docs/a.md --\nNobody waits.\n```\nwhoever\n```\n-- docs/decisions/0001-a.md --\nwhoever\n"
	found, err := checkProse(plant(t, files))
	if err != nil {
		t.Fatal(err)
	}
	wantFindings(t, found,
		`docs/a.md:1: "Nobody" is hard to read: write who it is: no client, no node, no worker`,
		`internal/a/a.go:1: "anew" is hard to read: write "again" or "from scratch"`,
		`internal/a/a.go:1: "beside" is hard to read: write "besides", "next to", "in addition to" or "mutually exclusive"`,
		`internal/a/a.go:4: "is none of" is hard to read: write "is not one of"; in errors "must be one of"`,
	)
	found, err = checkProse(plant(t, files+"-- internal/lint/prose.txt --\n# counts\n3 internal/a\n4 docs\n"))
	if err != nil {
		t.Fatal(err)
	}
	wantFindings(t, found, "internal/lint/prose.txt:1: docs has 1 unplain words left: write 1 in place of 4")
	if _, err = checkProse(plant(t, files+"-- internal/lint/prose.txt --\nmany docs\n")); err == nil {
		t.Error("a line without a count was accepted")
	}
}

func TestDecisionsHaveANumberAndAStatus(t *testing.T) {
	found, err := checkDecisions(plant(t, "-- docs/decisions/0001-a.md --\n# 1. A\n\nStatus: replaced by 0003\n"+
		"-- docs/decisions/0002-b.md --\n# 2. B\n\n## Need\n-- docs/decisions/0002-c.md --\n# 2. C\n\nStatus: accepted\n"+
		"-- docs/decisions/0004-d.md --\n# 4. D\n\nStatus: likely\n"))
	if err != nil {
		t.Fatal(err)
	}
	wantFindings(t, found,
		"docs/decisions/0002-b.md:3: a decision's second paragraph must be its status, such as \"Status: accepted\"",
		"docs/decisions/0002-c.md:1: decisions are numbered in order: want 0003",
		"docs/decisions/0004-d.md:3: a decision's second paragraph must be its status, such as \"Status: accepted\"",
	)
}

func TestDanglingLinksAreFound(t *testing.T) {
	found, err := checkLinks(plant(t, "-- README.md --\n"+
		"# Read me\n## What it's for: 2 things\n"+
		"[a](docs/a.md) [b](docs/b.md) [c](https://example.com/x) [d](#what-its-for-2-things) [e](#gone)\n"+
		"![i](docs/i.png \"title\") `[code](nowhere)` [up](../x) [h](docs/a.md#deep) [g](docs/a.md#gone)\n"+
		"[ref]: docs/c.md\n```\n[block](nowhere)\n```\n"+
		"-- docs/a.md --\n### Deep\n[back](../README.md#read-me) [root](/docs/a.md)\n"))
	if err != nil {
		t.Fatal(err)
	}
	wantFindings(t, found,
		"README.md:3: link to docs/b.md: there is no such file",
		"README.md:3: link to #gone: there is no such heading",
		"README.md:4: link to docs/i.png: there is no such file",
		"README.md:4: link to ../x: leads out of the repository",
		"README.md:4: link to docs/a.md#gone: there is no such heading",
		"README.md:5: link to docs/c.md: there is no such file",
	)
}

func TestRowsOfTheScriptsTablesThatNameNothingAreFound(t *testing.T) {
	found, err := checkSuite(plant(t, `-- internal/a/a_test.go --
package a
func TestLong(*testing.T) {}
func TestOther(*testing.T) {}
func (r rig) TestMethod() {}
-- scripts/long_tests.txt --
# package, test
internal/a TestOther # why
internal/a TestLong
internal/a TestMethod
internal/b TestLong
-- scripts/budgets.txt --
clock tests 100
cpu internal/a 20
cpu internal/b 20
cpu internal/a
`))
	if err != nil {
		t.Fatal(err)
	}
	wantFindings(t, found,
		"scripts/long_tests.txt:3: internal/a TestLong is out of order",
		"scripts/long_tests.txt:4: internal/a TestMethod is not a test: delete the line",
		"scripts/long_tests.txt:5: internal/b TestLong is not a test: delete the line",
		`scripts/budgets.txt:3: ["cpu" "internal/b" "20"] must name a package of this module, and seconds`,
		`scripts/budgets.txt:4: ["cpu" "internal/a"] must name a package of this module, and seconds`)
	if _, err := checkSuite(plant(t, "")); err == nil {
		t.Error("a table that is missing is no error")
	}
}

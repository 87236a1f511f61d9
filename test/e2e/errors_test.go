package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// TestErrorsOfAllPartitionsAreOneGroup: a namespace of four partitions over three nodes. The same error is one group at every node, and
// under the next leaders.
func TestErrorsOfAllPartitionsAreOneGroup(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3)
	ctx := bounded(t, 90*time.Second)
	c.leader()
	wide := millrace.Namespace("wide")
	k := c.client(0, wide)
	_, err := k.CreateNamespace(ctx, 4)
	noErr(t, err)
	const tasks = 40
	job := millrace.Job[int, int]("send").Queue("mail")
	for n := range tasks {
		_, err := job.Add(ctx, k, n, millrace.Tag(fmt.Sprint(n)))
		noErr(t, err)
	}
	failed := 0
	for failed < tasks {
		claimed := got[[]millrace.Claimed](t)(k.Claim(ctx, millrace.ClaimQuery{Queues: []string{"mail"}, Max: 16, Wait: time.Second}))
		for _, one := range claimed {
			f := millrace.Failure{Message: fmt.Sprint("order ", failed, " is unknown"), Fatal: true}
			if failed++; failed%4 == 0 {
				f.Code = "E_SMTP"
			}
			_, err := k.Fail(ctx, one.ID, one.Token, f)
			noErr(t, err)
		}
	}
	check := func(i int) string {
		t.Helper()
		list := got[*millrace.ErrorList](t)(c.client(i, wide).Errors(ctx, millrace.ErrorQuery{Queue: "mail", Since: time.Hour}))
		if list.Partial || len(list.Groups) != 2 || list.Groups[0].Count != tasks*3/4 || list.Groups[1].Count != tasks/4 || list.Groups[1].Code != "E_SMTP" ||
			len(list.Groups[0].Sample) != 5 || list.Groups[0].Trend[22]+list.Groups[0].Trend[23] != tasks*3/4 {
			t.Fatalf("node %d lists %+v", i+1, list)
		}
		return list.Groups[0].Fingerprint
	}
	fp := check(0)
	for i := range 3 {
		if other := check(i); other != fp {
			t.Errorf("node %d shows %s, another one %s", i+1, other, fp)
		}
	}
	found := 0
	for q := (millrace.ListQuery{State: millrace.Dead, Queue: "mail", Fingerprint: fp}); ; {
		page, next, err := k.List(ctx, q)
		noErr(t, err)
		if found += len(page); next == "" {
			break
		}
		q.Cursor = next
	}
	if found != tasks*3/4 {
		t.Errorf("%d tasks are found by the fingerprint", found)
	}
	lead := c.leader()
	c.stop(lead)
	check((lead + 1) % 3)
	c.start(lead)

	// The command line shows the same.
	e := run(t, append([]string{"queue", "errors", "mail", "--ns", "wide", "--json"}, c.door((lead+1)%3)...)...)
	line, _, _ := strings.Cut(e.out, "\n")
	var shown struct {
		Fingerprint string
		Count       int
	}
	if err := json.Unmarshal([]byte(line), &shown); err != nil || e.code != 0 || shown.Fingerprint != fp || shown.Count != tasks*3/4 {
		t.Errorf("exit %d, %v: %s", e.code, err, e.out)
	}
}

// TestErrorsAreOfTheirTenant: another tenant sees none of them, and finds none of the tasks.
func TestErrorsAreOfTheirTenant(t *testing.T) {
	t.Parallel()
	l := startLocal(t, holder{"acme", "admin", ""}, holder{"evil", "admin", ""})
	ctx := bounded(t, 60*time.Second)
	k, evil := l.client(0), l.client(1)
	for _, one := range []*millrace.Client{k, evil} {
		_, err := millrace.Job[int, int]("send").Queue("mail").Add(ctx, one, 1)
		noErr(t, err)
	}
	claimed := got[[]millrace.Claimed](t)(k.Claim(ctx, millrace.ClaimQuery{Queues: []string{"mail"}}))
	_, err := k.Fail(ctx, claimed[0].ID, claimed[0].Token, millrace.Failure{Code: "SECRET", Fatal: true})
	noErr(t, err)
	list := got[*millrace.ErrorList](t)(k.Errors(ctx, millrace.ErrorQuery{}))
	if len(list.Groups) != 1 {
		t.Fatalf("listed: %+v", list)
	}
	if other := got[*millrace.ErrorList](t)(evil.Errors(ctx, millrace.ErrorQuery{})); len(other.Groups) != 0 {
		t.Errorf("another tenant is shown %+v", other)
	}
	page := must(t, l.raw(1), "TaskService/List", &millracev1.ListRequest{Fingerprint: list.Groups[0].Fingerprint}, &millracev1.ListResponse{})
	if len(page.Tasks) != 0 {
		t.Errorf("another tenant finds %v", page.Tasks)
	}
	l.audit()
}

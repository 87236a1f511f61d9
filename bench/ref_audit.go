package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace/sdk/go"
)

// RefReader reads every ref of a repository on one server, in any order.
type RefReader struct {
	Name string // of the server, for people
	Each func(ctx context.Context, fn func(name, object string) error) error
}

// refReaders are all servers of the run, as readers of one repository. Each reads its own server.
func (o *oneRun) refReaders(repo string) []RefReader {
	var out []RefReader
	for i, client := range o.clients {
		out = append(out, RefReader{o.c.endpoints[i].Name, func(ctx context.Context, fn func(name, object string) error) error {
			_, err := client.Repo(repo).Each(ctx, millrace.RefQuery{}, OnlyRefs(fn))
			return err
		}})
	}
	return out
}

// OnlyRefs makes a function of all that a repository lists from one of refs by name and object:
// HEAD, which names another ref, is passed over.
func OnlyRefs(fn func(name, object string) error) func(r millrace.Ref) error {
	return func(r millrace.Ref) error {
		if !strings.HasPrefix(r.Name, "refs/") {
			return nil // HEAD, which names another
		}
		return fn(r.Name, r.ID)
	}
}

// AuditRefs reads all refs back from every server, and compares them with what was acknowledged:
// each ref is there, once and at its object, and no other is. It holds the ledger's lock for so
// long: nothing may change meanwhile. Error: a server cannot be read.
func AuditRefs(ctx context.Context, l *RefLedger, servers ...RefReader) (*Audit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &Audit{Created: l.acked, Unknown: l.lost, Checked: "every ref", OK: true}
	for i, server := range servers {
		a := refAuditor{l: l, server: server.Name, seen: make([]bool, len(l.at)), kept: map[string]bool{}}
		if err := server.Each(ctx, a.ref); err != nil {
			return nil, fmt.Errorf("read the refs of %s back from %s: %w", l.Repo, server.Name, err)
		}
		a.missing()
		if i == 0 {
			out.Counted = a.read
		}
		out.ReadBack += a.read
		out.Violations = append(out.Violations, a.violations...)
	}
	out.OK = len(out.Violations) == 0
	return out, nil
}

// refAuditor compares one server's refs with the ledger, whose lock AuditRefs holds.
type refAuditor struct {
	l      *RefLedger
	server string
	// seen says which numbered refs the server listed, and kept which of the others.
	seen       []bool
	kept       map[string]bool
	read       uint64
	violations []string
}

func (a *refAuditor) violate(format string, args ...any) {
	if len(a.violations) < maxViolations {
		a.violations = append(a.violations, a.server+": "+fmt.Sprintf(format, args...))
	}
}

// ref judges one ref that the server lists. A ref may be where it was last acknowledged, or where a
// change of unknown outcome may have put it since.
func (a *refAuditor) ref(name, object string) error {
	a.read++
	if want, ok := a.l.other[name]; ok {
		a.kept[name] = true
		if want != object {
			a.violate("different: %s is at %s, and was made at %s", name, object, want)
		}
		return nil
	}
	n, ok := a.l.number(name)
	if !ok || n >= len(a.l.at) {
		a.violate("unexpected: %s, which no client created", name)
		return nil
	}
	if a.seen[n] {
		a.violate("doubled: %s is listed twice", name)
	}
	a.seen[n] = true
	id, known := a.l.ids[object]
	switch {
	case known && (id == a.l.at[n] || slices.Contains(a.l.unsure[n], id)):
	case a.l.at[n] == 0:
		a.violate("unexpected: %s is at %s, though its deletion was acknowledged", name, object)
	default:
		a.violate("different: %s is at %s, and was acknowledged elsewhere", name, object)
	}
	return nil
}

// missing judges the refs that the server did not list. A ref may be missing when it was never
// acknowledged, or when a deletion of unknown outcome came last.
func (a *refAuditor) missing() {
	for n, id := range a.l.at {
		if id != 0 && !a.seen[n] && !slices.Contains(a.l.unsure[n], 0) {
			a.violate("lost: %s was acknowledged and is not there", a.l.Name(n))
		}
	}
	for _, name := range sortedKeys(a.l.other) {
		if !a.kept[name] {
			a.violate("lost: %s is not there", name)
		}
	}
}

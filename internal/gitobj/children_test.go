package gitobj

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// bubble is the clock of a synctest bubble.
type bubble struct{ from time.Time }

func (bubble) Wall() time.Time                    { return time.Now() }
func (b bubble) Boot() time.Duration              { return time.Since(b.from) }
func (bubble) NewTimer(d time.Duration) env.Timer { return bubbleTimer{time.NewTimer(d)} }

type bubbleTimer struct{ *time.Timer }

func (t bubbleTimer) C() <-chan time.Time { return t.Timer.C }

// crowd is children of a test, and what of them was let in or refused.
type crowd struct {
	*children
	t     *testing.T
	order []string
}

// inCrowd runs a test with places for 8 programs of each class: 6 of a tenant, 4 of a principal.
func inCrowd(t *testing.T, l ChildLimits, fn func(c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, children: newChildren(l.withDefaults(), bubble{time.Now()})}
		fn(c)
		synctest.Wait()
		running, waiting := c.counts()
		if running != 0 || waiting != 0 {
			t.Errorf("%d run and %d wait", running, waiting)
		}
		for _, s := range c.shares {
			if s.held != 0 || len(s.tenants) != 0 || len(s.principals) != 0 {
				t.Errorf("%s: %d bytes, %v, %v", s.name, s.held, s.tenants, s.principals)
			}
		}
	})
}

func of(tenant core.TenantID, principal string) asker { return asker{tenant, principal} }

// enters lets a program in that need not wait.
func (c *crowd) enters(k class, by asker, bytes int64) *leave {
	c.t.Helper()
	at := time.Now()
	l, err := c.enter(c.t.Context(), wanted{class: k, by: by, bytes: bytes})
	if err != nil || !time.Now().Equal(at) {
		c.t.Fatalf("%v waited for %v: %v", by, time.Since(at), err)
	}
	return l
}

// waits has one wait, run at once when it is let in, and end.
func (c *crowd) waits(k class, by asker, cpu time.Duration) {
	go func() {
		l, err := c.enter(c.t.Context(), wanted{class: k, by: by})
		if err != nil {
			c.t.Errorf("%v: %v", by, err)
			return
		}
		c.order = append(c.order, by.principal)
		l.end(cpu)
	}()
	synctest.Wait()
}

// late wants one to be refused after the wait, under the name of a limit.
func (c *crowd) late(k class, by asker, bytes int64, limit string) {
	c.t.Helper()
	at := time.Now()
	_, err := c.enter(c.t.Context(), wanted{class: k, by: by, bytes: bytes})
	if got, ok := errors.AsType[core.Unavailable](err); !ok || got.Limit != limit || got.Reason != "overload" {
		c.t.Errorf("%v: %#v, not %s", by, err, limit)
	}
	if waited := time.Since(at); waited != c.wait {
		c.t.Errorf("%v waited for %v", by, waited)
	}
}

func end(all ...*leave) {
	for _, l := range all {
		l.end(0)
	}
}

func TestACallWaitsForABoundedTimeAndIsToldTheLimit(t *testing.T) {
	inCrowd(t, ChildLimits{}, func(c *crowd) {
		var all []*leave
		for range 4 {
			all = append(all, c.enters(forFetch, of(1, "a"), 0))
		}
		c.late(forFetch, of(1, "a"), 0, "git_fetches_principal")
		all = append(all, c.enters(forFetch, of(1, "b"), 0), c.enters(forFetch, of(1, "c"), 0))
		c.late(forFetch, of(1, "d"), 0, "git_fetches_tenant")
		all = append(all, c.enters(forFetch, of(2, "a"), 0), c.enters(forFetch, of(2, "b"), 0))
		c.late(forFetch, of(3, "a"), 0, "git_fetches")

		// Fetches that do not end leave the places of pushes alone, of these tenants too.
		all = append(all, c.enters(forPush, of(1, "a"), 0), c.enters(forPush, of(1, "b"), 0), c.enters(forPush, of(3, "a"), 0))
		end(all...)
	})
}

func TestMemoryOfProgramsIsSharedOut(t *testing.T) {
	inCrowd(t, ChildLimits{Bytes: 1 << 30}, func(c *crowd) { // 512 MiB a class, 384 MiB a tenant, 256 MiB at most a program
		large := c.enters(forPush, of(1, "a"), 250<<20)
		c.late(forPush, of(1, "b"), 200<<20, "git_pushes_memory_tenant")
		second := c.enters(forPush, of(2, "a"), 1<<40) // no program gets more than 256 MiB, and so this one is let in
		c.late(forPush, of(3, "a"), 0, "git_pushes_memory")
		end(second)
		small := c.enters(forPush, of(3, "a"), 0)
		if err := small.need(c.t.Context(), 200<<20); err != nil {
			t.Errorf("more memory that is there: %v", err)
		}
		other := c.enters(forPush, of(2, "a"), 0)
		err := other.need(c.t.Context(), 100<<20)
		if got, ok := errors.AsType[core.Unavailable](err); !ok || got.Limit != "git_pushes_memory" {
			t.Errorf("more memory that is not there: %v", err)
		}
		go func() { end(large) }()
		if err := other.need(c.t.Context(), 100<<20); err != nil {
			t.Errorf("more memory that came back: %v", err)
		}
		end(small, other)
	})
}

func TestWhoWaitsGivesUpOrIsOneTooMany(t *testing.T) {
	inCrowd(t, ChildLimits{Waiting: 8}, func(c *crowd) { // 4 of a class, 2 of a tenant
		ctx, cancel := context.WithCancel(c.t.Context())
		defer cancel()
		var all []*leave
		for _, who := range []string{"a", "b"} {
			for tenant := range core.TenantID(2) {
				all = append(all, c.enters(forFetch, of(tenant, who), 0), c.enters(forFetch, of(tenant, who), 0))
			}
		}
		gave := make(chan error, 4)
		refused := func(tenant core.TenantID) {
			t.Helper()
			if _, err := c.enter(ctx, wanted{class: forFetch, by: of(tenant, "c")}); !errors.Is(err, core.Unavailable{Reason: "overload", Limit: "git_waiting"}) {
				t.Errorf("one too many waits: %v", err)
			}
		}
		for tenant := range core.TenantID(2) {
			for range 2 {
				go func() {
					_, err := c.enter(ctx, wanted{class: forFetch, by: of(tenant, "c")})
					gave <- err
				}()
				synctest.Wait()
			}
			refused(tenant)
		}
		refused(7)
		cancel()
		for range 4 {
			if err := <-gave; !errors.Is(err, context.Canceled) {
				t.Errorf("who gave up was told %v", err)
			}
		}
		end(all...)
	})
}

func TestABackgroundCallWaitsAsLongAsItTakes(t *testing.T) {
	inCrowd(t, ChildLimits{}, func(c *crowd) {
		var all []*leave
		for range 4 {
			all = append(all, c.enters(forPush, of(1, ""), 0))
		}
		go func() {
			l, err := c.enter(c.t.Context(), wanted{class: forPush, by: of(1, ""), patient: true})
			if err != nil {
				t.Errorf("after %v: %v", c.wait, err)
				return
			}
			end(l)
		}()
		<-time.After(100 * c.wait)
		end(all...)
	})
}

func TestWhoHasUsedLeastIsNext(t *testing.T) {
	inCrowd(t, ChildLimits{Wait: time.Hour}, func(c *crowd) {
		c.enters(forPush, of(1, "glutton"), 0).end(90 * time.Second)
		c.enters(forPush, of(1, "modest"), 0).end(time.Second)
		c.enters(forPush, of(2, "other"), 0).end(40 * time.Second)
		var all []*leave
		for i := range 8 {
			all = append(all, c.enters(forPush, of(core.TenantID(10+i/4), fmt.Sprint(i/2)), 0))
		}
		for _, by := range []asker{of(1, "glutton"), of(1, "modest"), of(1, "glutton"), of(2, "other"), of(3, "new")} {
			c.waits(forPush, by, 0)
		}
		one := all[0]
		end(one)
		synctest.Wait()
		if want := []string{"new", "other", "modest", "glutton", "glutton"}; !slices.Equal(c.order, want) {
			t.Errorf("let in were %v, not %v", c.order, want)
		}
		// What was used is forgotten in time: then it counts who came first.
		<-time.After(20 * time.Minute)
		c.order = nil
		again := c.enters(forPush, of(12, ""), 0)
		c.waits(forPush, of(2, "other"), 0)
		c.waits(forPush, of(1, "glutton"), 0)
		end(again)
		synctest.Wait()
		if want := []string{"other", "glutton"}; !slices.Equal(c.order, want) {
			t.Errorf("later let in were %v, not %v", c.order, want)
		}
		end(all[1:]...)
	})
}

func TestWhatIsRememberedOfUseIsBounded(t *testing.T) {
	inCrowd(t, ChildLimits{}, func(c *crowd) {
		for i := range 3 * heldUsages {
			c.enters(forFetch, of(core.TenantID(i), "a"), 0).end(time.Duration(i%2) * time.Second)
		}
		if n := len(c.shares[forFetch].used); n > heldUsages+1 {
			t.Errorf("%d are remembered", n)
		}
	})
}

func TestPlacesFollowFromMemory(t *testing.T) {
	for _, c := range []struct {
		bytes, usual, most        int64
		places, tenant, principal int
	}{
		{64 << 20, 8 << 20, 16 << 20, 4, 3, 2},
		{256 << 20, 32 << 20, 64 << 20, 4, 3, 2},
		{1 << 30, 32 << 20, 256 << 20, 8, 6, 4},
		{16 << 30, 32 << 20, 1 << 30, 8, 6, 4},
	} {
		b := boundsOf(ChildLimits{Bytes: c.bytes}.withDefaults())
		if b.usual != c.usual || b.most != c.most || b.places != c.places || b.tenant != c.tenant || b.principal != c.principal {
			t.Errorf("%d MiB: %+v", c.bytes>>20, b)
		}
		if int64(b.places)*b.usual > b.bytes || 2*b.bytes > c.bytes {
			t.Errorf("%d MiB: programs of the usual size take more: %+v", c.bytes>>20, b)
		}
	}
}

// noise is content that does not get smaller.
func noise(bytes int, seed uint64) string {
	b := make([]byte, bytes)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// TestAProgramThatGetsNoMoreMemoryIsTold has programs with 16 MiB work on what takes more: for a push, a fetch, and a change of a
// file of which only the difference is sent.
func TestAProgramThatGetsNoMoreMemoryIsTold(t *testing.T) {
	small := func(o *Options) { o.Children.Bytes = 64 << 20 }
	told := func(what string, err error) {
		t.Helper()
		if got, ok := errors.AsType[core.Exhausted](err); !ok || got.Limit != "git_memory" || got.Max != 16<<20 {
			t.Errorf("%s: %v", what, err)
		}
	}
	s := newSource(t)
	content := noise(9<<20, 1)
	s.commit("large", content)
	base := s.pack("main")
	s.commit("large", content+"and so on")
	change := s.pack("main", "^main~1")
	if len(change) > 1<<20 {
		t.Fatalf("the change is not stored as a delta: %d bytes", len(change))
	}
	r := newRig(t, small)
	if err := r.push(base, []core.ObjectID{s.id("main~1")}); err != nil {
		t.Errorf("a large object that comes whole is copied: %v", err)
	}
	told("a delta", r.push(change, []core.ObjectID{s.id("main")}))
	if files := r.files(); len(files) != 2 {
		t.Errorf("left are %q", files)
	}

	// The same with more, and then fetched with less.
	r.tune = []func(*Options){func(o *Options) { o.Children.Bytes = 1 << 30 }}
	r.restart()
	if err := r.push(change, []core.ObjectID{s.id("main")}); err != nil {
		t.Fatal(err)
	}
	r.tune = []func(*Options){small}
	r.restart()
	if err := r.Prepare(t.Context(), place); err != nil {
		t.Fatal(err)
	}
	tree := s.id("main:large")
	told("a fetch of the changed file alone", r.Fetch(t.Context(), FetchSpec{At: place, Tenant: 1, Protocol: "2"},
		func(w io.Writer) error {
			_, err := io.WriteString(w, "0011command=fetch0001000fno-progress0032want "+tree.String()+"\n0009done\n0000")
			return err
		},
		func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }))
}

// TestGitReachesItsRepositoryAlone runs a program in place of git's, with what git gets.
func TestGitReachesItsRepositoryAlone(t *testing.T) {
	if !env.CanRestrict() {
		t.Skip("this kernel does not restrict what programs reach")
	}
	r, s := newRig(t), newSource(t)
	first := s.commit("a", "1")
	if err := r.push(s.pack("main"), []core.ObjectID{first}); err != nil {
		t.Fatal(err)
	}
	other := place
	other.Repo = core.RepoID{8}
	secret := filepath.Join(r.dir, other.path(), "secret")
	if err := errors.Join(os.MkdirAll(filepath.Dir(secret), 0o700), os.WriteFile(secret, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if !r.git.confined {
		t.Skip("git is not one of the system's programs")
	}
	shell, err := env.SystemExec{}.Find("sh")
	if err != nil {
		t.Skip("no shell")
	}
	held, done := r.view(r.repoAt(place))
	defer done()
	incoming := r.Area.dir(place.path(), incomingDir, "x")
	if err := os.MkdirAll(incoming, 0o700); err != nil {
		t.Fatal(err)
	}
	r.git.path = shell
	for _, c := range []struct {
		objects, script string
		ok              bool
	}{
		{held, "ls " + quote(held) + "/pack/*.pack && test -r " + quote(r.Area.dir(emptyGitdir, "config")) + " && echo x >/dev/null", true},
		{held, "cat " + quote(secret), false},
		{held, "ls " + quote(r.dir), false},
		{held, "ls " + quote(filepath.Dir(r.dir)), false},
		{held, "echo x >" + quote(held) + "/new", false},
		{held, "rm " + quote(held) + "/pack/*", false},
		{incoming, "echo x >" + quote(incoming) + "/new", true},
		{incoming, "echo x >" + quote(held) + "/new", false},
		{incoming, "echo x >" + quote(r.Area.dir(emptyGitdir, "config")), false},
	} {
		err := r.run(t.Context(), call{tenant: 1, most: PushTime, args: []string{"-c", c.script}, env: append(r.environment(r.Area.dir(emptyGitdir), "GIT_OBJECT_DIRECTORY="+c.objects), "PATH=/usr/bin:/bin")})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.script, err)
		}
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func TestGitThatUsesUpItsProcessorTimeIsTold(t *testing.T) {
	r := newRig(t)
	shell, err := env.SystemExec{}.Find("sh")
	if err != nil {
		t.Skip("no shell")
	}
	r.git.path = shell
	err = r.run(t.Context(), call{tenant: 1, most: PushTime, cpu: time.Second, args: []string{"-c", "while :; do :; done"}})
	if got, ok := errors.AsType[core.Exhausted](err); !ok || got != (core.Exhausted{Limit: "git_cpu_seconds", Max: 1}) {
		t.Errorf("told %v", err)
	}
	if used := r.children.shares[forPush].lately(asker{tenant: 1}); used < time.Second/2 {
		t.Errorf("its tenant has used %v", used)
	}
}

// TestTheReasonOfAFetchThatEndsIsTold gives answers as git writes them, in pieces.
func TestTheReasonOfAFetchThatEndsIsTold(t *testing.T) {
	const abort = "\x03aborting due to possible repository corruption on the remote side."
	pkt := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	data := pkt("packfile\n") + "0001" + pkt("\x01PACK"+strings.Repeat("x", 60000)) + "0005\x01" + "0000"
	for _, c := range []struct{ in, out, why string }{
		{data, data, ""},
		{"0008NAK\nPACK1234 and so on", "0008NAK\nPACK1234 and so on", ""},
		{"", "", ""},
		{"00", "00", ""},
		{"0020short", "0020short", ""},
		{data + pkt("\x02fatal: Out of memory, malloc failed (tried to allocate 9 bytes)\n") + pkt(abort), data +
			pkt("\x02fatal: Out of memory, malloc failed (tried to allocate 9 bytes)\n") + pkt("\x03millrace: limit git_memory of 77 reached"), "limit git_memory of 77 reached"},
		{pkt("\x02remote: fatal: mmap failed: Cannot allocate memory\n") + pkt(abort), pkt("\x02remote: fatal: mmap failed: Cannot allocate memory\n") + pkt("\x03millrace: limit git_memory of 77 reached"), "limit git_memory of 77 reached"},
		{pkt("\x02Counting objects: 3\r") + pkt(abort), pkt("\x02Counting objects: 3\r") + pkt("\x03millrace: git was ended while it made the pack"), ""},
		{pkt("\x02fatal: unable to read 01234\n") + pkt(abort), pkt("\x02fatal: unable to read 01234\n") + pkt(abort), ""},
		{pkt("\x01fatal: Out of memory in a file\n") + pkt("\x02fatal: bad object\n") + pkt(abort), pkt("\x01fatal: Out of memory in a file\n") + pkt("\x02fatal: bad object\n") + pkt(abort), ""},
	} {
		a := newTold(iotest.HalfReader(strings.NewReader(c.in)), 77)
		got, err := io.ReadAll(a)
		why := ""
		if a.why != nil {
			why = a.why.Error()
		}
		if err != nil || string(got) != c.out || why != c.why {
			t.Errorf("%.80q: %q, %v, %q", c.in, got, err, why)
		}
	}
}

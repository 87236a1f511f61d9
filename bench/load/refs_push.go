package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// Commits that are made for a run, more than a machine pushes, and the limits of pushing them.
const (
	// pushesPerSecond is the number of commits made for each second of one pusher alone.
	pushesPerSecond = 100
	// pushChain is the number of commits of one of many pushers.
	pushChain = 64
	// pushTries is how often one commit is pushed to a branch that others push to.
	pushTries = 200
	// pushMost is how long pushes may go on after the window.
	pushMost = 2 * time.Minute
)

// pushRun is a run of pushes by git itself, each a process of its own.
type pushRun struct {
	rig *bench.Rig
	// source has every commit of all pushers.
	source gitDir
	// url is that of the server's repository, with a token in it.
	url string
	// ledger has what was acknowledged of each branch.
	ledger *bench.RefLedger
	// push is where pushes are recorded.
	push *bench.Op
	// chains are the commits of each pusher, each the parent of the next.
	chains [][]string
	// landed counts pushes that were acknowledged.
	landed atomic.Uint64
	// refused counts pushes that came second.
	refused atomic.Uint64
}

// RefsPush pushes by git itself, in one of three ways: one pusher, many to one branch, or many to
// branches of their own. Afterwards a clone of each server is checked by git.
func RefsPush(ctx context.Context, rig *bench.Rig) (err error) {
	if rig.Ceiling {
		return errors.New("no null server reads what git sends")
	}
	if rig.Servers[0].HTTP == "" || rig.Dir == "" {
		return errors.New("git pushes to servers that are processes of the bench and have a REST door")
	}
	p := &pushRun{rig: rig, push: rig.Op("push")}
	home, err := os.MkdirTemp(rig.Dir, "push")
	if err != nil {
		return err
	}
	if p.source, err = initGit(ctx, home, "source.git"); err != nil {
		return err
	}
	pushers := max(rig.Shape.Pumps, 1)
	length := pushChain
	if pushers == 1 {
		// One pusher alone needs enough commits for the whole run, many need few each.
		length = int((rig.Warmup+rig.Window).Seconds()*pushesPerSecond) + pushChain
	}
	if err := p.commit(ctx, pushers, length); err != nil {
		return err
	}
	if p.url, err = newServerRepo(ctx, rig); err != nil {
		return err
	}
	p.ledger = bench.NewRefLedger(refsRepo, refsPrefix)
	rig.Refs = p.ledger
	rig.Proofs = append(rig.Proofs, p.prove)
	children := childrenCPU()
	defer func() { rig.PeerCPU(childrenCPU() - children) }()
	switch rig.Shape.Kind {
	case "one":
		return p.one(ctx)
	case "one-branch":
		return p.oneBranch(ctx)
	}
	return p.ownBranches(ctx)
}

// commit makes the commits of all pushers, each with another content of a file. It makes them by
// one fast-import, since a process for each would take longer than the run.
func (p *pushRun) commit(ctx context.Context, pushers, length int) error {
	// The input is the stream format of git fast-import: a commit, its committer, message and one
	// file.
	var in bytes.Buffer
	for i := range pushers {
		for n := range length {
			text := fmt.Sprintf("pusher %d, change %d\n", i, n)
			fmt.Fprintf(&in, "commit refs/chains/%d\ncommitter bench <bench@localhost> %d +0000\ndata %d\n%s", i, 1_700_000_000+n, len(text), text)
			fmt.Fprintf(&in, "M 100644 inline file-%d\ndata %d\n%s\n", i, len(text), text)
		}
	}
	if _, err := p.source.run(ctx, in.String(), "fast-import", "--quiet"); err != nil {
		return err
	}
	for i := range pushers {
		// The oldest commit comes first, so that each push adds its child.
		out, err := p.source.run(ctx, "", "rev-list", "--reverse", fmt.Sprintf("refs/chains/%d", i))
		if err != nil {
			return err
		}
		p.chains = append(p.chains, strings.Split(out, "\n"))
	}
	return nil
}

// send pushes a commit from a repository to ref n at url.
func (p *pushRun) send(ctx context.Context, from gitDir, url, id string, n int) error {
	_, err := from.run(ctx, "", "push", "-q", url, id+":"+p.ledger.Name(n))
	return err
}

// note tells the ledger and the harness how a push of ref n ended. Any failure leaves the outcome
// unknown: git does not tell more.
func (p *pushRun) note(caller, n int, id string, began time.Time, err error) {
	if err == nil {
		p.ledger.Acked(n, id)
		p.landed.Add(1)
	} else {
		p.ledger.Unknown(n, id)
	}
	p.push.Record(caller, began, 1, err)
}

// one pushes commits one by one: to the server, and to a bare repository in the same file system,
// in turn. Every second push to the server goes through a proxy that times what the server takes of
// it; such a push does not count.
func (p *pushRun) one(ctx context.Context) error {
	local, err := initGit(ctx, p.source.home, "local.git")
	if err != nil {
		return err
	}
	timer, err := newPushTimer(p.url)
	if err != nil {
		return err
	}
	defer timer.close()
	// whole are pushes to the server, file those to the bare repository, server what the proxy
	// timed, in milliseconds.
	var whole, file, server []float64
	// i is the next commit. pair makes the two pushes to the server, each followed by one to the file.
	i := 0
	pair := func(ctx context.Context, counts bool) error {
		for k, to := range []string{p.url, timer.url} {
			id := p.chains[0][i]
			i++
			began := time.Now()
			err := p.send(ctx, p.source, to, id, 0)
			if k == 0 && counts {
				// A push through the proxy is not counted as a whole: the proxy adds to its time.
				whole = append(whole, time.Since(began).Seconds()*1e3)
			}
			if took := timer.take(); k == 1 && counts {
				server = append(server, took.Seconds()*1e3)
			}
			if k == 1 {
				p.ledger.Acked(0, id)
			} else {
				p.note(0, 0, id, began, err)
			}
			if err != nil {
				return err
			}
			began = time.Now()
			if err := p.send(ctx, p.source, "file://"+local.dir, id, 0); err != nil {
				return err
			}
			if counts {
				file = append(file, time.Since(began).Seconds()*1e3)
			}
		}
		return nil
	}
	if err := pair(ctx, false); err != nil { // also the first, whose repository is empty
		return err
	}
	busy := 0.0
	err = p.rig.MeasureWork(ctx, func(ctx context.Context) error {
		began := time.Now()
		for i+1 < len(p.chains[0]) && time.Since(began) < p.rig.Window {
			if err := pair(ctx, true); err != nil {
				return err
			}
		}
		// busy is the share of the window in which a push to the server was under way.
		for _, ms := range whole {
			busy += ms / 1e3 / time.Since(began).Seconds()
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.rig.UnderWay(busy)
	same := func(v float64) float64 { return v }
	p.rig.Metric("push_p50_ms", middle(whole, same), "ms")
	p.rig.Metric("server_p50_ms", middle(server, same), "ms")
	p.rig.Metric("file_push_p50_ms", middle(file, same), "ms")
	p.rig.Metric("ratio_to_file_push", middle(whole, same)/middle(file, same), "×")
	return nil
}

// ownBranches lets all pushers push at once, each to a branch of its own, until its commits or the window end.
func (p *pushRun) ownBranches(ctx context.Context) error {
	return p.together(ctx, func(ctx context.Context, caller, round int) (more bool, err error) {
		if round >= len(p.chains[caller]) {
			return false, nil
		}
		id := p.chains[caller][round]
		began := time.Now()
		err = p.send(ctx, p.source, p.url, id, caller)
		p.note(caller, caller, id, began, err)
		return err == nil, err
	})
}

// together runs all pushers until the window is over; each pushes once at least. push returns more = false
// when the caller has nothing left. The window ends with the last push, at most pushMost after its time.
func (p *pushRun) together(ctx context.Context, push func(ctx context.Context, caller, round int) (more bool, err error)) error {
	var took time.Duration
	ctx, cancel := context.WithTimeoutCause(ctx, p.rig.Window+pushMost, fmt.Errorf("pushes did not end within %s after the window", pushMost))
	defer cancel()
	err := p.rig.MeasureWork(ctx, func(ctx context.Context) error {
		began := time.Now()
		// errs has a place for each pusher.
		errs := make([]error, len(p.chains))
		var all sync.WaitGroup
		for caller := range p.chains {
			all.Go(func() {
				for round := 0; round == 0 || time.Since(began) < p.rig.Window; round++ {
					more, err := push(ctx, caller, round)
					if errs[caller] = err; err != nil || !more {
						return
					}
				}
			})
		}
		all.Wait()
		took = time.Since(began)
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	n := float64(p.landed.Load())
	p.rig.Metric("pushes_per_s", n/took.Seconds(), "pushes/s")
	p.rig.Metric("push_p50_ms", p.push.P50()/1e3, "ms")
	p.rig.Metric("refused_pushes_per_push", float64(p.refused.Load())/max(n, 1), "pushes")
	return nil
}

// prove clones the repository from every server, lets git check the objects, and compares the refs
// with the ledger.
func (p *pushRun) prove(ctx context.Context) (wrong []string, err error) {
	for n, server := range p.rig.Servers {
		from, err := repoURL(p.rig, n)
		if err != nil {
			return wrong, err
		}
		clone := gitDir{p.source.home, filepath.Join(p.source.home, "clone-of-"+server.Name+".git")}
		if _, err := p.source.run(ctx, "", "clone", "-q", "--mirror", from, clone.dir); err != nil {
			return wrong, err
		}
		if _, err := clone.run(ctx, "", "fsck", "--full", "--no-dangling"); err != nil {
			wrong = append(wrong, "damaged: "+server.Name+": "+err.Error())
		}
		a, err := bench.AuditRefs(ctx, p.ledger, clone.refReader("a clone of "+server.Name))
		if err != nil {
			return wrong, err
		}
		wrong = append(wrong, a.Violations...)
	}
	return wrong, nil
}

// pushTimer is a proxy in front of the server that adds up how long requests take there. spent is
// in nanoseconds.
type pushTimer struct {
	// url is the proxy's, with the path and the token of the server.
	url   string
	spent atomic.Int64
	// serve is the proxy's server.
	serve *http.Server
}

// newPushTimer starts a proxy to the host of a URL. Its own url has the same path and token.
func newPushTimer(to string) (*pushTimer, error) {
	u, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &pushTimer{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: u.Scheme, Host: u.Host})
	t.serve = &http.Server{ReadHeaderTimeout: nullTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		proxy.ServeHTTP(w, r)
		t.spent.Add(int64(time.Since(began)))
	})}
	go func() { _ = t.serve.Serve(lis) }()
	u.Host = lis.Addr().String()
	t.url = u.String()
	return t, nil
}

// take returns what was added up since the last call.
func (t *pushTimer) take() time.Duration { return time.Duration(t.spent.Swap(0)) }

// close ends the proxy at once. No push is under way then.
func (t *pushTimer) close() { _ = t.serve.Close() }
